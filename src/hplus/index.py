"""`Index`: three views of any number of documents on disk, searched, changed, never lost."""

from __future__ import annotations

import os
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from hplus.arguments import as_ids, as_path, is_id, whole
from hplus.checkpoint import fingerprint, locate
from hplus.errors import (
    BackboneError,
    BudgetError,
    CheckpointError,
    HPlusError,
    InputError,
    MissingDocumentError,
    ModelMismatchError,
)
from hplus.filters import syntax
from hplus.filters.ast import Filter
from hplus.progress import show_progress
from hplus.search import searcher
from hplus.search.local import LocalEngine, recall
from hplus.search.requests import Query, as_request, as_requests, in_threads
from hplus.search.results import Results
from hplus.sources import read as sources
from hplus.sources.columns import Columns
from hplus.sources.document import Document
from hplus.sources.folders import unreadable
from hplus.storage import catalogue, writer
from hplus.storage.catalogue import DocumentRow, Settings
from hplus.storage.check import checked
from hplus.storage.compact import compact
from hplus.storage.create import create
from hplus.storage.disk import Disk, after_commit
from hplus.storage.export import PAGE, export
from hplus.storage.fields import hint
from hplus.storage.seen import Seen
from hplus.storage.segment import Format, Segment
from hplus.storage.snapshot import Identity, Snapshot
from hplus.storage.stats import Stats, stats
from hplus.storage.verify import Verification, verify
from hplus.storage.writer import Report, Writer
from hplus.types import Encoded, Search
from hplus.units.select import Budget, budget_of
from hplus.unknown import REFUSED, Count, counted
from hplus.views.fusion import check_alphas
from hplus.views.lexical import Spelling
from hplus.views.stretches import as_one_text

if TYPE_CHECKING:
    from hplus.model import HPlus

OnError = Literal["stop", "skip"]
# A log that readers let grow beyond this is reported.
LOG_BYTES = 64 << 20
# Of an index for encodings made elsewhere; a model brings its own.
DEFAULT_FUSION = {"global": 0.5, "phrase": 1.0, "lexical": 0.2}


