"""Documents from the rows of tables: CSV, TSV, Parquet, and those in memory: pandas, Arrow, polars
(see `sources.read`)."""

from __future__ import annotations

import contextlib
import csv
import datetime
import decimal
import importlib
import io
import math
import re
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from hplus.errors import InputError, MissingExtraError
from hplus.files import LINE_BYTES, Lines, megabytes, shown
from hplus.sources.columns import Chosen, Columns, of_header
from hplus.sources.document import (
    Complain,
    Document,
    Place,
    document_of,
    documents_of,
    parse_json,
)

BATCH = 1024
"""Rows of a Parquet file or a DataFrame turned into Python at once."""
DELIMITERS = ",;\t|"
"""What a header is searched for."""
HEADER_CHARACTERS = 65_536
"""A header with line ends in its names is read this far, to see what separates them."""

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(\.[0-9]+)?([eE][+-][0-9]+)?")


def table(
    stream: IO[bytes], name: str, usual: str, columns: Columns, bad: Complain
) -> Iterator[tuple[Document, Place]]:
    """Every row of a CSV file but its header is a document; usual: the delimiter, if the header
    does not tell."""
    rows = _Rows(stream, usual, columns)
    header, chosen = _header(rows, name, columns)
    verbatim = {*chosen.texts, chosen.title, chosen.id}

    def make(row: list[str]) -> Document | None:
        if not row:
            return None
        if len(row) != len(header):
            raise InputError(f"the row has {len(row)} fields, the header has {len(header)}")
        fields: dict[str, Any] = {}
        for column, cell in zip(header, row, strict=True):
            if column in verbatim:
                fields[column] = cell
            elif column and cell:
                fields[column] = _number_or_text(cell)
        return document_of(fields, columns)

    return documents_of(rows, make, lambda: f"{name}:{rows.number}", bad)


def table_rows(stream: IO[bytes], usual: str, columns: Columns) -> int:
    """Rows of a CSV file below its header, bad ones included."""
    rows, found = _Rows(stream, usual, columns), 0
    while True:
        try:
            found += bool(next(rows))
        except StopIteration:
            return max(0, found - 1)
        except InputError:
            found += 1


class _Rows:
    """The rows of a table; `number` is the line where the last one begins.

    Bytes that are not UTF-8 pass through the reader as surrogates, so that it sees the quotes
    around them and the whole row is refused, not a part of it.
    """

    def __init__(self, stream: IO[bytes], usual: str, columns: Columns) -> None:
        csv.field_size_limit(max(csv.field_size_limit(), LINE_BYTES))
        self.lines = Lines(stream, errors="surrogateescape")
        self.number = 0
        self.passed = 0
        self.characters = 0
        # The lines of the header, or the error that ended them, until the reader takes them.
        self.ahead: deque[str | InputError] = deque()
        delimiter = columns.delimiter or self._sniffed(usual, columns)
        # strict: a quote that is never closed is an error, not a row as long as the file.
        self.reader = csv.reader(self._fed(), delimiter=delimiter, strict=True)

    def __iter__(self) -> _Rows:
        return self

    def __next__(self) -> list[str]:
        self.number = self.passed + 1
        self.characters = 0
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

    def _sniffed(self, usual: str, columns: Columns) -> str:
        """The delimiter that occurs most often in the header, outside of quotes; of those that do,
        one that gives the columns of the text."""
        header = ""
        while not header or (header.count('"') % 2 and len(header) < HEADER_CHARACTERS):
            try:
                line = next(self.lines, None)
            except InputError as error:
                self.ahead.append(error)
                return usual
            if line is None:
                break
            self.ahead.append(line)
            header += line if header else line.lstrip()
        bare = re.sub('"[^"]*"', "", header)
        marks: list[str] = sorted(
            {usual, *DELIMITERS}, key=lambda mark: (-bare.count(mark), mark != usual)
        )
        for mark in marks:
            with contextlib.suppress(csv.Error, InputError, StopIteration):
                cells = next(csv.reader(io.StringIO(header, newline=""), delimiter=mark))
                of_header("", [cell.strip() for cell in cells], columns)
                return mark
        return marks[0]

    def _fed(self) -> Iterator[str]:
        return iter(self._next_line, None)

    def _next_line(self) -> str | None:
        line = self.ahead.popleft() if self.ahead else next(self.lines, None)
        if line is None:
            return None
        self.passed += 1
        if isinstance(line, InputError):
            raise line
        self.characters += len(line)
        if self.characters > LINE_BYTES:  # a row of many cells with line ends in them
            raise InputError(f"the row has more than {megabytes(LINE_BYTES)}")
        return line


