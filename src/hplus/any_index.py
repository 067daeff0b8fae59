"""What every index offers, wherever its documents are: filling, searching, and its model.

`Index` (a folder on this machine) and `ConnectedIndex` (a collection of an engine elsewhere) say
where documents are read and written; the rest is the same and is here.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

from hplus.arguments import as_ids
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
from hplus.search.engine import Branches, Engine
from hplus.search.requests import Query, as_request, as_requests, in_threads
from hplus.search.results import Results
from hplus.sources import read as sources
from hplus.sources.columns import Columns
from hplus.sources.document import Document
from hplus.sources.folders import unreadable
from hplus.storage.catalogue import Settings
from hplus.storage.check import checked
from hplus.storage.segment import LARGEST, Format
from hplus.storage.writer import Divide, Encode, Report
from hplus.types import Encoded, Search
from hplus.units.select import Budget, budget_of
from hplus.unknown import REFUSED, Count, counted
from hplus.views.fusion import check_alphas
from hplus.views.lexical import Spelling
from hplus.views.stretches import as_one_text

if TYPE_CHECKING:
    from hplus.model import HPlus

OnError = Literal["stop", "skip"]
# Of an index for encodings made elsewhere; a model brings its own.
DEFAULT_FUSION = {"global": 0.5, "phrase": 1.0, "lexical": 0.2}


class Noted(Protocol):
    """The ids of a source while it is read."""

    def note(self, id_: str) -> bool:
        """Note an id; whether it is the first of its kind."""

    def others(self) -> int:
        """How many documents of the index have another id."""

    def delete_others(self) -> int:
        """Delete those documents; returns how many there were."""


class Filling(Protocol):
    """What documents are written through."""

    settings: Settings

    def seen(self) -> Noted:
        """A new, empty list of the ids of a source."""

    def change(self) -> AbstractContextManager[Any]:
        """A block of changes that are confirmed together, where that is possible."""

    def put(
        self,
        documents: Iterable[Document],
        encode: Encode,
        *,
        update: bool,
        advance: Callable[[float], None],
        divide: Divide | None = None,
    ) -> Report:
        """Add documents, each id once; see `AnyIndex.add` and `AnyIndex.update`."""

    def put_encoded(self, documents: Sequence[Document], encoded: Encoded) -> Report:
        """Add documents that are encoded already; ids that the index has are refused."""

    def delete(self, ids: Sequence[str]) -> int:
        """Delete these documents; returns how many there were."""

    def delete_where(self, where: Filter) -> int:
        """Delete the documents that pass a filter; returns how many there were."""

    def update_metadata(self, fields: Mapping[str, Mapping[str, Any]]) -> int:
        """Set fields of documents; returns how many documents changed."""


class AnyIndex(ABC):
    """Documents in three views that can be filled and searched."""

    _model: HPlus | None = None

    @property
    @abstractmethod
    def place(self) -> str:
        """Where the documents are, as messages say it: a path or an address."""

    @property
    @abstractmethod
    def settings(self) -> Settings:
        """Widths, budget, format and model of this index."""

    @property
    @abstractmethod
    def engine(self) -> Engine:
        """What searches go through."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def get(self, ids: Any) -> Any:
        """The document of an id, or those of several in their order; None where there is none."""

    @property
    @abstractmethod
    def terms(self) -> list[str]:
        """The terminology that the index was made with."""

    @abstractmethod
    def count(self, where: str | Filter | None = None) -> int:
        """How many documents there are, or pass a filter."""

    @abstractmethod
    def stats(self) -> Any:
        """What there is, in figures: a dataclass."""

    @abstractmethod
    def sample(self) -> Encoded | None:
        """Some documents (passages, where they are divided) from all over the index, encoded; None
        if there are too few for an average."""

    @abstractmethod
    def close(self) -> None:
        """Release everything that is open."""

    @property
    def generation(self) -> int | None:
        """Raised by one with every confirmed change; None where an engine counts none."""
        return None

    def is_newest(self) -> bool:
        """Whether this shows all that was confirmed: always so where there is no snapshot."""
        return True

    def refresh(self) -> None:  # noqa: B027  # of indexes without a snapshot
        """See what others have confirmed meanwhile."""

    @abstractmethod
    def _writer(self) -> AbstractContextManager[Filling]:
        """What changes are written through, until the block ends."""

    def _model_folders(self) -> list[Path]:
        """Where a model is looked for that is known by the name of its folder."""
        return [Path.cwd()]

    @abstractmethod
    def _hint(self, engine: Any, where: Filter, found: Results) -> str:
        """What may be wrong about a filter."""

    def __getitem__(self, id_: str) -> Document:
        """The document of an id; `MissingDocumentError`, which is a KeyError, if there is none."""
        if not isinstance(id_, str):
            raise InputError(f"expected the id of a document, got {type(id_).__name__}")
        found: Document | None = self.get(id_)
        if found is None:
            raise MissingDocumentError(f"no document {id_!r} in the index at {self.place}")
        return found

    @property
    def model(self) -> HPlus:
        """The model that made the index; loaded when first asked for, without torch."""
        if self._model is None:
            name = self.settings.model
            if name is None:
                raise InputError(
                    f"{self.place} was made from encodings; give the model, or encoded queries"
                )
            try:
                place = locate(name, *self._model_folders())
            except CheckpointError as error:
                raise ModelMismatchError(
                    f"{self.place} was made with the model {name!r}, which is not here ({error}); "
                    "give the folder it is in now as model= or --model"
                ) from None
            try:
                self._model = self._checked(place, offline=True)
            except BackboneError as error:
                raise ModelMismatchError(
                    f"{self.place} was made with the model {name!r}, which does not load here "
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
            terms = self.terms
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
                f"{self.place} was made with model {made[:12]} ({settings.model}), this is "
                f"{given[:12]}; give the model it was made with, or index its documents again: "
                "hplus index SOURCE NEW_INDEX"
            )

    def _match_terms(self, model: HPlus, made: str) -> None:
        """Say so if the terms alone are others."""
        from hplus.units.terms import Terms

        listed = self.terms
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
            f"{self.place} was made with {had}, and{others} {has} are given now; {remedy}, or "
            "index the documents again: hplus index SOURCE NEW_INDEX"
        )

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
            seen = out.seen()
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
        chosen = as_filter(where)
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

        def answer(requests: Sequence[Search]) -> list[Results]:
            """Of requests that differ by their queries alone."""
            begun = [searcher.begin(engine, own, self.encode(own.query)) for own in requests]
            self._begun([branches for _, branches in begun])
            found = [
                searcher.finish(engine, request, own, self._spelling)
                for request, own in zip(requests, begun, strict=True)
            ]
            return [self._hinted(engine, *pair) for pair in zip(requests, found, strict=True)]

        if isinstance(query, Query):
            return answer([as_request(query, options)])[0]
        requests = as_requests(query, options)
        if any(isinstance(request.query, str) for request in requests):
            _ = self.model  # loaded before threads ask for it
        return in_threads(answer, requests)

    def _begun(self, branches: Sequence[Branches]) -> None:  # noqa: B027  # most do nothing
        """What an engine may do with queries that are answered together, before the first is."""

    def answer(self, request: Search, encoded: Encoded) -> Results:
        """The results of a request whose query has been encoded already, in a pass with others for
        instance; `search` encodes it alone."""
        return self._answer(self.engine, request, encoded)

    def _answer(self, engine: Engine, request: Search, encoded: Encoded) -> Results:
        found = searcher.search(engine, request, encoded, self._spelling)
        return self._hinted(engine, request, found)

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
        return self._hinted(engine, request, found)

    def rerank(self, query: Query, ids: Sequence[str], **options: Any) -> Results:
        """These documents, best first: the fused score of each. options: as in `search`."""
        request = as_request(query, options)
        engine = self.engine
        return searcher.rerank(engine, request, self.encode(request.query), ids, self._spelling)

    def _hinted(self, engine: Engine, request: Search, found: Results) -> Results:
        """The results with what may be wrong about the filter."""
        where = as_filter(request.where)
        return found if where is None else replace(found, hint=self._hint(engine, where, found))

    def encode(self, query: str | Encoded) -> Encoded:
        """A query as this index reads it; refused if the model knows next to nothing of it."""
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


