"""Which columns of a table, or fields of JSON lines, hold the text, the title and the id."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from hplus.errors import InputError

# Names that an error compares with the one that is missing.
_COMPARED = 1000
_IDS = ("_id", "id")


@dataclass(frozen=True)
class Columns:
    """Which columns hold what; names are matched exactly, or else without regard to case.

    text: one, or several, which are joined by blank lines. title: is put before the text, without
    it `title` where there is one. id: without it `_id` or `id` where there is one. delimiter: what
    separates the columns of a CSV file; without it, the header tells.

    >>> Columns(text=("abstract", "body"), id="pmid")
    Columns(text=('abstract', 'body'), title=None, id='pmid', delimiter=None)
    """

    text: str | tuple[str, ...] = ("text",)
    title: str | None = None
    id: str | None = None
    delimiter: str | None = None

    def __post_init__(self) -> None:
        texts = (self.text,) if isinstance(self.text, str) else tuple(self.text)
        object.__setattr__(self, "text", texts)
        named = [*texts, *(name for name in (self.title, self.id) if name is not None)]
        if not texts or not all(isinstance(name, str) and name for name in named):
            raise InputError(f"expected names of columns, got {named}")
        name, times = Counter(map(str.casefold, named)).most_common(1)[0]
        if times > 1:
            raise InputError(f"the column {name!r} is named twice; each can serve once")
        marks = {"tab": "\t", "\\t": "\t"}
        mark = marks.get(str(self.delimiter), self.delimiter)
        if mark is not None and not (
            isinstance(mark, str) and len(mark) == 1 and mark not in '"\r\n'
        ):
            raise InputError(f"expected a delimiter of one character, or tab, got {mark!r}")
        object.__setattr__(self, "delimiter", mark)

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of the text."""
        return self.text if isinstance(self.text, tuple) else (self.text,)


DEFAULT = Columns()


@dataclass(frozen=True)
class Chosen:
    """The names that a header or a row has for the columns."""

    texts: tuple[str, ...]
    title: str | None
    id: str | None


def of_row(row: Mapping[Any, Any], columns: Columns) -> Chosen:
    """The fields of an object: at least one of the texts, and the id if it was named."""
    found = _Names(row)
    texts = tuple(name for name in map(found.find, columns.texts) if name is not None)
    id = found.first(_IDS if columns.id is None else (columns.id,))
    lacks = columns.texts[0] if not texts else columns.id if id is None else None
    if lacks is not None:
        raise InputError(f'no "{lacks}" field{found.near(lacks)}')
    return Chosen(texts, found.find(columns.title or "title"), id)


def of_header(name: str, header: list[Any], columns: Columns) -> Chosen:
    """The columns of the table `name`: everything that was named must be there."""
    found = _Names(header)
    for wanted in (*columns.texts, columns.title, columns.id):
        if wanted is not None and found.find(wanted) is None:
            named = ", ".join(map(repr, header[:20])) + (", …" if len(header) > 20 else "")
            remedy = "; say which one holds the text: --text NAME, in Python Columns(text=NAME)"
            raise InputError(
                f"{name} has no column {wanted!r}{found.near(wanted)}; its columns are {named}"
                + (remedy if columns.texts == DEFAULT.texts == (wanted,) else "")
            )
    column, times = Counter(column for column in header if column).most_common(1)[0]
    if times > 1:
        raise InputError(f"{name} has two columns called {column!r}")
    texts = tuple(name for name in map(found.find, columns.texts) if name is not None)
    id = found.first(_IDS if columns.id is None else (columns.id,))
    return Chosen(texts, found.find(columns.title or "title"), id)


class _Names:
    """Names as they are written, found without regard to case where none is the very same."""

    def __init__(self, names: Iterable[Any]) -> None:
        self.names = names if isinstance(names, Mapping) else dict.fromkeys(names)
        self.folded: dict[str, str] | None = None

    def find(self, wanted: str) -> str | None:
        if wanted in self.names:
            return wanted
        if self.folded is None:
            texts = [name for name in self.names if isinstance(name, str)]
            self.folded = {name.casefold(): name for name in reversed(texts)}
        return self.folded.get(wanted.casefold())

    def first(self, wanted: Iterable[str]) -> str | None:
        """The first of several, as it is written before any other spelling."""
        exact = next((name for name in wanted if name in self.names), None)
        return exact or next(filter(None, map(self.find, wanted)), None)

    def near(self, wanted: str) -> str:
        """Names like one that is missing, for its error."""
        known = {str(name).casefold(): str(name) for name in islice(self.names, _COMPARED)}
        close = difflib.get_close_matches(wanted.casefold(), known, n=3)
        return f" (near: {', '.join(repr(known[name]) for name in close)})" if close else ""
