"""An input file opened again as it was planned."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from jobs.input.files import open_input
from jobs.input.footers import Footer, read_footer
from jobs.texts import one_line
from schemas.errors import InvalidJob, ShardRetryable
from schemas.plan import InputFile


class InputGone(InvalidJob):
    """A file of the input is not there any more."""


class InputChanged(InvalidJob):
    """A file of the input is not as it was planned: of another size, or with another footer."""


class WatchedFile:
    """A file that remembers its own error: Arrow reports a disk that fails and data that are damaged alike."""

    def __init__(self, file: Any, path: str) -> None:
        self._file, self._path = file, path
        self._error: Exception | None = None

    def check(self) -> None:
        """Raises ShardRetryable where reading has failed."""
        if self._error is not None:
            raise ShardRetryable(f"cannot read {self._path}: {one_line(self._error)}") from self._error

    def read(self, num_bytes: int = -1) -> bytes:
        return bytes(self._watched(self._file.read, num_bytes))

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._watched(self._file.seek, offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        self._file.close()

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def _watched(self, call: Callable[..., Any], *arguments: int) -> Any:
        try:
            return call(*arguments)
        except Exception as error:  # every object store's client has classes of its own
            self._error = error
            raise


@contextmanager
def open_planned(file: InputFile) -> Iterator[tuple[WatchedFile, Footer]]:
    """The open file and its footer. Raises InputGone, InputChanged, and ShardRetryable on I/O errors."""
    with _opened(file.path) as opened:
        source = WatchedFile(opened, file.path)
        try:
            footer = read_footer(source, file.path)
        except InvalidJob:
            raise _changed(file) from None
        except Exception:
            source.check()
            raise
        if (footer.size_bytes, footer.sha256) != (file.size_bytes, file.footer_sha256):
            raise _changed(file)
        yield source, footer


def _opened(path: str) -> Any:
    file_system, local_path = open_input(path)
    try:
        return file_system.open(local_path, "rb")
    except FileNotFoundError as error:
        raise InputGone(f"input file {path} is gone since the job was planned; restore it") from error
    except OSError as error:
        raise ShardRetryable(f"cannot read {path}: {one_line(error)}") from error


def _changed(file: InputFile) -> InputChanged:
    return InputChanged(
        f"input file {file.path} has changed since the job was planned; restore it, or submit a new job"
    )