class Index:
    """An index on disk: one writer at a time, any number of readers.

    >>> from hplus import HPlus
    >>> documents = [{"id": "a", "text": "Metformin treats type 2 diabetes.", "year": 2021}]
    >>> with Index.create("med.hplus", HPlus()) as index:
    ...     report = index.add(documents)
    ...     for hit in index.search("type 2 diabetes", k=5, where="year >= 2020"):
    ...         print(hit.id, list(hit.views))
    a ['global', 'phrase', 'lexical']

    An open index shows the generation it was opened at and its own changes; `refresh` shows those
    of others too. A method that changes something has confirmed it when it returns.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        model: HPlus | str | os.PathLike[str] | None = None,
        disk: Disk | None = None,
    ) -> None:
        self.path = as_path("path", path)
        self._disk = disk or Disk()
        self._snapshots: weakref.WeakSet[Snapshot] = weakref.WeakSet()
        self._engine: LocalEngine | None = self._newest({})
        self._model: HPlus | None = None
        if model is not None:
            self._model = self._checked(model)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        model: HPlus | None = None,
        *,
        budget: Budget | int | None = None,
        width: int | None = None,
        global_width: int | None = None,
        format: Format = "int8",
        fusion: Mapping[str, float] | None = None,
        passages: int | None = None,
        fingerprint: str | None = None,
        disk: Disk | None = None,
    ) -> Index:
        """A new, empty index in a new folder.

        budget: units kept of each document, a `Budget` or a count under the model's policy; width:
        of the unit vectors; both default to the model's. passages: cut long documents at the ends
        of sentences into overlapping passages of at most so many tokens, each with vectors and a
        budget of its own; a hit is a document, found by its best passage. An index for encodings
        made elsewhere has no model: give both widths, a budget (`Budget()` keeps all units) and a
        fingerprint.
        """
        if fusion is not None:
            fusion = check_alphas(fusion)
        if not (model is None or hasattr(model, "recipe")):
            raise InputError(f"expected model to be an HPlus, got {type(model).__name__}")
        usual = Budget() if model is None else model.recipe.document_budget
        budget = budget_of(budget, usual)
        if model is not None:
            recipe = model.recipe
            widest = recipe.global_width or model.dim
            settings = Settings(
                fingerprint=model.fingerprint,
                model=model.checkpoint.name,
                global_width=widest if global_width is None else global_width,
                width=recipe.phrase_width or model.dim if width is None else width,
                budget=budget,
                format=format,
                fusion=dict(recipe.fusion if fusion is None else fusion),
                passages=passages,
            )
            _check_widths(settings, model.dim, widest, "the model gives")
        elif passages is not None:
            raise InputError("passages are cut by the tokens of a model; give a model")
        elif width is None or global_width is None or fingerprint is None:
            raise InputError("without a model give width, global_width and fingerprint")
        else:
            settings = Settings(
                fingerprint=fingerprint,
                model=None,
                global_width=global_width,
                width=width,
                budget=budget,
                format=format,
                fusion=dict(DEFAULT_FUSION if fusion is None else fusion),
            )
        terms = () if model is None or model.terms is None else model.terms.patterns
        create(as_path("path", path), settings, disk or Disk(), terms)
        return cls(path, model=model, disk=disk)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        model: HPlus | str | os.PathLike[str] | None = None,
        disk: Disk | None = None,
    ) -> Index:
        """An index that exists.

        model: the one it was made with, or where that is now; without it, the model of the recorded
        name is loaded when it is first needed, also from a folder beside the index.
        """
        return cls(path, model=model, disk=disk)

    def __enter__(self) -> Index:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release everything: the connection, its files, and the mapped segments."""
        self._engine = None
        for snapshot in list(self._snapshots):
            snapshot.close()

    def __len__(self) -> int:
        return len(self._snapshot)

    def __contains__(self, id_: str) -> bool:
        snapshot = self._snapshot
        return is_id(id_) and id_ in catalogue.by_id(snapshot.connection, [id_])

    def __getitem__(self, id_: str) -> Document:
        """The document of an id; `MissingDocumentError`, which is a KeyError, if there is none."""
        if not isinstance(id_, str):
            raise InputError(f"expected the id of a document, got {type(id_).__name__}")
        found = self.get(id_)
        if found is None:
            raise MissingDocumentError(f"no document {id_!r} in the index at {self.path}")
        return found

    @overload
    def get(self, ids: str) -> Document | None: ...  # type: ignore[overload-overlap]
    @overload
    def get(self, ids: Sequence[str]) -> list[Document | None]: ...
    def get(self, ids: str | Sequence[str]) -> Document | list[Document | None] | None:
        """The document of an id, or those of several in their order; None where there is none."""
        wanted = as_ids([ids] if isinstance(ids, str) else ids)
        rows = catalogue.by_id(self._snapshot.connection, wanted)
        found = [_as_document(rows[id_]) if id_ in rows else None for id_ in wanted]
        return found[0] if isinstance(ids, str) else found

    def __iter__(self) -> Iterator[Document]:
        """All documents in the order in which they were added, in bounded memory.

        What is changed meanwhile is not seen, by this index or by others.
        """
        snapshot = self._snapshot
        return (_as_document(row) for page in snapshot.pages(PAGE) for row in page)

    def count(self, where: str | Filter | None = None) -> int:
        """How many documents there are, or pass a filter."""
        return self._snapshot.count(_filter(where))

    def export(
        self,
        target: str | os.PathLike[str] | Callable[[str], None],
        *,
        vectors: bool = False,
        progress: bool = False,
    ) -> int:
        """All documents to a .jsonl (also .jsonl.gz) or .parquet file, or line by line of JSON to a
        function; returns how many there are.

        The file can be indexed again. vectors: with the global vector of each document, and with
        vector, weight and spans of each unit, up to the rounding of the stored format; in an index
        with passages, all of this for each passage, with its start and end.
        """
        snapshot = self._snapshot
        with show_progress("exporting", len(self), wanted=progress) as shown:
            return export(snapshot, target, vectors=vectors, advance=shown.advance)

    @property
    def settings(self) -> Settings:
        """Widths, budget, format and model of this index."""
        return self._snapshot.settings

    @property
    def generation(self) -> int:
        """Raised by one with every confirmed change."""
        return self._snapshot.generation

    @property
    def engine(self) -> LocalEngine:
        """What searches go through."""
        if self._engine is None:
            raise InputError(f"the index at {self.path} was closed; open it again")
        return self._engine

    def _check_open(self) -> None:
        """A closed index stays closed; nothing here holds on to its engine."""
        _ = self.engine

    @property
    def _snapshot(self) -> Snapshot:
        return self.engine.snapshot

    @property
    def model(self) -> HPlus:
        """The model that made the index; loaded when first asked for, without torch."""
        if self._model is None:
            name = self.settings.model
            if name is None:
                raise InputError(
                    f"{self.path} was made from encodings; give the model, or encoded queries"
                )
            try:
                place = locate(name, self.path.resolve().parent, Path.cwd())
            except CheckpointError as error:
                raise ModelMismatchError(
                    f"{self.path} was made with the model {name!r}, which is not here ({error}); "
                    "give the folder it is in now as model= or --model"
                ) from None
            try:
                self._model = self._checked(place, offline=True)
            except BackboneError as error:
                raise ModelMismatchError(
                    f"{self.path} was made with the model {name!r}, which does not load here "
                    f"({error}); give the model to use as model= or --model"
                ) from None
        return self._model

    def _checked(self, model: HPlus | str | os.PathLike[str], *, offline: bool = False) -> HPlus:
        """The model itself, loaded with the index's terms if only its place is known.

        offline: nobody but the index names it, so it must be on this machine.
        """
        from hplus.model import HPlus
        from hplus.units.terms import Terms

        if isinstance(model, (str, os.PathLike)):
            terms = catalogue.terms(self._snapshot.connection)
            model = HPlus(model, terms=Terms(terms) if terms else None, offline=offline)
        if not hasattr(model, "fingerprint"):
            raise InputError(f"expected a model or its place, got {type(model).__name__}")
        self._match(model, self.settings)
        return model

    def _match(self, model: HPlus, settings: Settings) -> None:
        made, given = settings.fingerprint, model.fingerprint
        if made != given:
            self._match_terms(model, made)
            raise ModelMismatchError(
                f"{self.path} was made with model {made[:12]} ({settings.model}), this is "
                f"{given[:12]}; give the model it was made with, or index its documents again: "
                "hplus index SOURCE NEW_INDEX"
            )

    def _match_terms(self, model: HPlus, made: str) -> None:
        """Say so if the terms alone are others."""
        from hplus.units.terms import Terms

        listed = catalogue.terms(self._snapshot.connection)
        terms = Terms(listed) if listed else None
        if fingerprint(model.checkpoint, None if terms is None else terms.fingerprint) != made:
            return
        had = f"{len(terms):,} terms" if terms else "no terms"
        has = f"{len(model.terms):,} terms" if model.terms else "none"
        others = " others:" if terms and model.terms else ""
        remedy = (
            "give the same list (--terms FILE, terms=…)"
            if terms
            else "leave the terms out (--terms, terms=…)"
        )
        raise ModelMismatchError(
            f"{self.path} was made with {had}, and{others} {has} are given now; {remedy}, or "
            "index the documents again: hplus index SOURCE NEW_INDEX"
        )

    def refresh(self) -> None:
        """See what other writers have confirmed meanwhile, also if the folder was replaced."""
        engine = self._newest(self._snapshot.mapped)
        if self._model is not None:
            self._match(self._model, engine.snapshot.settings)
        self._engine = engine

    @contextmanager
    def _writer(self) -> Iterator[Writer]:
        """The one writer; afterwards this index shows what was confirmed, even if it failed."""
        self._check_open()
        with writer.open_writer(self.path, self._disk, changed=self._changed) as out:
            try:
                yield out
            except BaseException:
                with suppress(HPlusError, MemoryError):  # the first error is the one to report
                    self.refresh()
                raise
            if not out.changes:  # those of others, if the folder was replaced, too
                self._changed(out)

    def _changed(self, out: Writer) -> None:
        """Show a change, and empty the log of it: what is in the catalogue itself cannot be lost
        with its log, and a long call would let it grow."""
        with after_commit(f"opening {self.path} again", "refresh() shows it"):
            self.refresh()
            with after_commit(f"emptying the log of {self.path}", "the next change tries again"):
                self._disk.checkpoint(out.connection)
                self._snapshot.renew()  # else it reads the log, which then cannot be emptied
                left = self._disk.checkpoint(out.connection)
                if left > LOG_BYTES:
                    warnings.warn(
                        f"the write-ahead log of {self.path} has {left >> 20} MB, because another "
                        "reader has not been refreshed since; call its refresh(), or close it",
                        RuntimeWarning,
                        stacklevel=2,
                    )

    def _newest(self, mapped: Mapping[Identity, Segment]) -> LocalEngine:
        snapshot = Snapshot(self.path, self._disk, mapped)
        # Closed when nobody reads it any more: searches of other threads go on after a refresh.
        weakref.finalize(snapshot, snapshot.connection.close)
        self._snapshots.add(snapshot)
        return LocalEngine(snapshot)

    def add(
        self,
        source: str | os.PathLike[str] | Iterable[Any],
        *,
        on_error: OnError = "stop",
        report: Callable[[str], None] | None = None,
        workers: int = 1,
        progress: bool = False,
        columns: Columns | None = None,
    ) -> Report:
        """New documents from a file, a folder or any iterable, encoded and confirmed in steps.

        Memory stays bounded. A document that the index has already, unchanged, costs nothing; the
        same id with another text is refused: see `update`. If it is interrupted, call it again.
        on_error="skip" leaves out bad rows of the source and those that repeat an id, and reports
        each to `report`. workers: processes that share the encoding. columns: which of a table, or
        fields of JSON lines and dicts, hold text, title and id.
        """
        return self._put(source, on_error, report, workers, progress, columns)

    def update(
        self,
        source: str | os.PathLike[str] | Iterable[Any],
        *,
        on_error: OnError = "stop",
        report: Callable[[str], None] | None = None,
        workers: int = 1,
        progress: bool = False,
        columns: Columns | None = None,
        sync: bool | Callable[[int], bool] = False,
    ) -> Report:
        """Like `add`, but a document that the index has with another text is replaced.

        sync: delete the documents that the source does not have; a function is given their number
        and says whether. If rows were skipped, or files for want of a reader, nothing is deleted:
        theirs would be, too.
        """
        agreed = (lambda _: True) if sync is True else sync or None
        return self._put(
            source, on_error, report, workers, progress, columns, update=True, sync=agreed
        )

    def _put(
        self,
        source: Any,
        on_error: OnError,
        report: Callable[[str], None] | None,
        workers: int,
        progress: bool,
        columns: Columns | None,
        *,
        update: bool = False,
        sync: Callable[[int], bool] | None = None,
    ) -> Report:
        skipped, count = 0, Count()
        others = Counter[str]()

        def skip(message: str) -> None:
            nonlocal skipped
            skipped += 1
            shown.advance(1)
            if report is not None:
                report(message)

        total = partial(sources.count, source, columns)
        bar = show_progress("indexing", total, wanted=progress)
        model = self.model
        with self._writer() as out:
            self._match(model, out.settings)  # the folder may have been replaced
            seen = Seen(out.connection)
            documents = sources.read(
                source,
                on_error=on_error,
                report=report and skip,
                is_new=seen.note,
                columns=columns,
                passed_over=lambda ending: others.update([ending]),
            )
            limit = out.settings.passages
            divide = None if limit is None else partial(model.passages, limit=limit)
            with bar as shown:
                encode = partial(
                    _encode_counted,
                    model,
                    count,
                    budget=out.settings.budget,
                    width=out.settings.width,
                    workers=workers,
                    advance=shown.advance if divide is None else lambda _: None,
                )
                done = out.put(
                    documents, encode, update=update, advance=shown.advance, divide=divide
                )
            count.warn("the documents", model.recipe.name)
            done = replace(done, skipped=skipped, other_files=dict(others), unknown=count.unknown)
            return done if sync is None else _synced(out, seen, done, sync)

    def add_encoded(
        self,
        ids: Sequence[str],
        encoded: Encoded,
        *,
        texts: Sequence[str] | None = None,
        metadata: Sequence[Mapping[str, Any]] | None = None,
    ) -> Report:
        """Documents that are encoded already, at the index's widths and budget or larger ones.

        An encoding that is not as `Encoded` says is refused as a whole, with the document and the
        place; other types of numbers are cast. In an index with passages each is one passage.
        """
        ids = as_ids(ids)
        n = len(ids)
        if not isinstance(encoded, Encoded):
            raise InputError(f"expected an Encoded, got {type(encoded).__name__}")
        given: dict[str, Any] = {"encoded": encoded, "texts": texts, "metadata": metadata}
        for name, values in given.items():
            if isinstance(values, (str, bytes, Mapping)) or not (
                values is None or (hasattr(values, "__len__") and hasattr(values, "__getitem__"))
            ):
                raise InputError(f"expected a list of {name}, got {type(values).__name__}")
            if values is not None and len(values) != n:
                raise InputError(f"{n} ids, but {name} has {len(values)} entries")
        for one in () if metadata is None else metadata:
            if not isinstance(one, Mapping):
                raise InputError(f"expected metadata as a dict each, got {type(one).__name__}")
        documents = [
            Document(
                id_,
                "" if texts is None else texts[i],
                {} if metadata is None else dict(metadata[i]),
            )
            for i, id_ in enumerate(ids)
        ]
        encoded = checked(encoded, ids, texts)
        with self._writer() as out:
            return out.put_encoded(documents, encoded)

    def delete(
        self, ids: str | Sequence[str] | None = None, *, where: str | Filter | None = None
    ) -> int:
        """Documents of these ids, or those that pass a filter, are gone; returns how many."""
        if (ids is None) == (where is None):
            raise InputError("give the ids of the documents to delete, or a filter: where=")
        if ids is not None:
            wanted = as_ids([ids] if isinstance(ids, str) else ids)
            with self._writer() as out:
                return out.delete(wanted)
        chosen = _filter(where)
        assert chosen is not None
        with self._writer() as out:
            return out.delete_where(chosen)

    def update_metadata(self, fields: Mapping[str, Mapping[str, Any]]) -> int:
        """Set fields of documents by id, `{"a": {"year": 2022}}`; other fields and the texts stay.

        None removes a field. An id that the index does not have is refused, and nothing changes;
        returns how many documents have changed.
        """
        if not isinstance(fields, Mapping):
            raise InputError(f"expected the fields of documents by id, got {type(fields).__name__}")
        wrong = next((one for one in fields.values() if not isinstance(one, Mapping)), None)
        if wrong is not None:
            raise InputError(
                f"expected the fields of each document as a dict, got {type(wrong).__name__}"
            )
        with self._writer() as out:
            return out.update_metadata(fields)

    def compact(
        self,
        *,
        budget: Budget | int | None = None,
        width: int | None = None,
        global_width: int | None = None,
        progress: bool = False,
    ) -> None:
        """Puts segments together and drops what was deleted; to a smaller budget or width too.

        Nothing is encoded again: under merge, stored vectors are merged further. Readers that are
        open go on as before.
        """
        old = self.settings
        if budget is not None and not isinstance(budget, Budget):
            budget = replace(old.budget, count=whole("budget", budget, 1, BudgetError))
        new = replace(
            old,
            budget=budget or old.budget,
            width=old.width if width is None else width,
            global_width=old.global_width if global_width is None else global_width,
        )
        _check_widths(new, old.width, old.global_width, f"{self.path} keeps")
        for name in ("count", "share"):
            kept, wanted = getattr(old.budget, name), getattr(new.budget, name)
            if kept is not None and (wanted is None or wanted > kept):
                raise BudgetError(
                    f"budget {new.budget} requested, but {self.path} keeps {old.budget}; request "
                    "less, or index again"
                )
        bar = show_progress("compacting", len(self), wanted=progress)
        with self._writer() as out, bar as shown:
            compact(out, new, shown.advance)

    @overload
    def search(self, query: Query, **options: Any) -> Results: ...
    @overload
    def search(self, query: Sequence[Query], **options: Any) -> list[Results]: ...
    def search(self, query: Query | Sequence[Query], **options: Any) -> Results | list[Results]:
        """The best documents for a query or a whole request; of a list of them, for each.

        options: the fields of `Search`, which says what each means (view, k, where, budget,
        query_budget, width, alphas, pool, exact, explain, from_, min_score, group_by, threads).
        A list gives what its queries give one by one, to the last bit, from one generation of the
        index; `threads` are then shared by the queries.
        """
        engine = self.engine

        def answer(request: Search) -> Results:
            found = searcher.search(engine, request, self._encode(request.query), self._spelling)
            return _hinted(engine, request, found)

        if isinstance(query, Query):
            return answer(as_request(query, options))
        requests = as_requests(query, options)
        if any(isinstance(request.query, str) for request in requests):
            _ = self.model  # loaded before threads ask for it
        return in_threads(answer, requests)

    def more_like(self, id_: str, **options: Any) -> Results:
        """The documents most like one of the index, its stored encoding being the query; that
        document itself is left out. options: as in `search`."""
        if not isinstance(id_, str):
            raise InputError(f"expected the id of a document, got {type(id_).__name__}")
        engine = self.engine
        document = engine.find([id_])
        (row,) = engine.rows(document)
        stored = engine.read(engine.passages(document)[0], None)
        request = as_request(as_one_text(stored, engine.settings.budget), options)
        if request.explain:
            with suppress(HPlusError):  # without a model, tokens are shown as numbers
                _ = self.model
        found = searcher.more_like(engine, request, document, row.text, self._spelling)
        return _hinted(engine, request, found)

    def rerank(self, query: Query, ids: Sequence[str], **options: Any) -> Results:
        """These documents, best first: the fused score of each. options: as in `search`."""
        request = as_request(query, options)
        engine = self.engine
        return searcher.rerank(engine, request, self._encode(request.query), ids, self._spelling)

    def verify(self, *, progress: bool = False) -> Verification:
        """Every checksum and every row, on the state that the disk holds now."""
        with show_progress("verifying", len(self), wanted=progress) as shown:
            return verify(
                self.path,
                self._disk,
                shown.advance,
                recall=lambda snapshot: recall(LocalEngine(snapshot)),
            )

    def stats(self) -> Stats:
        """Documents, units, bytes by part, and what a smaller budget or width would save."""
        return stats(self._snapshot)

    def _encode(self, query: str | Encoded) -> Encoded:
        if not isinstance(query, str):
            return query
        count = self.model.count_unknown([query])
        if count.share > REFUSED:
            raise InputError(count.advice("the query", self.model.recipe.name))
        return self.model.encode_query(query, width=self.settings.width)

    @property
    def _spelling(self) -> Spelling:
        return Spelling() if self._model is None else self._model.spelling


