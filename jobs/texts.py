"""Texts from elsewhere, made fit to print or to store."""


def one_line(error: BaseException) -> str:
    """A foreign error's message in one line; its class where it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def is_utf8(name: str) -> bool:
    """Whether a name from the file system or the command line can be kept in JSON: Python marks other bytes so."""
    return not any("\ud800" <= char <= "\udfff" for char in name)


def shortened(value: object, num_chars: int = 60) -> str:
    """repr, cut so that a message stays one readable line."""
    text = repr(value)
    return text if len(text) <= num_chars else text[: num_chars - 1] + "…"


def counted(num: int, noun: str) -> str:
    """`1 shard`, `2 shards`."""
    return f"{num} {noun}" if num == 1 else f"{num} {noun}s"
