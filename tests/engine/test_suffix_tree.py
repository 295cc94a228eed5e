"""The suffix tree counts what looking everywhere counts, and forgets a sequence without a trace."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from workers.engine.drafts.suffix_tree import Node, Point, SuffixTree

sequences = st.lists(st.lists(st.integers(0, 2), max_size=24), min_size=1, max_size=5)
depths = st.integers(1, 6)
DEPTH = 6


def built(rows: list[list[int]], max_depth: int) -> tuple[SuffixTree, list[list[int]]]:
    tree, closed = SuffixTree(max_depth), []
    for row in rows:
        tree.extend(row)
        closed.append(tree.close())
    return tree, closed


def edges(node: Node) -> dict[tuple[int, ...], Any]:
    """The node's children as {edge: (count, their children)}: all that a closed tree knows but times."""
    return {
        tuple(child.source[child.start : child.edge_end()]): (child.count, edges(child))
        for child in node.children.values()
    }


def counts(node: Node, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], int]]:
    """Each run of tokens that a closed tree has, and its count."""
    for child in node.children.values():
        end = path
        for token in child.source[child.start : child.edge_end()]:
            end = (*end, token)
            yield end, child.count
        yield from counts(child, end)


def counted(rows: list[list[int]], max_depth: int) -> Counter[tuple[int, ...]]:
    return Counter(
        tuple(row[start:stop])
        for row in rows
        for start in range(len(row))
        for stop in range(start + 1, min(start + max_depth, len(row)) + 1)
    )


def nodes(node: Node) -> Iterator[Node]:
    for child in node.children.values():
        yield child
        yield from nodes(child)


def followers(rows: list[list[int]], run: list[int]) -> list[int]:
    """The token after each occurrence of the run, in the order of the text."""
    size = len(run)
    return [row[start + size] for row in rows for start in range(len(row) - size) if row[start : start + size] == run]


def followed(rows: list[list[int]], run: list[int], limit: int, least: float) -> tuple[list[int], list[float]]:
    """What SuffixTree.follow finds, by looking everywhere."""
    tokens: list[int] = []
    probabilities: list[float] = []
    probability = 1.0
    while len(tokens) < limit and (found := followers(rows, [*run, *tokens])):
        latest_first = Counter(reversed(found))
        (token, count), *_ = latest_first.most_common(1)
        probability *= count / len(found)
        if probability < least:
            break
        tokens.append(token)
        probabilities.append(probability)
    return tokens, probabilities


@given(sequences, depths)
def test_every_run_is_counted_as_often_as_it_occurs(rows: list[list[int]], max_depth: int) -> None:
    tree, _ = built(rows, max_depth)
    assert dict(counts(tree.root)) == counted(rows, max_depth)


@given(sequences, depths, st.integers(0, 5))
def test_after_removal_the_tree_is_the_one_built_from_the_rest(
    rows: list[list[int]], max_depth: int, num_removed: int
) -> None:
    tree, closed = built(rows, max_depth)
    for row in closed[:num_removed]:
        tree.remove(row)
    rest, _ = built(rows[num_removed:], max_depth)
    assert edges(tree.root) == edges(rest.root)


@given(sequences, depths, st.integers(0, 5))
def test_a_removed_sequence_is_not_kept_in_memory(rows: list[list[int]], max_depth: int, num_removed: int) -> None:
    tree, closed = built(rows, max_depth)
    for row in closed[:num_removed]:
        tree.remove(row)
    kept = {id(row) for row in closed[num_removed:]}
    assert all(id(node.source) in kept or len(node.source) <= max_depth for node in nodes(tree.root))
    assert not {id(node.source) for node in nodes(tree.root)} & {id(row) for row in closed[:num_removed]}


@given(sequences, depths)
def test_there_are_at_most_two_nodes_a_token(rows: list[list[int]], max_depth: int) -> None:
    tree, _ = built(rows, max_depth)
    assert sum(1 for _ in nodes(tree.root)) <= 2 * sum(len(row) for row in rows)


@given(
    sequences,
    st.lists(st.integers(0, 2), max_size=24),
    st.integers(0, 4),
    st.lists(st.integers(0, 2), min_size=1, max_size=12),
    st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0]),
)
def test_following_finds_what_looking_everywhere_finds(
    rows: list[list[int]], open_row: list[int], num_removed: int, text: list[int], least: float
) -> None:
    tree, closed = built(rows, DEPTH)
    for row in closed[:num_removed]:
        tree.remove(row)
    tree.extend(open_row)
    ends: list[Point] = []
    for token in text:
        ends = tree.advance(ends, token)
    check_follow(tree, ends, [*rows[num_removed:], open_row], text, least)
    check_follow(tree, tree.ends, [*rows[num_removed:], open_row], open_row, least)


def check_follow(tree: SuffixTree, ends: list[Point], rows: list[list[int]], text: list[int], least: float) -> None:
    """Each suffix of the text of less than DEPTH tokens leads where it does in the rows."""
    for length in range(1, min(len(text) + 1, DEPTH)):
        expected = followed(rows, text[-length:], DEPTH - length, least)
        found = tree.follow(ends[-length], DEPTH - length, least) if length <= len(ends) else ([], [])
        assert found == expected


def test_the_latest_of_equals_is_followed() -> None:
    tree, closed = built([[7, 1], [7, 2], [7, 1], [7, 2]], max_depth=2)
    for row in closed[:2]:
        tree.remove(row)
    assert tree.follow(tree.advance([], 7)[0], 1, 0.0) == ([2], [0.5])
