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
are JSON values without NaN and Infinity, nested at most `METADATA_DEPTH` levels.

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
import csv
import datetime
import decimal
import gzip
import importlib
import io
import json
import math
import os
import re
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias, TypeVar

from hplus.errors import InputError, MissingExtraError

LINE_BYTES = 64 * 2**20
"""The longest line, CSV cell or text file that is read into memory."""
ID_BYTES = 512
"""The longest id, in UTF-8."""
METADATA_DEPTH = 32
"""Levels of lists and objects in metadata, at most."""
BATCH = 1024
"""Rows of a Parquet file turned into Python at once."""

_JSON_LINES = (".jsonl", ".ndjson")
_TABLES = {".csv": ",", ".tsv": "\t"}
_TEXTS = (".txt", ".md")
_INTEGER_BITS = 1024  # the range of floats; filters compare the two
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(\.[0-9]+)?([eE][+-][0-9]+)?")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*")
_FENCE = re.compile(r" {0,3}(```|~~~)")

Report: TypeAlias = Callable[[str], None]
Row = TypeVar("Row")


@dataclass(frozen=True)
class Document:
    """A document on its way into an index; one that exists is fit for it.

    >>> Document("d1", "type 2 diabetes", {"year": 2021})
    Document(id='d1', text='type 2 diabetes', metadata={'year': 2021})
    """

    id: str
    text: str
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_id(self.id)
        if not isinstance(self.text, str):
            raise InputError(f"the text is {type(self.text).__name__}, expected str")
        _check_characters("the text", self.text)
        if not isinstance(self.metadata, dict):
            raise InputError(f"the metadata are {type(self.metadata).__name__}, expected dict")
        _check_value("", self.metadata, METADATA_DEPTH)


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


