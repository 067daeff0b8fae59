"""`ConnectedIndex`: an index whose documents are in an engine elsewhere.

It offers the methods of `Index`; what searches and fills is the same code (`any_index.py`). There
is no snapshot: a search sees what the engine holds at that moment, and a change is confirmed
document by document.
"""

from __future__ import annotations

import os
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from hplus import texts
from hplus.any_index import AnyIndex, as_filter, settings_for
from hplus.arguments import as_ids, is_id
from hplus.engines import create_store, open_store
from hplus.engines.store import Store, StoreStats, digest
from hplus.errors import InputError
from hplus.filters.ast import Exists, Filter, fields_of
from hplus.search import average
from hplus.search.engine import Engine
from hplus.search.results import Results
from hplus.sources.document import Document
from hplus.storage.catalogue import Settings
from hplus.storage.fields import said
from hplus.storage.fit import fit
from hplus.storage.seen import Seen
from hplus.storage.writer import (
    STEP_CHARACTERS,
    Divide,
    Encode,
    Plan,
    Report,
    changed_metadata,
    plan_of,
)
from hplus.types import Encoded
from hplus.views import fusion

if TYPE_CHECKING:
    from hplus.model import HPlus

PAGE = 256
# Documents whose stored encodings and scores `verify` compares with ours.
SAMPLED = 64
# Scores are sums of float32 products; vectors kept as float16 round more.
ROUNDING = {"f32": 1e-5, "f16": 2e-3}


@dataclass(frozen=True)
class Checked:
    """What `verify` found: documents there are, how many of them were compared, the largest
    difference between a score of the engine and ours, and problems, a sentence each."""

    documents: int
    sampled: int
    difference: float
    problems: list[str] = field(default_factory=list)


