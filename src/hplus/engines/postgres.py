"""PostgreSQL with pgvector: candidates there, exact scores here.

A schema of five tables: `note`, what hplus noted about it; `documents`, texts, metadata and what
explains a score; `global`, one vector each; `units`, a row for each unit vector; `words`, a row for
each token of a document. pgvector has no MaxSim, so the phrase view is written in SQL: the best
unit of each document for every unit of the query, weighted and added up; a budget leaves out rows,
a width cuts and renormalises vectors there. Every view scans what the filter lets through. What is
best there is scored again here, by the arithmetic of the embedded engine.

Filters are decided here, too: PostgreSQL's JSON compares numbers, texts and lists otherwise than
ours do. The metadata of all documents are read for each filter, and those that pass are named.

Left out: pgvector's indexes. They would make the global view sublinear, but not MaxSim, which then
takes the time; an engine for millions of documents is Qdrant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from threading import Lock
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import numpy as np

from hplus.arguments import as_ids
from hplus.engines.address import Address
from hplus.engines.explained import coverage, explained, units
from hplus.engines.scoring import phrase_scores
from hplus.engines.store import Held, Named, StoreStats, digest
from hplus.errors import (
    IndexDamagedError,
    InputError,
    MissingDocumentError,
    MissingExtraError,
    ServiceError,
)
from hplus.filters.ast import Filter, matches
from hplus.search.engine import Candidates, best
from hplus.search.met import Met
from hplus.sources.document import Document
from hplus.storage.catalogue import Settings, dump, text_hash
from hplus.types import F32, F64, I32, I64, Encoded, Lexical, offsets_of
from hplus.units.select import Budget
from hplus.views import lexical, phrase

try:
    import psycopg
    from psycopg import sql
except ImportError:
    raise MissingExtraError("to use PostgreSQL, run: pip install hplus[postgres]") from None

VERSION = 1
# Of a schema whose settings have a mean, which a pulled index rounds with.
WITH_MEAN = 2
TIMEOUT = 30.0
# Rows that are read at a time.
MANY = 1_000
# Scores that the database and we compute differ by less.
MARGIN = 1e-5

TABLES = """
CREATE TABLE {schema}.note (value TEXT NOT NULL);
CREATE TABLE {schema}.documents (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT NOT NULL UNIQUE, text TEXT NOT NULL, metadata TEXT NOT NULL,
    hash BYTEA NOT NULL, digest TEXT NOT NULL, explained TEXT NOT NULL
);
CREATE TABLE {schema}.global (
    document BIGINT PRIMARY KEY REFERENCES {schema}.documents ON DELETE CASCADE,
    vector vector({global_width}) NOT NULL
);
CREATE TABLE {schema}.units (
    document BIGINT NOT NULL REFERENCES {schema}.documents ON DELETE CASCADE,
    rank INTEGER NOT NULL, vector vector({width}) NOT NULL,
    PRIMARY KEY (document, rank)
);
CREATE TABLE {schema}.words (
    token INTEGER NOT NULL,
    document BIGINT NOT NULL REFERENCES {schema}.documents ON DELETE CASCADE,
    weight REAL NOT NULL,
    PRIMARY KEY (token, document)
);
CREATE INDEX ON {schema}.words (document);
"""


def open_store(address: Address) -> Schema:
    """A schema that hplus made."""
    with ExitStack() as stack:
        connection = Connection(address)
        stack.callback(connection.close)
        schema = Schema(connection, _note(connection))
        problems = schema.problems()
        if problems:
            raise IndexDamagedError(
                f"{schema.place} was changed since hplus made it: {problems[0]}; restore it, or "
                "push the documents to a new schema"
            )
        stack.pop_all()
    return schema


def exists(address: Address) -> bool:
    """Whether there is a schema of this name."""
    connection = Connection(address)
    try:
        return connection.has_schema()
    finally:
        connection.close()


def _note(connection: Connection) -> dict[str, Any]:
    """What hplus noted when it made the schema."""
    if not connection.has_schema():
        raise InputError(
            f"{connection.place} does not exist; hplus push INDEX {connection.place} makes it"
        )
    try:
        ((value,),) = connection.rows("SELECT value FROM {schema}.note")
        note: dict[str, Any] = json.loads(value)
        version = note["version"]
    except (ServiceError, ValueError, KeyError):
        raise InputError(f"{connection.place} was not made by hplus, or was damaged") from None
    if version not in (VERSION, WITH_MEAN):
        raise InputError(
            f"{connection.place} has format {version}, this hplus reads {VERSION} and "
            f"{WITH_MEAN}; update hplus"
        )
    return note


def create_store(address: Address, settings: Settings, terms: Sequence[str]) -> Schema:
    """A new schema, made as a whole or not at all."""
    note = {
        "version": VERSION if settings.mean is None else WITH_MEAN,
        "settings": {**asdict(settings), "fusion": dict(settings.fusion)},
        "terms": list(terms),
    }
    widths = {"width": settings.width, "global_width": settings.global_width}
    with ExitStack() as stack:
        connection = Connection(address)
        stack.callback(connection.close)
        if connection.has_schema():
            raise InputError(
                f"{connection.place} exists already; connect to it, or choose another name"
            )
        with connection.change() as cursor:
            cursor.execute("CREATE EXTENSION IF NOT EXISTS vector")
            cursor.execute(connection.named("CREATE SCHEMA {schema}"))
            for statement in TABLES.split(";")[:-1]:
                cursor.execute(connection.named(statement, **widths))
            insert = connection.named("INSERT INTO {schema}.note VALUES (%s)")
            cursor.execute(insert, [json.dumps(note)])
        stack.pop_all()
    return Schema(connection, note)


class Connection:
    """One connection, whose statements are one at a time; what fails is one sentence.

    If it is lost, the statement under way fails, and the next one connects again.
    """

    def __init__(self, address: Address) -> None:
        parts = urlsplit(address.url)
        options = dict(parse_qsl(parts.query))
        self.schema = options.pop("schema", "hplus")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", self.schema):
            raise InputError(f"expected schema to be a plain name, got {self.schema!r}")
        self.timeout = address.number("timeout", TIMEOUT)
        options.pop("timeout", None)
        self.place = f"{address}?schema={self.schema}"
        self.address = address
        self._url = urlunsplit(parts._replace(query=urlencode(options)))
        self._lock = Lock()
        self._ended = False
        with self._told():
            self._connection = self._connected()

    def _connected(self) -> Any:
        made = psycopg.connect(
            self._url, autocommit=True, connect_timeout=max(2, int(self.timeout))
        )
        made.execute(f"SET statement_timeout = {int(1000 * self.timeout)}".encode())
        return made

    @contextmanager
    def _alone(self) -> Iterator[Any]:
        """The connection, for one block at a time."""
        with self._lock, self._told():
            if self._connection.closed and not self._ended:
                self._connection = self._connected()
            yield self._connection

    def named(self, statement: str, **widths: int) -> Any:
        """A statement with the name of the schema in it."""
        values = {name: sql.Literal(value) for name, value in widths.items()}
        return sql.SQL(statement).format(schema=sql.Identifier(self.schema), **values)

    def has_schema(self) -> bool:
        """Whether there is a schema of this name."""
        return bool(self.rows("SELECT 1 FROM pg_namespace WHERE nspname = %s", [self.schema]))

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """What a query gives; bytes come as they are."""
        with self._alone() as connection:
            found: list[Any] = connection.execute(
                self.named(statement), values, binary=True
            ).fetchall()
            return found

    @contextmanager
    def change(self) -> Iterator[Any]:
        """A block of statements that is committed as a whole, or did not happen."""
        with self._alone() as connection, connection.transaction():
            yield connection.cursor()

    def close(self) -> None:
        """Close the connection."""
        self._ended = True
        self._connection.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except psycopg.errors.QueryCanceled:
            raise ServiceError(
                f"{self.place} gave no answer within {self.timeout:g} seconds; try again, or allow "
                "more time with timeout=SECONDS"
            ) from None
        except psycopg.errors.FeatureNotSupported as error:
            raise ServiceError(
                f"{self.place} lacks what hplus needs: {_line(error)}; install pgvector there"
            ) from None
        except psycopg.OperationalError as error:
            raise ServiceError(f"{self.place} cannot be reached: {_line(error)}") from None
        except psycopg.Error as error:
            raise ServiceError(f"{self.place} refuses: {_line(error)}") from None


class Schema:
    """Made by `open_store` or `create_store`."""

    def __init__(self, connection: Connection, note: dict[str, Any]) -> None:
        self.connection, self._note = connection, note
        self.address = connection.address
        rows = dict(note["settings"])
        self._settings = Settings(**{**rows, "budget": Budget(**rows["budget"])})

    @property
    def place(self) -> str:
        """Its address, without a password."""
        return self.connection.place

    @property
    def settings(self) -> Settings:
        """Widths, budget, fusion and model."""
        return self._settings

    @property
    def terms(self) -> list[str]:
        """The terminology that it was made with."""
        return list(self._note["terms"])

    def engine(self) -> PostgresEngine:
        """The schema as one search sees it."""
        return PostgresEngine(self)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def count(self, where: Filter | None = None) -> int:
        """How many documents there are, or pass a filter."""
        if where is not None:
            return len(self.passing(where))
        return int(self.connection.rows("SELECT count(*) FROM {schema}.documents")[0][0])

    def passing(self, where: Filter) -> list[int]:
        """The numbers of the documents that pass a filter."""
        found = self.connection.rows("SELECT number, id, metadata FROM {schema}.documents")
        return [number for number, id_, own in found if matches(where, id_, json.loads(own))]

    def held(self, ids: Sequence[str]) -> dict[str, Held]:
        """Those of these documents that are stored."""
        found = self._by_id("id, hash, metadata, digest", ids)
        return {id_: Held(bytes(hashed), json.loads(own), one) for id_, hashed, own, one in found}

    def documents(self, ids: Sequence[str]) -> dict[str, Document]:
        """The same with their texts."""
        found = self._by_id("id, text, metadata", ids)
        return {id_: Document(id_, text, json.loads(own)) for id_, text, own in found}

    def _by_id(self, columns: str, ids: Sequence[str]) -> list[Any]:
        return self.connection.rows(
            f"SELECT {columns} FROM {{schema}}.documents WHERE id = ANY(%s)", [list(ids)]
        )

    def pages(self, size: int) -> Iterator[list[str]]:
        """The ids of all documents in the order in which they were added, some at a time."""
        after = 0
        while True:
            found = self.connection.rows(
                "SELECT number, id FROM {schema}.documents WHERE number > %s "
                "ORDER BY number LIMIT %s",
                [after, size],
            )
            if not found:
                return
            yield [id_ for _, id_ in found]
            after = found[-1][0]

    def read(self, ids: Sequence[str]) -> Encoded:
        """Stored encodings in this order."""
        numbers = dict(self._by_id("id, number", ids))
        return self.read_numbers([numbers[id_] for id_ in ids])

    def read_numbers(self, numbers: Sequence[int]) -> Encoded:
        """The same by numbers."""
        rows, wanted = self.connection.rows, [list(numbers)]
        texts = dict(
            rows("SELECT number, explained FROM {schema}.documents WHERE number = ANY(%s)", wanted)
        )
        if len(texts) < len(set(numbers)):
            raise ServiceError(f"{self.place} was changed during the search; search again")
        whole = dict(
            rows(
                "SELECT document, vector_send(vector) FROM {schema}.global "
                "WHERE document = ANY(%s)",
                wanted,
            )
        )
        unit_rows = dict(
            rows(
                "SELECT document, string_agg(vector_send(vector), '' ORDER BY rank) "
                "FROM {schema}.units WHERE document = ANY(%s) GROUP BY document",
                wanted,
            )
        )
        words: dict[int, list[tuple[int, float]]] = {number: [] for number in numbers}
        for number, token, weight in rows(
            "SELECT document, token, weight FROM {schema}.words WHERE document = ANY(%s) "
            "ORDER BY document, token",
            wanted,
        ):
            words[number].append((token, weight))
        kept = [json.loads(texts[number]) for number in numbers]
        pairs = [pair for number in numbers for pair in words[number]]
        vectors = b"".join(unit_rows.get(number, b"") for number in numbers)
        return Encoded(
            global_=_vectors(
                b"".join(whole[number] for number in numbers), self.settings.global_width
            ),
            units=units(_vectors(vectors, self.settings.width), kept),
            lexical=Lexical(
                ids=np.array([token for token, _ in pairs], np.int32),
                weights=np.array([weight for _, weight in pairs], np.float32),
                offsets=offsets_of([len(words[number]) for number in numbers]),
            ),
            dropped=units(None, kept, "dropped_"),
            coverage=coverage(kept),
        )

    def write(self, documents: Sequence[Document], encoded: Encoded) -> None:
        """Put documents in, in place of those with their ids, all or nothing."""
        ids = [document.id for document in documents]
        with self.connection.change() as cursor:
            named = self.connection.named
            cursor.execute(named("DELETE FROM {schema}.documents WHERE id = ANY(%s)"), [ids])
            numbers = []
            for i, document in enumerate(documents):
                cursor.execute(
                    named(
                        "INSERT INTO {schema}.documents "
                        "(id, text, metadata, hash, digest, explained) "
                        "VALUES (%s, %s, %s, %s, %s, %s) RETURNING number"
                    ),
                    [
                        document.id,
                        document.text,
                        dump(document.metadata),
                        text_hash(document.text),
                        digest(encoded, i),
                        explained(encoded, i),
                    ],
                )
                numbers.append(cursor.fetchone()[0])
            with cursor.copy(named("COPY {schema}.global (document, vector) FROM STDIN")) as out:
                for number, row in zip(numbers, encoded.global_, strict=True):
                    out.write_row((number, _text(row)))
            with cursor.copy(
                named("COPY {schema}.units (document, rank, vector) FROM STDIN")
            ) as out:
                for i, number in enumerate(numbers):
                    first, last = encoded.units.offsets[i : i + 2].tolist()
                    for rank in range(first, last):
                        out.write_row((number, rank - first, _text(encoded.units.vectors[rank])))
            with cursor.copy(
                named("COPY {schema}.words (token, document, weight) FROM STDIN")
            ) as out:
                for i, number in enumerate(numbers):
                    first, last = encoded.lexical.offsets[i : i + 2].tolist()
                    for row in range(first, last):
                        weight = repr(float(encoded.lexical.weights[row]))
                        out.write_row((int(encoded.lexical.ids[row]), number, weight))

    def set_metadata(self, metadata: Mapping[str, dict[str, Any]]) -> None:
        """Other metadata of documents that exist, all or nothing."""
        statement = "UPDATE {schema}.documents SET metadata = %s WHERE id = %s"
        with self.connection.change() as cursor:
            rows = [(dump(own), id_) for id_, own in metadata.items()]
            cursor.executemany(self.connection.named(statement), rows)

    def delete(self, ids: Sequence[str]) -> int:
        """Delete these documents; returns how many there were."""
        return self._delete("id = ANY(%s)", list(ids))

    def delete_where(self, where: Filter) -> int:
        """Delete the documents that pass a filter; returns how many there were."""
        return self._delete("number = ANY(%s)", self.passing(where))

    def _delete(self, condition: str, chosen: list[Any]) -> int:
        statement = f"DELETE FROM {{schema}}.documents WHERE {condition}"
        with self.connection.change() as cursor:
            cursor.execute(self.connection.named(statement), [chosen])
            return int(cursor.rowcount)

    def drop(self) -> None:
        """Delete the schema and everything in it."""
        with self.connection.change() as cursor:
            cursor.execute(self.connection.named("DROP SCHEMA {schema} CASCADE"))

    def stats(self) -> StoreStats:
        """What the server says of the schema."""
        ((version,),) = self.connection.rows("SHOW server_version")
        ((vector,),) = self.connection.rows(
            "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
        )
        figures: dict[str, int | str] = {"pgvector": vector}
        for name, size in self.connection.rows(
            "SELECT relname, pg_total_relation_size(c.oid) FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = %s AND relkind = 'r'",
            [self.connection.schema],
        ):
            figures[f"{name}_bytes"] = int(size)
        return StoreStats(self.count(), f"PostgreSQL {version}", figures)

    def problems(self) -> list[str]:
        """What is not as hplus made it, a sentence each."""
        found = {
            (table, column): kind
            for table, column, kind in self.connection.rows(
                "SELECT relname, attname, format_type(atttypid, atttypmod) FROM pg_attribute "
                "JOIN pg_class c ON c.oid = attrelid JOIN pg_namespace n ON n.oid = relnamespace "
                "WHERE nspname = %s AND attnum > 0 AND NOT attisdropped AND relkind = 'r'",
                [self.connection.schema],
            )
        }
        expected = {
            ("documents", "text"): "text",
            ("global", "vector"): f"vector({self.settings.global_width})",
            ("units", "vector"): f"vector({self.settings.width})",
            ("words", "weight"): "real",
        }
        return [
            f"{table}.{column} is {found.get((table, column), 'missing')}, expected {kind}"
            for (table, column), kind in expected.items()
            if found.get((table, column)) != kind
        ]


class PostgresEngine:
    """A schema as one search sees it; documents have the numbers of their rows."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    @property
    def settings(self) -> Settings:
        """Widths, budget and default fusion weights."""
        return self.schema.settings

    def branches(
        self,
        query: Encoded,
        *,
        where: Filter | None = None,
        budget: int | None = None,
        exact: bool = False,
        threads: int = 1,
    ) -> PostgresBranches:
        """See `Engine.branches`; threads are the server's own affair."""
        del threads
        return PostgresBranches(self, query, where, budget=budget, exact=exact)

    def find(self, ids: Sequence[str]) -> I64:
        """Documents by their ids."""
        ids = as_ids(ids)
        found = dict(self.schema._by_id("id, number", ids))
        missing = [id_ for id_ in ids if id_ not in found]
        if missing:
            raise MissingDocumentError(f"no document {missing[0]!r} in the index")
        return np.array([found[id_] for id_ in ids], np.int64)

    def passages(self, documents: I64) -> tuple[I64, I64]:
        """A schema keeps whole documents."""
        return documents, np.arange(len(documents) + 1)

    def rows(self, documents: I64) -> list[Named]:
        """Id, text and metadata."""
        found = {
            number: Named(id_, text, json.loads(own))
            for number, id_, text, own in self._by_number("number, id, text, metadata", documents)
        }
        return [found[number] for number in self._there(documents, found)]

    def ids(self, documents: I64) -> list[str]:
        """Their ids alone."""
        found = dict(self._by_number("number, id", documents))
        return [found[number] for number in self._there(documents, found)]

    def read(self, documents: I64, tokens: I32 | None) -> Encoded:
        """Stored encodings, with all of their words."""
        del tokens
        return self.schema.read_numbers(documents.tolist())

    def _by_number(self, columns: str, documents: I64) -> list[Any]:
        return self.schema.connection.rows(
            f"SELECT {columns} FROM {{schema}}.documents WHERE number = ANY(%s)",
            [documents.tolist()],
        )

    def _there(self, documents: I64, found: Mapping[int, Any]) -> list[int]:
        numbers: list[int] = documents.tolist()
        if any(number not in found for number in numbers):
            raise ServiceError(f"{self.schema.place} was changed during the search; search again")
        return numbers


