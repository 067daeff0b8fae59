"""What every source of documents needs: lines in bounded memory, and a place for every mistake."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator
from typing import IO, TypeAlias, TypeVar

from hplus.errors import InputError
from hplus.index.document import Document

LINE_BYTES = 64 * 2**20
"""The longest line, CSV cell or text file that is read into memory."""

Report: TypeAlias = Callable[[str], None]
Row = TypeVar("Row")


def documents_of(
    rows: Iterator[Row],
    make: Callable[[Row], Document | None],
    where: Callable[[], str],
    bad: Report,
) -> Iterator[Document]:
    """What `make` makes of each row; a bad row is told with its place, None is no document."""
    while True:
        try:
            document = make(next(rows))
        except StopIteration:
            return
        except InputError as error:
            bad(f"{where()}: {error}")
            continue
        if document is not None:
            yield document


class Lines:
    """The lines of a stream, decoded, with their ends; `number` is that of the last.

    An iterator, but no generator: after a bad line it goes on with the next.
    """

    def __init__(self, stream: IO[bytes], *, errors: str = "strict") -> None:
        self.stream = stream
        self.errors = errors
        self.number = 0

    def __iter__(self) -> Lines:
        return self

    def __next__(self) -> str:
        line = self.stream.readline(LINE_BYTES + 1)
        if not line:
            raise StopIteration
        self.number += 1
        if len(line) > LINE_BYTES:
            self.skip_rest(line)
            raise InputError(f"the line has more than {megabytes(LINE_BYTES)}")
        return decoded(line, first=self.number == 1, errors=self.errors)

    def skip_rest(self, line: bytes) -> None:
        while line and not line.endswith(b"\n"):
            line = self.stream.readline(2**20)


def decoded(data: bytes, *, first: bool, errors: str = "strict") -> str:
    try:
        return data.decode("utf-8-sig" if first else "utf-8", errors)
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 ({error.reason} at byte {error.start + 1})") from None


def megabytes(size: int) -> str:
    return f"{size / 2**20:.0f} MB" if size >= 2**20 else f"{size} bytes"


def unzipped(stream: io.BufferedReader) -> io.BufferedReader:
    """The stream, unpacked if it begins as gz does."""
    if stream.peek(2)[:2] != b"\x1f\x8b":
        return stream
    return io.BufferedReader(gzip.GzipFile(fileobj=stream))
