"""A row's text, and where its tokens end in it."""

from workers.engine.drafts.source_text import SourceText

SMILE = "🙂".encode()


def read(pieces: list[bytes]) -> SourceText:
    source = SourceText()
    for token, piece in enumerate(pieces):
        source.read(token, piece)
    return source


def test_tokens_with_a_part_of_a_character_are_pending_until_it_is_whole() -> None:
    pieces = [b"a", b" " + SMILE[:1], SMILE[1:3], SMILE[3:] + b"!"]
    assert [(source.text, source.pending) for source in map(read, (pieces[:end] for end in range(1, 5)))] == [
        ("a", []),
        ("a", [1]),
        ("a", [1, 2]),
        ("a 🙂!", []),
    ]


def test_a_byte_that_can_never_be_text_does_not_hold_up_what_follows() -> None:
    source = read([b"a", SMILE[:2], b"b"])
    assert (source.text, source.pending) == ("a�b", [])


def test_a_special_token_ends_a_character_and_the_look_behind() -> None:
    source = read([b"a", b"b", SMILE[:2]])
    source.interrupt()
    assert (source.text, source.pending, source.place_back(5)) == ("ab�", [], 3)
    source.read(3, b"cd")
    source.read(4, b"e")
    assert [source.place_back(count) for count in (1, 2, 3)] == [5, 3, 3]


def test_a_carried_token_begins_a_new_text() -> None:
    source = read([b"a", SMILE[:2]])
    source.restart()
    source.read(2, b"b")
    assert (source.text, source.pending, source.place_back(1)) == ("b", [], 0)