class PostgresBranches:
    """One query over the documents that a filter lets through."""

    def __init__(
        self,
        engine: PostgresEngine,
        query: Encoded,
        where: Filter | None,
        *,
        budget: int | None,
        exact: bool,
    ) -> None:
        self.engine, self.query, self.budget, self.exact = engine, query, budget, exact
        self.passing = None if where is None else engine.schema.passing(where)
        self._met = Met(self._score)

    def leaders(self, alphas: Mapping[str, float], pools: Mapping[str, int], k: int) -> I64 | None:
        """See `Branches.leaders`: candidates are united."""
        del alphas, pools, k
        return None

    def candidates(self, view: str, k: int) -> Candidates:
        """See `Branches.candidates`: the database names documents, their scores are ours."""
        scored, values = getattr(self, f"_{view}")()
        found = self.engine.schema.connection.rows(
            f"WITH scored AS ({scored}) SELECT document FROM scored WHERE score >= coalesce("
            "(SELECT score FROM scored ORDER BY score DESC OFFSET %s LIMIT 1), '-infinity') - %s",
            [*values, k - 1, MARGIN],
        )
        documents = np.sort(np.array([number for (number,) in found], np.int64))
        scores = self.scores(view, documents)
        if view == "lexical":
            documents, scores = documents[scores > 0], scores[scores > 0]
        chosen = best(self.engine, documents, scores, k)
        return Candidates(documents[chosen], scores[chosen], "exact")

    def scores(self, view: str, documents: I64) -> F64:
        """See `Branches.scores`."""
        return self._met.scores(view, documents)

    def _score(self, view: str, documents: I64) -> F64:
        numbers = documents.tolist()
        parts = [np.empty(0)]
        for first in range(0, len(numbers), MANY):
            parts.append(self._scored(view, numbers[first : first + MANY]))
        return np.concatenate(parts)

    def _scored(self, view: str, numbers: list[int]) -> F64:
        query = self.query
        stored = self.engine.schema.read_numbers(numbers)
        if view == "global":
            return np.array([float(row @ query.global_[0]) for row in stored.global_])
        if view == "phrase":
            return phrase_scores(query.units, stored.units, self.budget) / phrase.scale(query.units)
        return lexical.score(query.lexical, stored.lexical) / lexical.scale(query.lexical)

    def _permitted(self, column: str) -> tuple[str, list[Any]]:
        """The filter as a condition."""
        return ("TRUE", []) if self.passing is None else (f"{column} = ANY(%s)", [self.passing])

    def _global(self) -> tuple[str, list[Any]]:
        permitted, values = self._permitted("document")
        scored = (
            "SELECT document, -(vector <#> %s::vector) AS score FROM {schema}.global "
            f"WHERE {permitted}"
        )
        return scored, [_text(self.query.global_[0]), *values]

    def _lexical(self) -> tuple[str, list[Any]]:
        own = self.query.lexical
        permitted, values = self._permitted("document")
        scored = (
            "SELECT document, sum(weight * share) AS score FROM {schema}.words "
            "JOIN unnest(%s::int[], %s::float8[]) AS q (token, share) USING (token) "
            f"WHERE {permitted} GROUP BY document"
        )
        shares = (own.weights / lexical.scale(own)).tolist()
        return scored, [own.ids.tolist(), shares, *values]

    def _phrase(self) -> tuple[str, list[Any]]:
        """eq:phrase_score; a document without units scores 0."""
        units, stored = self.query.units, self.engine.settings.width
        permitted, values = self._permitted("number")
        vector = "vector"
        if units.width < stored:
            vector = f"l2_normalize(subvector(vector, 1, {units.width})::vector({units.width}))"
        ranked = "TRUE" if self.budget is None else f"rank < {self.budget}"
        scored = (
            "SELECT number AS document, coalesce(sum(similarity * share), 0) AS score "
            "FROM {schema}.documents LEFT JOIN ("
            f"SELECT document, share, max(-({vector} <#> wanted::vector)) AS similarity "
            "FROM {schema}.units CROSS JOIN unnest(%s::text[], %s::float8[]) "
            f"WITH ORDINALITY AS q (wanted, share, place) WHERE {ranked} "
            "GROUP BY document, place, share) AS best ON document = number "
            f"WHERE {permitted} GROUP BY number"
        )
        shares = (units.weights / phrase.scale(units)).tolist()
        return scored, [[_text(row) for row in units.vectors], shares, *values]


def _text(row: F32) -> str:
    """A vector as pgvector reads it, every float32 exactly."""
    return "[" + ",".join(map(repr, row.tolist())) + "]"


def _vectors(sent: bytes, width: int) -> F32:
    """Vectors as pgvector sends them, each after four bytes, f32[n, width]."""
    row = np.dtype([("head", ">i2", 2), ("numbers", ">f4", width)])
    return np.frombuffer(sent, row)["numbers"].astype(np.float32).reshape(-1, width)


def _line(error: Exception) -> str:
    """The first line of what a database says."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