def _documents(
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


def _check_id(id: object) -> None:
    if not isinstance(id, str):
        raise InputError(f"the id is {type(id).__name__}, expected str")
    if not id:
        raise InputError("the id is empty")
    if _CONTROL.search(id):
        raise InputError(f"the id {_shown(id)!r} has a control character")
    _check_characters("the id", id)
    if len(id.encode()) > ID_BYTES:
        raise InputError(f"the id has {len(id.encode())} bytes, {ID_BYTES} are allowed")


def _check_characters(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        place = f"at character {error.start}"
        raise InputError(f"{what} has half a surrogate pair {place}, no character") from None


def _check_value(path: str, value: object, depth: int) -> None:
    """Metadata are what JSON can say."""
    name = f"metadata{path}"
    if isinstance(value, str):
        _check_characters(name, value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"{name} is {value}, which JSON does not know")
    elif isinstance(value, int):
        if value.bit_length() > _INTEGER_BITS:
            raise InputError(f"{name} is an integer of more than {_INTEGER_BITS} bits")
    elif isinstance(value, (dict, list)):
        if depth == 0:
            raise InputError(f"the metadata are nested more than {METADATA_DEPTH} levels deep")
        _check_elements(path, value, depth - 1)
    elif value is not None:
        raise InputError(f"{name} is {type(value).__name__}, expected a JSON value")


def _check_elements(path: str, value: dict[Any, Any] | list[Any], depth: int) -> None:
    if isinstance(value, list):
        for i, element in enumerate(value):
            _check_value(f"{path}[{i}]", element, depth)
        return
    for key, element in value.items():
        if not isinstance(key, str):
            raise InputError(f"metadata{path} has the key {key!r}, expected str")
        _check_characters(f"a key of metadata{path}", key)
        _check_value(f"{path}.{key}", element, depth)


def _from_fields(fields: Mapping[Any, Any], number: int) -> Document:
    """A document from an object, a dict or a row."""
    rest = dict(fields)
    id = rest.pop("_id") if "_id" in rest else rest.pop("id", number)
    if isinstance(id, int) and not isinstance(id, bool):
        id = str(id)
    title = rest.pop("title", None) or ""
    if not isinstance(title, str):
        raise InputError(f"the title is {type(title).__name__}, expected str")
    if "text" not in rest:
        raise InputError('it has no "text"')
    text = rest.pop("text")
    if not isinstance(text, str):
        raise InputError(f"the text is {type(text).__name__}, expected str")
    nested = rest.get("metadata", {})
    if nested is None or isinstance(nested, dict):
        rest.pop("metadata", None)
        rest = {**(nested or {}), **rest}
    if title:
        rest["title"] = title
    return Document(id, f"{title} {text}".strip(), rest)


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
    return _from_fields(value, number)


def _refuse_constant(name: str) -> None:
    raise InputError(f"{name} is not JSON")


_JSON = json.JSONDecoder(parse_constant=_refuse_constant)


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
            return _from_fields(item, position)
        if isinstance(item, (tuple, list)) and len(item) == 2:
            return _from_fields({"id": item[0], "text": item[1]}, position)
        raise InputError(f"str, dict, (id, text) or Document expected, {type(item).__name__} came")

    return _documents(iter(source), make, lambda: f"documents[{position}]", bad)


class _Lines:
    """The lines of a stream, decoded, with their ends; `number` is that of the last.

    An iterator, but no generator: after a bad line it goes on with the next.
    """

    def __init__(self, stream: IO[bytes], *, errors: str = "strict") -> None:
        self.stream = stream
        self.errors = errors
        self.number = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self.stream.readline(LINE_BYTES + 1)
        if not line:
            raise StopIteration
        self.number += 1
        if len(line) > LINE_BYTES:
            self.skip_rest(line)
            raise InputError(f"the line has more than {_megabytes(LINE_BYTES)}")
        return _decoded(line, first=self.number == 1, errors=self.errors)

    def skip_rest(self, line: bytes) -> None:
        while line and not line.endswith(b"\n"):
            line = self.stream.readline(2**20)


def _decoded(data: bytes, *, first: bool, errors: str = "strict") -> str:
    try:
        return data.decode("utf-8-sig" if first else "utf-8", errors)
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 ({error.reason} at byte {error.start + 1})") from None


def _megabytes(size: int) -> str:
    return f"{size / 2**20:.0f} MB" if size >= 2**20 else f"{size} bytes"


def _unzipped(stream: io.BufferedReader) -> io.BufferedReader:
    """The stream, unpacked if it begins as gz does."""
    if stream.peek(2)[:2] != b"\x1f\x8b":
        return stream
    return io.BufferedReader(gzip.GzipFile(fileobj=stream))


def _standard_input(bad: Report) -> Iterator[Document]:
    if sys.stdin is None:
        raise InputError("standard input is closed")
    stream = sys.stdin.buffer
    lines = _Lines(_unzipped(stream) if isinstance(stream, io.BufferedReader) else stream)
    kind: Callable[[str, int], Document | None] | None = None

    def make(line: str) -> Document | None:
        nonlocal kind
        if kind is None and line.strip():
            kind = _from_json if line.lstrip().startswith("{") else _from_text
        return None if kind is None else kind(line, lines.number)

    name = "standard input"
    return _whole(name, _documents(lines, make, lambda: f"{name}:{lines.number}", bad))


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


def _path(path: Path, bad: Report) -> Iterator[Document]:
    name = _shown(str(path))
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
            return _whole(_shown(str(corpus)), _file(corpus, bad))
    return _tree(path, bad)


def _file(path: Path, bad: Report) -> Iterator[Document]:
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    name = _shown(str(path))
    if suffix in _TEXTS:
        yield from _text_file(path, path.name, bad)
        return
    with path.open("rb") as raw:
        if suffix == ".parquet" or raw.peek(4)[:4] == b"PAR1":
            yield from _parquet(path, bad)
            return
        stream = _unzipped(raw)
        if suffix in _TABLES:
            yield from _table(stream, name, _TABLES[suffix], bad)
            return
        if suffix not in _JSON_LINES:
            _check_content(name, stream)
        lines = _Lines(stream)
        yield from _documents(
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


def _tree(folder: Path, bad: Report) -> Iterator[Document]:
    found = False
    for path, id in _walk(folder, bad):
        found = True
        yield from _text_file(path, id, bad)
    if not found:
        raise InputError(
            f"{_shown(str(folder))} has no .txt or .md file and no corpus.jsonl; "
            "give a .jsonl, .csv or .parquet file by its own name"
        )


def _walk(folder: Path, bad: Report) -> Iterator[tuple[Path, str]]:
    """The text files below a folder with their ids, in the order of the ids."""
    pending = [iter(_entries(folder, "", bad))]
    while pending:
        entry = next(pending[-1], None)
        if entry is None:
            pending.pop()
        elif entry[0].endswith("/"):
            pending.append(iter(_entries(entry[1], entry[0], bad)))
        else:
            yield entry[1], entry[0]


def _entries(folder: Path, prefix: str, bad: Report) -> list[tuple[str, Path]]:
    """Text files and folders, these with a / at the end, so that they sort as their files do."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    found.append((f"{prefix}{entry.name}/", Path(entry.path)))
                elif _is_text_file(entry):
                    found.append((f"{prefix}{entry.name}", Path(entry.path)))
    except OSError as error:
        bad(f"{_shown(str(folder))}: cannot be read: {error.strerror}")
    return sorted(found)


def _is_text_file(entry: os.DirEntry[str]) -> bool:
    if Path(entry.name).suffix.lower() not in _TEXTS:
        return False
    try:
        return stat.S_ISREG(entry.stat().st_mode)
    except OSError:
        return True  # a link that leads nowhere; told when it is opened


def _text_file(path: Path, id: str, bad: Report) -> Iterator[Document]:
    def make(path: Path) -> Document:
        text = _decoded(_content(path), first=True)
        title = _first_heading(text) if Path(id.removesuffix(".gz")).suffix.lower() == ".md" else ""
        return Document(id, text.strip(), {"path": id} | ({"title": title} if title else {}))

    return _documents(iter([path]), make, lambda: _shown(str(path)), bad)


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as raw:
            content = _unzipped(raw).read(LINE_BYTES + 1)
    except EOFError:
        raise InputError("cut short: the gz file ends too early") from None
    except (OSError, zlib.error) as error:
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > LINE_BYTES:
        raise InputError(f"the file has more than {_megabytes(LINE_BYTES)}")
    return content


def _first_heading(text: str) -> str:
    """The first heading of a Markdown text; what looks like one in a block of code is none."""
    fenced = False
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and (heading := _HEADING.fullmatch(line)) and heading.group(1):
            return heading.group(1)
    return ""


class _Rows:
    """The rows of a table; `number` is the line where the last one begins.

    Bytes that are not UTF-8 go through the reader in disguise, so that it keeps count of the
    quotes around them and the whole row is refused, not a part of it.
    """

    def __init__(self, stream: IO[bytes], delimiter: str) -> None:
        self.lines = _Lines(stream, errors="surrogateescape")
        self.number = 0
        # strict: a quote that is never closed is an error, not a row as long as the file.
        self.reader = csv.reader(self.lines, delimiter=delimiter, strict=True)

    def __iter__(self) -> _Rows:
        return self

    def __next__(self) -> list[str]:
        self.number = self.lines.number + 1
        try:
            row = next(self.reader)
        except csv.Error as error:
            raise InputError(f"not CSV: {error}") from None
        for i, cell in enumerate(row, start=1):
            try:
                cell.encode()
            except UnicodeEncodeError:
                raise InputError(f"field {i} is not UTF-8") from None
        return row


def _table(stream: IO[bytes], name: str, delimiter: str, bad: Report) -> Iterator[Document]:
    csv.field_size_limit(max(csv.field_size_limit(), LINE_BYTES))
    rows = _Rows(stream, delimiter)
    columns = _header(rows, name)
    id = "_id" if "_id" in columns else "id"

    def make(row: list[str]) -> Document | None:
        if not row:
            return None
        if len(row) != len(columns):
            raise InputError(f"the row has {len(row)} fields, the header {len(columns)}")
        fields: dict[str, Any] = {}
        for column, cell in zip(columns, row, strict=True):
            if column in (id, "title", "text"):
                fields[column] = cell
            elif column and cell:
                fields[column] = _number_or_text(cell)
        return _from_fields(fields, rows.number)

    return _documents(rows, make, lambda: f"{name}:{rows.number}", bad)


def _header(rows: _Rows, name: str) -> list[str]:
    try:
        header = next((row for row in rows if row), None)
    except InputError as error:
        raise InputError(f"{name}:{rows.number}: {error}") from None
    if header is None:
        raise InputError(f"{name} is empty; a header line is expected that names the column text")
    columns = [column.strip() for column in header]
    _check_columns(name, columns)
    for column in columns:
        if column and columns.count(column) > 1:
            raise InputError(f"{name} has two columns called {column!r}")
    return columns


def _check_columns(name: str, columns: list[str]) -> None:
    if "text" not in columns:
        named = ", ".join(map(repr, columns[:20]))
        raise InputError(f"{name} has no column 'text'; its columns are {named}")


def _number_or_text(cell: str) -> str | int | float:
    """
    >>> [_number_or_text(cell) for cell in ("2020", "-1.50", "1e-05", "007", "2E10")]
    [2020, -1.5, 1e-05, '007', '2E10']
    """
    found = _NUMBER.fullmatch(cell)
    if found is None:
        return cell
    if found.group(1) is None and found.group(2) is None:
        return int(cell)
    number = float(cell)
    return number if math.isfinite(number) else cell


def _parquet(path: Path, bad: Report) -> Iterator[Document]:
    name = _shown(str(path))
    try:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise MissingExtraError(f"to read {name}, run: pip install hplus[parquet]") from None
    number = 0

    def make(row: dict[str, Any]) -> Document:
        nonlocal number
        number += 1
        return _from_fields(_row_of_parquet(row), number)

    try:
        with parquet.ParquetFile(path) as file:
            _check_columns(name, file.schema_arrow.names)
            batches = (_in_microseconds(arrow, batch) for batch in file.iter_batches(BATCH))
            rows = (row for batch in batches for row in batch.to_pylist())
            yield from _documents(rows, make, lambda: f"{name}:{number}", bad)
    except InputError:
        raise
    except (arrow.ArrowException, OSError, ValueError, OverflowError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{name} cannot be read as Parquet: {reason}") from None


def _in_microseconds(arrow: Any, batch: Any) -> Any:
    """Python's times have no nanoseconds."""
    fields = [
        field.with_type(arrow.timestamp("us", field.type.tz))
        if arrow.types.is_timestamp(field.type) and field.type.unit == "ns"
        else field
        for field in batch.schema
    ]
    columns = [
        column.cast(field.type, safe=False)
        for column, field in zip(batch.columns, fields, strict=True)
    ]
    return arrow.RecordBatch.from_arrays(columns, schema=arrow.schema(fields))


def _row_of_parquet(row: dict[str, Any]) -> dict[str, Any]:
    """What a row holds; a missing id is kept as a mistake, pandas' index left out."""
    return {
        name: _json_value(value)
        for name, value in row.items()
        if (value is not None or name in ("_id", "id"))
        and name
        and not name.startswith("__index_level_")
    }


def _json_value(value: Any) -> Any:
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, (list, tuple)):
        return [_json_value(element) for element in value]
    if isinstance(value, dict):
        return {key: _json_value(element) for key, element in value.items()}
    return value


def _shown(name: str) -> str:
    """A name that can be printed; file names may hold bytes that are no text."""
    return name.encode(errors="backslashreplace").decode()