class ConnectedIndex(AnyIndex):
    """Made by `Index.connect`."""

    def __init__(
        self, store: Store, *, model: HPlus | str | os.PathLike[str] | None = None
    ) -> None:
        self.store = store
        if model is not None:
            with ExitStack() as stack:
                stack.callback(store.close)
                self._model = self._checked(model)
                stack.pop_all()

    @classmethod
    def connect(
        cls, url: str, *, model: HPlus | str | os.PathLike[str] | None = None
    ) -> ConnectedIndex:
        """A collection that exists; model: as in `Index.open`."""
        return cls(open_store(url), model=model)

    @classmethod
    def create(cls, url: str, model: HPlus | None = None, **options: Any) -> ConnectedIndex:
        """A new, empty collection. options: budget, width, global_width, fusion and fingerprint as
        in `Index.create`; stored, codes, shards, replicas and on_disk of the engine."""
        names = ("budget", "width", "global_width", "fusion", "passages", "fingerprint")
        own = {name: options.pop(name) for name in names if name in options}
        settings = settings_for(model, **own)
        terms = () if model is None or model.terms is None else model.terms.patterns
        return cls(create_store(url, settings, terms, **options), model=model)

    def __enter__(self) -> ConnectedIndex:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.store.close()

    @property
    def place(self) -> str:
        """The address, without a password."""
        return self.store.place

    @property
    def settings(self) -> Settings:
        """Widths, budget, fusion and model of this index."""
        return self.store.settings

    @property
    def engine(self) -> Engine:
        """The collection as one search sees it."""
        return self.store.engine()

    @property
    def terms(self) -> list[str]:
        """The terminology that the index was made with."""
        return self.store.terms

    def __len__(self) -> int:
        return self.store.count()

    def __contains__(self, id_: str) -> bool:
        return is_id(id_) and bool(self.store.held([id_]))

    @overload
    def get(self, ids: str) -> Document | None: ...  # type: ignore[overload-overlap]
    @overload
    def get(self, ids: Sequence[str]) -> list[Document | None]: ...
    def get(self, ids: str | Sequence[str]) -> Document | list[Document | None] | None:
        """The document of an id, or those of several in their order; None where there is none."""
        wanted = as_ids([ids] if isinstance(ids, str) else ids)
        rows = self.store.documents(wanted)
        found = [rows.get(id_) for id_ in wanted]
        return found[0] if isinstance(ids, str) else found

    def __iter__(self) -> Iterator[Document]:
        """All documents in the engine's order, in bounded memory."""
        for page in self.store.pages(PAGE):
            yield from self.store.documents(page).values()

    def count(self, where: str | Filter | None = None) -> int:
        """How many documents there are, or pass a filter."""
        return self.store.count(as_filter(where))

    def sample(self) -> Encoded | None:
        """See `Index.sample`: the first documents in the engine's order; Qdrant's is that of
        hashes."""
        ids = next(self.store.pages(average.SAMPLED), [])
        return self.store.read(ids) if len(ids) >= average.LEAST else None

    def stats(self) -> StoreStats:
        """What the engine says of the collection."""
        return self.store.stats()

    def _hint(self, engine: Any, where: Filter, found: Results) -> str:  # noqa: ARG002
        """See `storage.fields`; only if nothing was found, since it takes calls of its own."""
        if found:
            return ""
        lacking = [field for field in fields_of(where) if not self.store.count(Exists(field))]
        ids = next(self.store.pages(PAGE), []) if lacking else []
        known = {name for one in self.store.held(ids).values() for name in one.metadata}
        return said(lacking, sorted(known)) if ids else ""

    def verify(self) -> Checked:
        """The collection's make-up, its count, and of some documents the text, the encoding and the
        scores of every view against our own arithmetic."""
        problems = list(self.store.problems())
        documents, ids = 0, list[str]()
        for page in self.store.pages(PAGE):
            documents += len(page)
            ids += page if len(ids) < PAGE else []
        if documents != len(self):
            problems.append(f"{documents:,} documents can be read, but {len(self):,} are counted")
        ids = ids[:: max(1, len(ids) // SAMPLED)][:SAMPLED]
        if problems or not ids:
            return Checked(documents, 0, 0.0, problems)
        problems += self._check_held(ids)
        difference = self._difference(ids)
        most = ROUNDING[str(self.stats().figures.get("stored", "f32"))]
        if difference > most:
            problems.append(
                f"a score of the engine differs from ours by {difference:.1e}, expected {most:.0e} "
                "or less"
            )
        return Checked(documents, len(ids), difference, problems)

    def _check_held(self, ids: list[str]) -> list[str]:
        """Texts and encodings against the hashes that were stored with them."""
        from hplus.storage.catalogue import text_hash

        held, rows, encoded = self.store.held(ids), self.store.documents(ids), self.store.read(ids)
        exact = self.stats().figures.get("stored", "f32") == "f32"
        found = []
        for i, id_ in enumerate(ids):
            if text_hash(rows[id_].text) != held[id_].hash:
                found.append(f"the text of document {id_!r} is not the one that was encoded")
            if exact and digest(encoded, i) != held[id_].digest:
                found.append(f"the encoding of document {id_!r} is not the one that was stored")
        return found

    def _difference(self, ids: list[str]) -> float:
        """The largest difference between the engine's scores and ours, the first documents being
        the queries."""
        engine = self.engine
        documents = np.sort(engine.find(ids))
        encoded = engine.read(documents, None)
        views = {"global": 1.0, "phrase": 1.0, "lexical": 1.0}
        largest = 0.0
        for i in range(min(4, len(ids))):
            query = encoded[i]
            ours = fusion.score(query, encoded, views).views()
            branches = engine.branches(query, exact=True)
            for view, scores in ours.items():
                theirs = branches.scores(view, documents)
                largest = max(largest, float(np.abs(scores - theirs).max()))
        return largest

    @contextmanager
    def _writer(self) -> Iterator[StoreWriter]:
        yield StoreWriter(self.store)


class StoreWriter:
    """Changes to a collection; each document's is confirmed by itself."""

    def __init__(self, store: Store) -> None:
        self.store, self.settings = store, store.settings

    def seen(self) -> StoreSeen:
        """A new, empty list of the ids of a source."""
        return StoreSeen(self.store)

    @contextmanager
    def change(self) -> Iterator[None]:
        """There is nothing that could be confirmed as a whole."""
        yield

    def put(
        self,
        documents: Iterable[Document],
        encode: Encode,
        *,
        update: bool,
        advance: Callable[[float], None],
        divide: Divide | None = None,
    ) -> Report:
        """Add documents, each id once; each step is confirmed before the next."""
        assert divide is None  # collections keep whole documents
        report = Report()
        plans: deque[Plan] = deque()

        def steps() -> Iterator[list[str]]:
            for step in texts.steps_of(documents, _characters, STEP_CHARACTERS):
                stored = self.store.held([document.id for document in step])
                plans.append(plan_of(step, stored, update=update))
                yield plans[-1].texts()

        with closing(encode(steps())) as encodings:
            for encoded in encodings:
                plan = plans.popleft()
                fitted = fit(encoded, self.settings)
                if plan.new:
                    self.store.write(plan.new, fitted)
                if plan.changed:
                    self.store.set_metadata({one.id: one.metadata for one in plan.changed})
                report = replace(
                    report.plus(fitted.coverage),
                    added=report.added + len(plan.new) - len(plan.replaced),
                    updated=report.updated + len(plan.replaced),
                    metadata_changed=report.metadata_changed + len(plan.changed),
                    unchanged=report.unchanged + plan.unchanged,
                )
                advance(plan.documents - len(plan.new))
        return report

    def put_encoded(self, documents: Sequence[Document], encoded: Encoded) -> Report:
        """Add documents that are encoded already; ids that the collection has are refused."""
        ids = [one.id for one in documents]
        known = self.store.held(ids)
        if known or len(set(ids)) < len(ids):
            twice = next(iter(known), None) or next(i for i in ids if ids.count(i) > 1)
            raise InputError(f"the id {twice!r} exists already; ids must differ")
        fitted = fit(encoded, self.settings)
        if ids:
            self.store.write(documents, fitted)
        return Report(added=len(documents)).plus(fitted.coverage)

    def delete(self, ids: Sequence[str]) -> int:
        """Delete these documents; returns how many there were."""
        return self.store.delete(ids)

    def delete_where(self, where: Filter) -> int:
        """Delete the documents that pass a filter; returns how many there were."""
        return self.store.delete_where(where)

    def update_metadata(self, fields: Mapping[str, Mapping[str, Any]]) -> int:
        """Set fields of documents; returns how many documents changed."""
        changed = changed_metadata(fields, self.store.held(list(fields)))
        self.store.set_metadata(changed)
        return len(changed)


class StoreSeen(Seen):
    """The ids of a source, in a temporary database; the others are those of the collection."""

    def __init__(self, store: Store) -> None:
        super().__init__(sqlite3.connect(""))
        self.store = store

    def others(self) -> int:
        """How many documents of the collection have another id."""
        return sum(1 for page in self.store.pages(PAGE) for id_ in page if not self._has(id_))

    def delete_others(self) -> int:
        """Delete those documents; returns how many there were."""
        others = [id_ for page in self.store.pages(PAGE) for id_ in page if not self._has(id_)]
        return self.store.delete(others)

    def _has(self, id_: str) -> bool:
        found = self.connection.execute("SELECT 1 FROM temp.seen WHERE id = ?", (id_,))
        return found.fetchone() is not None


def _characters(document: Document) -> int:
    return len(document.text)