def _synced(out: Filling, seen: Noted, done: Report, sync: Callable[[int], bool]) -> Report:
    """Delete what the source does not have, if `sync` agrees."""
    absent, deleted = seen.others(), 0
    if absent and not done.skipped and not unreadable(done.other_files) and sync(absent):
        with out.change():
            deleted = seen.delete_others()
    return replace(done, absent=absent, deleted=deleted)


def as_filter(where: str | Filter | None) -> Filter | None:
    """A filter as a tree, whether it came as a text or as one."""
    if not isinstance(where, str | Filter | None):
        given = type(where).__name__
        raise InputError(f"expected where to be a text or a tree of comparisons, got {given}")
    return syntax.parse(where) if isinstance(where, str) else where


def settings_for(
    model: HPlus | None,
    *,
    budget: Budget | int | None = None,
    width: int | None = None,
    global_width: int | None = None,
    format: Format = "int8",
    fusion: Mapping[str, float] | None = None,
    passages: int | None = None,
    fingerprint: str | None = None,
) -> Settings:
    """The settings of a new index for the encodings of a model, or for those made elsewhere."""
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
        check_widths(settings, model.dim, widest, "the model gives")
        mean = model.checkpoint.mean
        if format in LARGEST and mean is not None:
            settings = replace(settings, mean=tuple(mean[: settings.width].tolist()))
        return settings
    if passages is not None:
        raise InputError("passages are cut by the tokens of a model; give a model")
    if width is None or global_width is None or fingerprint is None:
        raise InputError("without a model give width, global_width and fingerprint")
    return Settings(
        fingerprint=fingerprint,
        model=None,
        global_width=global_width,
        width=width,
        budget=budget,
        format=format,
        fusion=dict(DEFAULT_FUSION if fusion is None else fusion),
    )


def check_widths(settings: Settings, width: int, global_width: int, whose: str) -> None:
    """No width may exceed what there is."""
    for name, most in (("width", width), ("global_width", global_width)):
        if getattr(settings, name) > most:
            raise BudgetError(f"{name} {getattr(settings, name)} requested, but {whose} {most}")
