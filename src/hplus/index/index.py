"""`Index`: three views of any number of documents on disk, searched, changed, never lost."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from hplus.errors import BudgetError, InputError, ModelMismatchError
from hplus.index import catalogue, sources, writer
from hplus.index.catalogue import Settings
from hplus.index.document import Document
from hplus.index.segment import Format, Segment
from hplus.index.snapshot import Snapshot
from hplus.index.stats import Stats, stats
from hplus.index.store import Disk
from hplus.index.verify import Verification, verify
from hplus.index.writer import Report
from hplus.progress import Progress, show_progress
from hplus.search import searcher
from hplus.search.searcher import Results
from hplus.types import Encoded
from hplus.units.pool import normalise
from hplus.units.select import Budget

if TYPE_CHECKING:
    from hplus.model import HPlus

OnError = Literal["stop", "skip"]


class Index:
    """An index on disk: one writer at a time, any number of readers.

    >>> index = Index.create("med.hplus", HPlus())
    >>> index.add([{"id": "a", "text": "Metformin treats type 2 diabetes.", "year": 2021}])
    >>> for hit in index.search("type 2 diabetes", k=5, where="year >= 2020"):
    ...     print(hit.id, hit.score, hit.views)

    An open index shows the generation it was opened at and its own changes; `refresh` shows those
    of others too. A method that changes something has confirmed it when it returns.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, model: HPlus | None = None, disk: Disk | None = None
    ) -> None:
        self.path = Path(path)
        self._disk = disk or Disk()
        self._snapshot = self._newest({})
        self._model = model
        if model is not None:
            self._check_model(model)

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
        fingerprint: str | None = None,
        disk: Disk | None = None,
    ) -> Index:
        """A new, empty index in a new folder.

        budget: units kept of each document, a `Budget` or a count under the model's policy; width:
        of the unit vectors; both default to the model's. An index for encodings made elsewhere has
        no model: give both widths, a budget (`Budget()` keeps all units) and a fingerprint.
        """
        if model is not None:
            recipe = model.recipe
            if isinstance(budget, int):
                budget = replace(recipe.document_budget, count=budget, share=None)
            widest = recipe.global_width or model.dim
            settings = Settings(
                fingerprint=model.fingerprint,
                model=str(model.checkpoint.source),
                global_width=widest if global_width is None else global_width,
                width=recipe.phrase_width or model.dim if width is None else width,
                budget=budget or recipe.document_budget,
                format=format,
                fusion=dict(recipe.fusion if fusion is None else fusion),
            )
            for name, most in (("width", model.dim), ("global_width", widest)):
                if getattr(settings, name) > most:
                    raise BudgetError(
                        f"{name} {getattr(settings, name)} asked, but the model gives {most}"
                    )
        else:
            if width is None or global_width is None or fingerprint is None:
                raise InputError("without a model give width, global_width and fingerprint")
            settings = Settings(
                fingerprint=fingerprint,
                model=None,
                global_width=global_width,
                width=width,
                budget=Budget(budget) if isinstance(budget, int) else budget or Budget(),
                format=format,
                fusion={"global": 0.5, "phrase": 1.0, "lexical": 0.2}
                if fusion is None
                else dict(fusion),
            )
        terms = () if model is None or model.terms is None else model.terms.patterns
        writer.create(Path(path), settings, disk or Disk(), terms)
        return cls(path, model=model, disk=disk)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, model: HPlus | None = None, disk: Disk | None = None
    ) -> Index:
        """An index that exists; model: the one it was made with, else loaded when first needed."""
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
        """Lets go of the files."""
        self._snapshot.close()

    def __len__(self) -> int:
        return sum(int(part.alive.sum()) for part in self._snapshot.parts)

    def __contains__(self, id_: str) -> bool:
        snapshot = self._snapshot
        return id_ in catalogue.by_id(snapshot.connection, [id_])

    @property
    def settings(self) -> Settings:
        """Widths, budget, format and model of this index."""
        return self._snapshot.settings

    @property
    def generation(self) -> int:
        """Raised by one with every confirmed change."""
        return self._snapshot.generation

    @property
    def snapshot(self) -> Snapshot:
        """What searches read."""
        return self._snapshot

    @property
    def model(self) -> HPlus:
        """The model that made the index; loaded when first asked for, without torch."""
        if self._model is None:
            from hplus.model import HPlus
            from hplus.units.terms import Terms

            if self.settings.model is None:
                raise InputError(
                    f"{self.path} was made from encodings; give the model, or encoded queries"
                )
            snapshot = self._snapshot
            terms = catalogue.terms(snapshot.connection)
            model = HPlus(self.settings.model, terms=Terms(terms) if terms else None)
            self._check_model(model)
            self._model = model
        return self._model

    def refresh(self) -> None:
        """See what other writers have confirmed meanwhile."""
        self._snapshot = self._newest(self._snapshot.mapped)

    def _newest(self, mapped: Mapping[int, Segment]) -> Snapshot:
        snapshot = Snapshot(self.path, self._disk, mapped)
        # Closed when nobody reads it any more: searches of other threads go on after a refresh.
        weakref.finalize(snapshot, snapshot.connection.close)
        return snapshot

    def add(
        self,
        source: str | os.PathLike[str] | Iterable[Any],
        *,
        on_error: OnError = "stop",
        report: Callable[[str], None] | None = None,
        progress: bool = False,
    ) -> Report:
        """New documents from a file, a folder or any iterable, encoded and confirmed in steps.

        Memory stays bounded. A document that is there already, unchanged, costs nothing; the same
        id with another text is refused: see `update`. Interrupted, it can simply be called again.
        on_error="skip" leaves bad rows of the source out and tells `report` of each.
        """
        return self._put(source, on_error, report, progress, update=False)

    def update(
        self,
        source: str | os.PathLike[str] | Iterable[Any],
        *,
        on_error: OnError = "stop",
        report: Callable[[str], None] | None = None,
        progress: bool = False,
    ) -> Report:
        """Like `add`, but a document that is there with another text is replaced."""
        return self._put(source, on_error, report, progress, update=True)

    def _put(
        self,
        source: Any,
        on_error: OnError,
        report: Callable[[str], None] | None,
        progress: bool,
        *,
        update: bool,
    ) -> Report:
        documents = sources.read(source, on_error=on_error, report=report)
        bar = show_progress("indexing", None) if progress else nullcontext(Progress())
        model = self.model
        try:
            with writer.open_writer(self.path, self._disk) as out, bar as shown:

                def encode(texts: list[str]) -> Encoded:
                    settings = out.settings
                    return out.fitted(model.encode_step(texts, settings.budget, settings.width))

                return out.put(documents, encode, update=update, advance=shown.advance)
        finally:
            self.refresh()

    def add_encoded(
        self,
        ids: Sequence[str],
        encoded: Encoded,
        *,
        texts: Sequence[str] | None = None,
        metadata: Sequence[Mapping[str, Any]] | None = None,
    ) -> Report:
        """Documents that are encoded already, at the index's widths and budget or larger ones."""
        n = len(ids)
        for name, values in (("encoded", encoded), ("texts", texts), ("metadata", metadata)):
            if values is not None and len(values) != n:
                raise InputError(f"{n} ids, but {name} has {len(values)} entries")
        documents = [
            Document(id_, "" if texts is None else texts[i], dict(metadata[i]) if metadata else {})
            for i, id_ in enumerate(ids)
        ]
        try:
            with writer.open_writer(self.path, self._disk) as out:
                return out.put_encoded(documents, encoded)
        finally:
            self.refresh()

    def delete(self, ids: str | Sequence[str]) -> int:
        """Documents of these ids are gone; returns how many there were."""
        wanted = [ids] if isinstance(ids, str) else list(ids)
        try:
            with writer.open_writer(self.path, self._disk) as out:
                return out.delete(wanted)
        finally:
            self.refresh()

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
        if isinstance(budget, int):
            budget = replace(old.budget, count=budget)
        new = replace(
            old,
            budget=budget or old.budget,
            width=old.width if width is None else width,
            global_width=old.global_width if global_width is None else global_width,
        )
        for name in ("width", "global_width"):
            if getattr(new, name) > getattr(old, name):
                raise BudgetError(
                    f"{name} {getattr(new, name)} asked, but {self.path} keeps "
                    f"{getattr(old, name)}; ask for less, or index again"
                )
        for name in ("count", "share"):
            kept, asked = getattr(old.budget, name), getattr(new.budget, name)
            if kept is not None and (asked is None or asked > kept):
                raise BudgetError(
                    f"budget {new.budget} asked, but {self.path} keeps {old.budget}; ask for less, "
                    "or index again"
                )
        bar = show_progress("compacting", len(self)) if progress else nullcontext(Progress())
        try:
            with writer.open_writer(self.path, self._disk) as out, bar as shown:
                out.compact(new, shown.advance)
        finally:
            self.refresh()

    def search(
        self,
        query: str | Encoded,
        *,
        view: searcher.View = "hybrid",
        k: int = 10,
        where: str | None = None,
        budget: int | None = None,
        width: int | None = None,
        alphas: Mapping[str, float] | None = None,
        pool: int | tuple[int, int] = 1000,
        exact: bool = False,
        explain: bool = False,
        threads: int = 1,
    ) -> Results:
        """The k best documents for a query.

        view: hybrid (global and phrase find candidates, all three score them), global, phrase or
        lexical alone. where: a filter on metadata, applied before anything is ranked. budget and
        width: use less of what is stored. alphas: weights of the views for this query. pool: K_G
        and K_P, candidates of the two branches. exact: scan all units however many there are.
        """
        snapshot = self._snapshot
        return searcher.search(
            snapshot,
            self._encode(query, snapshot.settings),
            query_text=query if isinstance(query, str) else "",
            spell=self._spell,
            view=view,
            k=k,
            where=where,
            budget=budget,
            width=width,
            alphas=alphas,
            pool=pool,
            exact=exact,
            explain=explain,
            threads=threads,
        )

    def rerank(
        self,
        query: str | Encoded,
        ids: Sequence[str],
        *,
        budget: int | None = None,
        width: int | None = None,
        alphas: Mapping[str, float] | None = None,
        explain: bool = False,
    ) -> Results:
        """These documents, best first: the fused score of each."""
        snapshot = self._snapshot
        return searcher.rerank(
            snapshot,
            self._encode(query, snapshot.settings),
            ids,
            query_text=query if isinstance(query, str) else "",
            spell=self._spell,
            budget=budget,
            width=width,
            alphas=alphas,
            explain=explain,
        )

    def verify(self, *, progress: bool = False) -> Verification:
        """Every checksum and every row, on the state that the disk holds now."""
        bar = show_progress("verifying", len(self)) if progress else nullcontext(Progress())
        with bar as shown:
            return verify(self.path, self._disk, shown.advance)

    def stats(self) -> Stats:
        """Documents, units, bytes by part, and what a smaller budget or width would save."""
        return stats(self._snapshot)

    def _encode(self, query: str | Encoded, settings: Settings) -> Encoded:
        if isinstance(query, str):
            query = self.model.encode_query(query, width=settings.width)
        if len(query) != 1:
            raise InputError(f"one query expected, {len(query)} came")
        for name, found, kept in (
            ("global", query.global_.shape[1], settings.global_width),
            ("phrase", query.vectors.shape[1], settings.width),
        ):
            if found < kept:
                raise InputError(f"the query's {name} width is {found}, the index keeps {kept}")
        return replace(
            query,
            global_=normalise(query.global_[:, : settings.global_width]),
            vectors=normalise(query.vectors[:, : settings.width]),
        )

    def _spell(self, token: int) -> str:
        if self._model is None:
            return str(token)
        return self._model.checkpoint.backbone.tokenizer.token(token)

    def _check_model(self, model: HPlus) -> None:
        if model.fingerprint != self.settings.fingerprint:
            raise ModelMismatchError(
                f"{self.path} was made by model {self.settings.fingerprint[:12]} "
                f"({self.settings.model}), this is {model.fingerprint[:12]}; give the model it was "
                "made with, or index its documents anew: hplus index SOURCE NEW_INDEX"
            )
