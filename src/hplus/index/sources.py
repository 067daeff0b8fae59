"""Documents from anywhere, one after another, in bounded memory.

What `read` takes, by name and, where the name says nothing, by content:

| source | documents |
|---|---|
| `.jsonl`, `.ndjson` | a JSON object a line, blank lines skipped |
| `.csv`, `.tsv` | a row each, the header names the columns |
| `.parquet` | a row each, read batch by batch (`pip install hplus[parquet]`) |
| folder with `corpus.jsonl` (or .gz) | its lines: a BEIR set |
| any other folder | every `.txt` and `.md` in it, sorted by path |
| `.txt`, `.md` | the file is one document, as in a folder |
| `-` | standard input: JSON lines if the first one begins with `{`, else a document a line |
| a Python iterable | of str, dict, (id, text) or `Document` |

gz is recognised by content, except for Parquet. Everything is UTF-8.

**Fields.** An object, a dict and a row of a table are read alike. `_id`, or else `id`, is a str or
int; without one the id is the number of the line (of a Parquet row, counted from 1; of an element
of a Python iterable, its position, counted from 0). `text` is a str. `title`, a str, is put before
the text and stays in the metadata unless it is empty. All other fields are metadata, and the
fields of an object called `metadata` too; where both have a field, the outer one counts. Metadata
are JSON values without NaN and Infinity, nested at most `document.METADATA_DEPTH` levels.

**CSV.** A cell that looks like a plain number becomes one: `2020`, `-1.50`, `1e-05`. Texts stay
what has a leading zero or plus (`007`), more than 18 digits, or an exponent without a sign (`2E10`
may be the name of a gene); so do `true` and `false`. An empty cell is a missing field; a column
without a name is left out.

**Parquet.** Null is a missing field; dates and times become ISO texts, decimals floats.

**Folders.** The id is the path below the folder, with `/`, and stands in the metadata as `path`;
the first heading of a .md file as `title` (it is in the text already). Hidden files and folders
are skipped. Links to files are followed, links to folders are not, so there are no loops.

**Mistakes.** A bad line, row or file of a folder stops the reading or is reported and skipped, as
asked. What spoils the whole source (missing, truncated, no `text` column) always stops it. Ids
that repeat are the index's business.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from hplus.errors import InputError
from hplus.index.document import Document, document_of, shown
from hplus.index.source_lines import Lines, Report, documents_of, unzipped
from hplus.index.source_tables import parquet, table
from hplus.index.source_texts import TEXTS, text_file, tree

_JSON_LINES = (".jsonl", ".ndjson")
_TABLES = {".csv": ",", ".tsv": "\t"}


def read(
    source: str | os.PathLike[str] | Iterable[Any],
    *,
    on_error: Literal["stop", "skip"] = "stop",
    report: Report | None = None,
) -> Iterator[Document]:
    """The documents of a source; "skip" tells `report` what was wrong and goes on.

    >>> [document.id for document in read(["type 2 diabetes", {"id": "x", "text": "heart"}])]
    ['0', 'x']
    """
    if on_error not in ("stop", "skip"):
        raise InputError(f'on_error is "stop" or "skip", {on_error!r} came')
    if on_error == "skip" and report is None:
        raise InputError('on_error="skip" needs report=, a function told of what is skipped')
    bad: Report = report if on_error == "skip" and report is not None else _stop
    if isinstance(source, str) and source == "-":
        return _standard_input(bad)
    if isinstance(source, (str, os.PathLike)):
        return _path(Path(source), bad)
    single = isinstance(source, (bytes, Mapping, Document))
    if single or not isinstance(source, Iterable):
        raise InputError(
            "a file, a folder, - or a list of documents expected, "
            f"{type(source).__name__} came{'; put it in brackets' if single else ''}"
        )
    return _iterable(source, bad)


def _stop(message: str) -> None:
    raise InputError(message)


def _iterable(source: Iterable[Any], bad: Report) -> Iterator[Document]:
    position = -1

    def make(item: object) -> Document:
        nonlocal position
        position += 1
        if isinstance(item, Document):
            return item
        if isinstance(item, str):
            return Document(str(position), item.strip())
        if isinstance(item, Mapping):
            return document_of(item, position)
        if isinstance(item, (tuple, list)) and len(item) == 2:
            return document_of({"id": item[0], "text": item[1]}, position)
        raise InputError(f"str, dict, (id, text) or Document expected, {type(item).__name__} came")

    return documents_of(iter(source), make, lambda: f"documents[{position}]", bad)


def _standard_input(bad: Report) -> Iterator[Document]:
    if sys.stdin is None:
        raise InputError("standard input is closed")
    stream = sys.stdin.buffer
    lines = Lines(unzipped(stream) if isinstance(stream, io.BufferedReader) else stream)
    kind: Callable[[str, int], Document | None] | None = None

    def make(line: str) -> Document | None:
        nonlocal kind
        if kind is None and line.strip():
            kind = _from_json if line.lstrip().startswith("{") else _from_text
        return None if kind is None else kind(line, lines.number)

    name = "standard input"
    return _whole(name, documents_of(lines, make, lambda: f"{name}:{lines.number}", bad))


def _path(path: Path, bad: Report) -> Iterator[Document]:
    name = shown(str(path))
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{name} is missing; give a file, a folder, or - for input") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{name} cannot be read: {error}") from None
    if not stat.S_ISDIR(mode):
        return _whole(name, _file(path, bad))
    for corpus in (path / "corpus.jsonl", path / "corpus.jsonl.gz"):
        if corpus.is_file():
            return _whole(shown(str(corpus)), _file(corpus, bad))
    return tree(path, bad)


def _file(path: Path, bad: Report) -> Iterator[Document]:
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    name = shown(str(path))
    if suffix in TEXTS:
        yield from text_file(path, path.name, bad)
        return
    with path.open("rb") as raw:
        if suffix == ".parquet" or raw.peek(4)[:4] == b"PAR1":
            yield from parquet(path, bad)
            return
        stream = unzipped(raw)
        if suffix in _TABLES:
            yield from table(stream, name, _TABLES[suffix], bad)
            return
        if suffix not in _JSON_LINES:
            _check_content(name, stream)
        lines = Lines(stream)
        yield from documents_of(
            lines,
            lambda line: _from_json(line, lines.number),
            lambda: f"{name}:{lines.number}",
            bad,
        )


def _check_content(name: str, stream: io.BufferedReader) -> None:
    """A file whose name says nothing is taken for JSON lines if it begins like them."""
    head = stream.peek(4096).removeprefix(codecs.BOM_UTF8).lstrip()[:1]
    if head == b"[":
        raise InputError(f"{name} is a JSON list; write it as JSON lines, an object a line")
    if head != b"{":
        raise InputError(
            f"{name} is of no kind that can be read; expected .jsonl, .csv, .tsv, .parquet, .txt, "
            ".md or a folder"
        )


def _whole(name: str, documents: Iterator[Document]) -> Iterator[Document]:
    """What the system or gz says of a file, as one sentence."""
    try:
        yield from documents
    except EOFError:
        raise InputError(f"{name} is cut short: the gz file ends too early") from None
    except (zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{name} is damaged: {error}") from None
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror or error}") from None


def _from_text(text: str, number: int) -> Document | None:
    return Document(str(number), text.strip()) if text.strip() else None


def _from_json(line: str, number: int) -> Document | None:
    if not line.strip():
        return None
    try:
        value = _JSON.decode(line.rstrip())
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise InputError("the JSON is nested too deep") from None
    except InputError:
        raise
    except ValueError:
        raise InputError("the JSON has a number of too many digits") from None
    if not isinstance(value, dict):
        raise InputError(f"a JSON object is expected, {type(value).__name__} came")
    return document_of(value, number)


def _refuse_constant(name: str) -> None:
    raise InputError(f"{name} is not JSON")


_JSON = json.JSONDecoder(parse_constant=_refuse_constant)
