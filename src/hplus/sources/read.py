"""Documents from anywhere, one after another, in bounded memory.

What `read` takes, by name and, where the name says nothing, by content:

| source | documents |
|---|---|
| `.jsonl`, `.ndjson` | one JSON object per line, blank lines skipped |
| `.csv`, `.tsv` | one per row, the header names the columns and shows what separates them |
| `.parquet` | one per row, read batch by batch (`pip install hplus[parquet]`) |
| folder with `corpus.jsonl` (or .gz) | its lines: a BEIR set |
| any other folder | every `.txt`, `.md`, `.html` and `.pdf` in it, sorted by path |
| `.txt`, `.md` | the file is one document, as in a folder |
| `.html`, `.htm`, `.xhtml`, `.pdf` | the same (`pip install hplus[documents]`) |
| `-` | standard input: JSON lines if the first one begins with `{`, else one document per line |
| a Python iterable | of str, dict, (id, text) or `Document` |
| a table of pandas, Arrow or polars | one per row, as of a Parquet file |

gz is recognised by content, except for Parquet. Everything is UTF-8.

**Fields.** An object, a dict and a row of a table are read alike. `_id`, or else `id`, is a str or
int; without one the id is a hash of the text, so that a row inserted above changes no ids below
it. `text` is a str. `title`, a str, is put before the text and stays in the metadata unless it is
empty. Other columns can be named (`Columns`); names that differ in case only are recognised.
All other fields are metadata, and so are the fields of an object called `metadata`; where
both have a field, the outer one counts. Metadata holds JSON values without NaN and Infinity, nested
at most `document.METADATA_DEPTH` levels.

**CSV.** A cell that looks like a plain number becomes one: `2020`, `-1.50`, `1e-05`. Cells with a
leading zero or plus (`007`), more than 18 digits, or an exponent without a sign (`2E10` may be the
name of a gene) remain texts; so do `true` and `false`. An empty cell is a missing field; a column
without a name is left out.

**Parquet and tables in memory.** Null (in pandas also NaN) is a missing field; dates and times
become ISO texts, decimals floats. A named index of a DataFrame is a column.

**Folders.** The id is the path below the folder, with `/`, and is in the metadata as `path`; so is
the first heading of a .md file, as `title` (it is in the text already), and the title of a page or
a PDF. Hidden files and folders are skipped, other files are passed over and counted by ending.
Links to files are followed, links to folders are not, so there are no loops.

**Mistakes.** A bad line, row or file of a folder stops the reading or is reported and skipped, as
requested; so does a row that repeats an id, if `is_new` tells. What spoils the whole source
(missing, damaged, no `text` column) always stops it.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from functools import partial
from pathlib import Path
from typing import Any, Literal

from hplus.arguments import chosen
from hplus.errors import InputError
from hplus.files import LINE_BYTES, Lines, readable, shown, unpacked
from hplus.sources import pages
from hplus.sources.columns import DEFAULT, Columns
from hplus.sources.document import (
    Complain,
    Document,
    Place,
    distinct,
    document_of,
    document_of_text,
    documents_of,
    parse_json,
)
from hplus.sources.folders import TEXTS, PassedOver, text_file, tree, walk
from hplus.sources.tables import parquet, parquet_rows, rows_in_memory, table, table_rows

_JSON_LINES = (".jsonl", ".ndjson")
_TABLES = {".csv": ",", ".tsv": "\t"}
_WHOLE = (*TEXTS, *pages.ENDINGS)


def read(
    source: str | os.PathLike[str] | Iterable[Any],
    *,
    on_error: Literal["stop", "skip"] = "stop",
    report: Complain | None = None,
    is_new: Callable[[str], bool] = lambda _: True,
    columns: Columns | None = None,
    passed_over: PassedOver = lambda _: None,
) -> Iterator[Document]:
    """The documents of a source; "skip" reports bad rows to `report` and continues.

    is_new: notes an id and says whether it is the first of its kind in this source. passed_over: is
    given the ending of every file of a folder that is no document.

    >>> [document.text for document in read(["type 2 diabetes", {"id": "x", "text": "heart"}])]
    ['type 2 diabetes', 'heart']
    """
    chosen("on_error", on_error, ("stop", "skip"))
    if on_error == "skip" and report is None:
        raise InputError('on_error="skip" needs report=, a function that takes each message')
    bad: Complain = report if on_error == "skip" and report is not None else _stop
    return distinct(_found(source, columns, bad, passed_over), is_new, bad)


def count(
    source: str | os.PathLike[str] | Iterable[Any], columns: Columns | None = None
) -> int | None:
    """How many documents a source has, bad rows included; None where only reading them tells.

    Lines and rows are counted without being parsed, which takes a small part of the time that
    encoding takes.

    >>> count(["type 2 diabetes", "heart failure"])
    2
    """
    if isinstance(source, (str, os.PathLike)):
        try:
            return None if source == "-" else _count(Path(source), columns or DEFAULT)
        except Exception:  # whatever is wrong, reading the source reports it
            return None
    return len(source) if isinstance(source, Sized) else None


def digest(source: str | os.PathLike[str]) -> str:
    """SHA-256 (hex) of a file, of the documents of a BEIR folder, or of a tree with its names."""
    path = Path(source)
    name = shown(path)
    with readable(name):
        if not path.is_dir():
            return _digest(path)
        corpus = _corpus(path)
        if corpus is not None:
            return _digest(corpus)
        whole = hashlib.sha256()
        for file, id_ in walk(path, _stop):
            whole.update(f"{_digest(file)} {id_}\n".encode(errors="surrogateescape"))
        return whole.hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _count(path: Path, columns: Columns) -> int | None:
    if path.is_dir():
        corpus = _corpus(path)
        return _count(corpus, columns) if corpus else sum(1 for _ in walk(path, lambda _: None))
    if not path.is_file():  # a pipe can be read only once
        return None
    usual = _delimiter(path, columns)
    if _suffix(path) in _WHOLE and usual is None:
        return 1
    with path.open("rb") as raw:
        if _is_parquet(path, raw):
            return parquet_rows(path)
        stream = unpacked(raw)
        if usual is not None:
            return table_rows(stream, usual, columns)
        return sum(not line.isspace() for line in iter(lambda: stream.readline(LINE_BYTES), b""))


def _stop(message: str) -> None:
    raise InputError(message)


def _found(
    source: Any, columns: Columns | None, bad: Complain, passed_over: PassedOver
) -> Iterator[tuple[Document, Place]]:
    if isinstance(source, str) and source == "-":
        return _standard_input(columns, bad)
    if isinstance(source, (str, os.PathLike)):
        return _path(Path(source), columns, bad, passed_over)
    _refuse_delimiter("a list or a table in memory", columns)
    rows = rows_in_memory(source, columns or DEFAULT)
    if rows is not None:
        return _iterable(rows, columns, bad)
    expected = "expected a file, a folder, - or a list of documents"
    kind = type(source).__name__
    if isinstance(source, (bytes, dict, Document)):
        raise InputError(f"{expected}, got {kind}; put it in brackets")
    # A column of pandas has keys, but iterates over its values.
    if isinstance(source, Mapping) or (hasattr(source, "keys") and not hasattr(source, "to_list")):
        raise InputError(f"{expected}, got {kind}, which iterates over its keys; give its rows")
    if not isinstance(source, Iterable):
        raise InputError(f"{expected}, got {kind}")
    return _iterable(source, columns, bad)


def _iterable(
    source: Iterable[Any], columns: Columns | None, bad: Complain
) -> Iterator[tuple[Document, Place]]:
    position = -1

    def make(item: object) -> Document:
        nonlocal position
        position += 1
        if isinstance(item, Document):
            return item
        if isinstance(item, str):
            return document_of_text(item)
        if isinstance(item, Mapping):
            return document_of(item, columns or DEFAULT)
        if isinstance(item, (tuple, list)) and len(item) == 2:
            return document_of({"id": item[0], "text": item[1]})
        raise InputError(f"expected str, dict, (id, text) or Document, got {type(item).__name__}")

    return documents_of(iter(source), make, lambda: f"documents[{position}]", bad)


def _standard_input(columns: Columns | None, bad: Complain) -> Iterator[tuple[Document, Place]]:
    name = "standard input"
    _refuse_delimiter(name, columns)
    if sys.stdin is None:
        raise InputError("standard input is closed")
    stream = sys.stdin.buffer
    lines = Lines(unpacked(stream) if isinstance(stream, io.BufferedReader) else stream)
    kind: Callable[[str], Document | None] | None = None

    def make(line: str) -> Document | None:
        nonlocal kind
        if kind is None and line.strip():
            is_json = line.lstrip().startswith("{") or columns is not None
            kind = partial(_from_json, columns=columns or DEFAULT) if is_json else _from_text
        return None if kind is None else kind(line)

    return _reading(name, documents_of(lines, make, lambda: f"{name}:{lines.number}", bad))


def _path(
    path: Path, columns: Columns | None, bad: Complain, passed_over: PassedOver
) -> Iterator[tuple[Document, Place]]:
    name = shown(path)
    try:
        folder = stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{name} is missing; give a file, a folder, or - for input") from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {name}: {error}") from None
    file = _corpus(path) if folder else path
    if file is not None:
        return _reading(shown(file), _file(file, columns, bad))
    _refuse_columns(f"{name}, a folder of texts", columns)
    return tree(path, bad, passed_over)


def _refuse_columns(what: str, columns: Columns | None) -> None:
    if columns is not None:
        raise InputError(f"columns are those of tables and JSON lines; {what} has none")


def _refuse_delimiter(what: str, columns: Columns | None) -> None:
    if columns is not None and columns.delimiter is not None:
        raise InputError(f"a delimiter separates the columns of a CSV file; {what} has none")


def _corpus(folder: Path) -> Path | None:
    """The documents of a BEIR folder."""
    files = (folder / "corpus.jsonl", folder / "corpus.jsonl.gz")
    return next((file for file in files if file.is_file()), None)


def _file(path: Path, columns: Columns | None, bad: Complain) -> Iterator[tuple[Document, Place]]:
    suffix, name = _suffix(path), shown(path)
    chosen = columns or DEFAULT
    usual = _delimiter(path, chosen)
    if suffix in _WHOLE and usual is None:
        _refuse_columns(name, columns)
        yield from text_file(path, path.name, bad)
        return
    with path.open("rb") as raw:
        if _is_parquet(path, raw):
            _refuse_delimiter(f"{name}, a Parquet file,", columns)
            yield from parquet(path, chosen, bad)
            return
        stream = unpacked(raw)
        if usual is not None:
            yield from table(stream, name, usual, chosen, bad)
            return
        if suffix not in _JSON_LINES:
            _check_content(name, stream)
        lines = Lines(stream)
        make = partial(_from_json, columns=chosen)
        yield from documents_of(lines, make, lambda: f"{name}:{lines.number}", bad)


def _delimiter(path: Path, columns: Columns) -> str | None:
    """What usually separates the columns of such a file; None if it is no table.

    With a delimiter, a file of any other name is one.
    """
    suffix = _suffix(path)
    if suffix in _JSON_LINES:
        _refuse_delimiter(f"{shown(path)}, of JSON lines,", columns)
    return _TABLES.get(suffix, None if suffix == ".parquet" else columns.delimiter)


def _suffix(path: Path) -> str:
    return Path(path.name.lower().removesuffix(".gz")).suffix


def _is_parquet(path: Path, raw: io.BufferedReader) -> bool:
    return _suffix(path) == ".parquet" or raw.peek(4)[:4] == b"PAR1"


def _check_content(name: str, stream: io.BufferedReader) -> None:
    """A file of another name is read as JSON lines if it begins like them."""
    head = stream.peek(4096).removeprefix(codecs.BOM_UTF8).lstrip()[:1]
    if head == b"[":
        raise InputError(f"{name} is a JSON list; write it as JSON lines, one object per line")
    if head != b"{":
        raise InputError(
            f"{name} is of an unknown kind; expected .jsonl, .csv, .tsv, .parquet, .txt, .md, "
            ".html, .pdf or a folder"
        )


def _reading(
    name: str, documents: Iterator[tuple[Document, Place]]
) -> Iterator[tuple[Document, Place]]:
    with readable(name):
        yield from documents


def _from_text(text: str) -> Document | None:
    return document_of_text(text) if text.strip() else None


def _from_json(line: str, columns: Columns) -> Document | None:
    if not line.strip():
        return None
    value = parse_json(line.rstrip())
    if not isinstance(value, dict):
        raise InputError(f"expected a JSON object, got {type(value).__name__}")
    return document_of(value, columns)