def _header(rows: _Rows, name: str, columns: Columns) -> tuple[list[str], Chosen]:
    try:
        header = next((row for row in rows if row), None)
    except InputError as error:
        raise InputError(f"{name}:{rows.number}: {error}") from None
    if header is None:
        raise InputError(
            f"{name} is empty, expected a header line with a column {columns.texts[0]!r}"
        )
    names = [column.strip() for column in header]
    return names, of_header(name, names, columns)


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


def parquet(path: Path, columns: Columns, bad: Complain) -> Iterator[tuple[Document, Place]]:
    """Every row of a Parquet file is a document."""
    name = shown(path)
    try:
        arrow: Any = importlib.import_module("pyarrow")
        reader: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise MissingExtraError(f"to read {name}, run: pip install 'hplus[parquet]'") from None
    number = 0

    def make(row: dict[str, Any]) -> Document:
        nonlocal number
        number += 1
        for column in of_json:
            if isinstance(row.get(column), str):
                row[column] = parse_json(row[column])
        return document_of(row, columns)

    try:
        with reader.ParquetFile(path) as file:
            kinds = zip(file.schema_arrow.names, file.schema_arrow.types, strict=True)
            of_json = [name for name, kind in kinds if str(kind) == "extension<arrow.json>"]
            chosen = of_header(name, file.schema_arrow.names, columns)
            rows = _arrow_rows(arrow, file.iter_batches(BATCH), chosen)
            yield from documents_of(rows, make, lambda: f"{name}:{number}", bad)
    except InputError:
        raise
    except (arrow.ArrowException, OSError, ValueError, OverflowError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"cannot read {name} as Parquet: {reason}") from None


def parquet_rows(path: Path) -> int:
    """Rows of a Parquet file, from its footer."""
    reader: Any = importlib.import_module("pyarrow.parquet")
    with reader.ParquetFile(path) as file:
        return int(file.metadata.num_rows)


def rows_in_memory(source: Any, columns: Columns) -> Iterator[dict[str, Any]] | None:
    """The rows of a table of pandas, Arrow or polars; None if it is something else.

    Such tables iterate over their columns, or over the names of them.
    """
    name = f"the {type(source).__name__}"
    if hasattr(source, "iloc") and hasattr(source, "columns"):  # pandas; a Series has no columns
        frame = source.reset_index() if any(source.index.names) else source
        return _fields(_pandas_rows(frame), of_header(name, list(frame.columns), columns))
    schema: Any = getattr(source, "schema", None)
    if schema is not None and hasattr(source, "iter_rows"):  # polars
        chosen = of_header(name, list(source.columns), columns)
        return _fields(source.iter_rows(named=True), chosen)
    if hasattr(source, "to_batches"):
        batches = source.to_batches()
    elif hasattr(source, "read_next_batch"):
        batches = source
    elif hasattr(source, "num_columns"):
        batches = [source]
    else:
        return None
    chosen = of_header(name, schema.names, columns)
    return _arrow_rows(importlib.import_module("pyarrow"), batches, chosen)


def _pandas_rows(frame: Any) -> Iterator[dict[str, Any]]:
    for first in range(0, len(frame), BATCH):
        part = frame.iloc[first : first + BATCH]
        yield from part.astype(object).where(part.notna(), None).to_dict("records")


def _arrow_rows(arrow: Any, batches: Iterable[Any], chosen: Chosen) -> Iterator[dict[str, Any]]:
    for batch in batches:
        for first in range(0, batch.num_rows, BATCH):
            part = _in_microseconds(arrow, batch.slice(first, BATCH))
            yield from _fields(part.to_pylist(), chosen)


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


def _fields(rows: Iterable[dict[Any, Any]], chosen: Chosen) -> Iterator[dict[Any, Any]]:
    """The fields of each row without nulls and pandas' index; a null id stays, to be refused."""
    for row in rows:
        yield {
            name: _json_value(value)
            for name, value in row.items()
            if (value is not None or name == chosen.id)
            and name != ""
            and not str(name).startswith("__index_level_")
        }


def _json_value(value: Any) -> Any:
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return float(value)
    if hasattr(value, "tolist"):  # numpy's arrays and scalars
        return _json_value(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_json_value(element) for element in value]
    if isinstance(value, dict):
        return {key: _json_value(element) for key, element in value.items()}
    return value