def _encode_counted(
    model: HPlus, count: Count, steps: Iterable[list[str]], **options: Any
) -> Generator[Encoded, None, None]:
    """Encodings of steps of texts, whose unknown tokens are counted on their way."""
    from hplus.workers import encode_steps

    tokenizer = model.checkpoint.backbone.tokenizer
    return encode_steps(model, counted(steps, tokenizer, count), **options)


def _synced(out: writer.Writer, seen: Seen, done: Report, sync: Callable[[int], bool]) -> Report:
    """Delete what the source does not have, if `sync` agrees."""
    absent, deleted = seen.others(), 0
    if absent and not done.skipped and not unreadable(done.other_files) and sync(absent):
        with out.change():
            deleted = seen.delete_others()
    return replace(done, absent=absent, deleted=deleted)


def _hinted(engine: LocalEngine, request: Search, found: Results) -> Results:
    """The results with what may be wrong about the filter."""
    where = _filter(request.where)
    return found if where is None else replace(found, hint=hint(engine.snapshot, where))


def _as_document(row: DocumentRow) -> Document:
    return Document(row.id, row.text, row.metadata)


def _ids(ids: str | Sequence[str]) -> list[str]:
    """One id or several, all of them texts."""
    return as_ids([ids] if isinstance(ids, str) else ids)


def _filter(where: str | Filter | None) -> Filter | None:
    if not isinstance(where, str | Filter | None):
        given = type(where).__name__
        raise InputError(f"expected where to be a text or a tree of comparisons, got {given}")
    return syntax.parse(where) if isinstance(where, str) else where


def _check_widths(settings: Settings, width: int, global_width: int, whose: str) -> None:
    """No width may exceed what there is."""
    for name, most in (("width", width), ("global_width", global_width)):
        if getattr(settings, name) > most:
            raise BudgetError(f"{name} {getattr(settings, name)} requested, but {whose} {most}")
