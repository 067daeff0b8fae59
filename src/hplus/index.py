"""`Index`: three views of any number of documents on disk, searched, changed, never lost."""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, overload

from hplus.any_index import AnyIndex, as_filter, check_widths, settings_for
from hplus.arguments import as_ids, as_path, is_id, whole
from hplus.engines import is_address
from hplus.errors import (
    BudgetError,
    HPlusError,
    InputError,
)
from hplus.filters.ast import Filter
from hplus.progress import show_progress
from hplus.search.average import sample
from hplus.search.engine import Branches
from hplus.search.local import LocalBranches, LocalEngine, recall, share
from hplus.search.results import Results
from hplus.sources.document import Document
from hplus.storage import catalogue, confirmed, writer
from hplus.storage.catalogue import DocumentRow, Settings
from hplus.storage.compact import compact
from hplus.storage.create import create
from hplus.storage.disk import Disk, after_commit
from hplus.storage.export import PAGE, export
from hplus.storage.fields import hint
from hplus.storage.segment import Format, Segment
from hplus.storage.snapshot import Identity, Snapshot
from hplus.storage.stats import Stats, stats
from hplus.storage.verify import Verification, verify
from hplus.storage.writer import Report, Writer
from hplus.types import Encoded
from hplus.units.select import Budget

if TYPE_CHECKING:
    from hplus.engines.connected import ConnectedIndex
    from hplus.model import HPlus

# A log that readers let grow beyond this is reported.
LOG_BYTES = 64 << 20


class Index(AnyIndex):
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
        settings = settings_for(
            model,
            budget=budget,
            width=width,
            global_width=global_width,
            format=format,
            fusion=fusion,
            passages=passages,
            fingerprint=fingerprint,
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

    @staticmethod
    def connect(
        url: str,
        model: HPlus | str | os.PathLike[str] | None = None,
        *,
        create: bool = False,
        **options: Any,
    ) -> ConnectedIndex:
        """An index in an engine elsewhere, `qdrant://host:6334/name` or `postgresql://…`, with the
        methods of this class.

        create: make a new, empty collection for the encodings of the model; options: budget, width,
        global_width, fusion and fingerprint as in `create`, and those of the engine
        (docs/engines.md).
        """
        from hplus.engines.connected import ConnectedIndex

        if not create and options:
            raise InputError(f"{next(iter(options))} is for a new collection; say create=True")
        if not create:
            return ConnectedIndex.connect(url, model=model)
        if isinstance(model, (str, os.PathLike)):
            from hplus.model import HPlus

            model = HPlus(model)
        return ConnectedIndex.create(url, model, **options)

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
        return self._snapshot.count(as_filter(where))

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

    @property
    def place(self) -> str:
        """The folder, as messages say it."""
        return str(self.path)

    @property
    def terms(self) -> list[str]:
        """The terminology that the index was made with."""
        return catalogue.terms(self._snapshot.connection)

    def _model_folders(self) -> list[Path]:
        return [self.path.resolve().parent, Path.cwd()]

    def _hint(self, engine: Any, where: Filter, found: Results) -> str:  # noqa: ARG002
        return hint(engine.snapshot, where)

    def _check_open(self) -> None:
        """A closed index stays closed; nothing here holds on to its engine."""
        _ = self.engine

    @property
    def _snapshot(self) -> Snapshot:
        return self.engine.snapshot

    def refresh(self) -> None:
        """See what other writers have confirmed meanwhile, also if the folder was replaced."""
        engine = self._newest(self._snapshot.mapped)
        if self._model is not None:
            self._match(self._model, engine.snapshot.settings)
        self._engine = engine

    def is_newest(self) -> bool:
        """Whether this shows all that was confirmed, as far as the folder's own note says."""
        return confirmed.noted(self.path, self._disk) == self.generation

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

    def add_shards(self, folder: str | os.PathLike[str], *, progress: bool = False) -> Report:
        """The documents of a folder of shards, which `hplus bulk` has encoded; as `update` does:
        unchanged documents cost nothing, changed ones are replaced.

        A folder that lacks a shard, or is of another model, is refused as a whole; a damaged shard
        when it is reached. What was confirmed before that stays: call it again.
        """
        from hplus.bulk.folder import check_fits, read_manifest, read_shards

        manifest = read_manifest(folder)
        shards = read_shards(folder, fingerprint=self.settings.fingerprint)
        bar = show_progress("indexing", manifest.job.rows, wanted=progress)
        with self._writer() as out, bar as shown:
            check_fits(manifest, out.settings)
            found = ((shard.documents, shard.encoded, shard.passages) for shard in shards)
            return out.put_shards(found, advance=shown.advance)

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
            mean=None,
        )
        check_widths(new, old.width, old.global_width, f"{self.path} keeps")
        if old.mean is not None:
            new = replace(new, mean=old.mean[: new.width])
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

    def _begun(self, branches: Sequence[Branches]) -> None:
        share([own for own in branches if isinstance(own, LocalBranches)])

    def verify(self, *, progress: bool = False) -> Verification:
        """Every checksum and every row, on the state that the disk holds now."""
        with show_progress("verifying", len(self), wanted=progress) as shown:
            return verify(
                self.path,
                self._disk,
                shown.advance,
                recall=lambda snapshot: recall(LocalEngine(snapshot)),
            )

    def sample(self) -> Encoded | None:
        """Some documents (passages, where they are divided), spread evenly over the index, encoded;
        None if there are too few for an average."""
        return sample(self.engine)

    def stats(self) -> Stats:
        """Documents, units, bytes by part, and what a smaller budget or width would save."""
        return stats(self._snapshot)


def open_index(
    place: str | os.PathLike[str], model: HPlus | str | None = None
) -> Index | ConnectedIndex:
    """The index in a folder or at an address."""
    if isinstance(place, str) and is_address(place):
        return Index.connect(place, model)
    return Index.open(place, model=model)


def _as_document(row: DocumentRow) -> Document:
    return Document(row.id, row.text, row.metadata)
