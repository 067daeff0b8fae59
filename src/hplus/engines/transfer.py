"""Whole indexes between a folder and an engine: `push`, `pull`, `diff`.

Documents are compared by hashes of their texts and encodings, so a push that was interrupted goes
on where it stopped, and one that is repeated sends nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hplus.any_index import settings_for
from hplus.bulk.folder import (
    check_complete,
    check_fits,
    check_model,
    model_of,
    read_encodings,
    read_manifest,
)
from hplus.engines import create_store, exists, open_store
from hplus.engines.store import Store, digest
from hplus.errors import InputError, ModelMismatchError
from hplus.index import Index
from hplus.model import HPlus
from hplus.sources.document import Document
from hplus.storage.catalogue import Settings, text_hash
from hplus.storage.create import New, create
from hplus.storage.disk import Disk
from hplus.storage.fit import fit
from hplus.storage.segment import as_float16, chunks
from hplus.types import Encoded

# Ids that are read from an engine at a time.
PAGE = 1_024
# Documents that one worker sends at a time.
STEP = 256
SHOWN = 5


@dataclass(frozen=True)
class Moved:
    """Documents that were sent or fetched, those that were there already, and those deleted."""

    moved: int = 0
    unchanged: int = 0
    deleted: int = 0


@dataclass
class Difference:
    """Ids of documents by how the two sides differ."""

    only_here: list[str] = field(default_factory=list)
    only_there: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    metadata: list[str] = field(default_factory=list)
    encodings: list[str] = field(default_factory=list)
    same: int = 0

    def __bool__(self) -> bool:
        return any((self.only_here, self.only_there, self.texts, self.metadata, self.encodings))


def open_or_create(url: str, index: Index, options: dict[str, Any]) -> Store:
    """The collection to push an index to: one of the same settings, or a new one."""
    if index.settings.passages is not None:
        raise InputError(
            f"{index.path} divides documents into passages, but a collection keeps whole "
            "documents; index the source without --passages and push that"
        )
    if not exists(url):
        return create_store(url, index.settings, index.terms, **options)
    return _opened(url, options, lambda store: check_same_settings(index.settings, store))


def open_or_create_for_shards(
    url: str, folder: Path, model: str | None, terms: Path | None, options: dict[str, Any]
) -> Store:
    """The same for a folder of shards, whose model is loaded if the collection is new, with the
    terms that they were encoded with."""
    manifest = read_manifest(folder)
    check_complete(manifest)
    if exists(url):
        return _opened(url, options, lambda store: check_fits(manifest, store.settings))
    hplus = HPlus(model or model_of(manifest), terms=terms)
    check_model(manifest, hplus.fingerprint)
    job = manifest.job
    settings = settings_for(
        hplus, budget=job.budget, width=job.width, format=job.format, passages=job.passages
    )
    patterns = () if hplus.terms is None else hplus.terms.patterns
    return create_store(url, settings, patterns, **options)


def _opened(url: str, options: dict[str, Any], check: Callable[[Store], None]) -> Store:
    store = open_store(url)
    with ExitStack() as stack:
        stack.callback(store.close)
        if options:
            raise InputError(
                f"{store.place} exists already; {next(iter(options))} is for a new one"
            )
        check(store)
        stack.pop_all()
    return store


def check_same_settings(settings: Settings, store: Store) -> None:
    """Refuse a collection whose encodings are others."""
    theirs = store.settings
    if settings.fingerprint != theirs.fingerprint:
        raise ModelMismatchError(
            f"{store.place} was made with model {theirs.fingerprint[:12]} ({theirs.model}), the "
            f"index with {settings.fingerprint[:12]} ({settings.model}); push to a new collection"
        )
    for name in ("global_width", "width", "budget", "passages"):
        ours, own = getattr(settings, name), getattr(theirs, name)
        if ours != own:
            raise InputError(
                f"{store.place} keeps {name} {own}, the index {ours}; push to a new collection"
            )


def push(
    index: Index,
    store: Store,
    *,
    workers: int = 2,
    sync: bool = False,
    advance: Callable[[float], None] = lambda _: None,
) -> Moved:
    """Send what the collection lacks, or holds otherwise; sync: and delete what the index lacks."""
    check_same_settings(index.settings, store)
    moved = _push(encodings(index, STEP), store, workers, advance)
    deleted = 0
    if sync:
        others = [
            id_
            for page in store.pages(PAGE)
            for id_, one in zip(page, index.get(page), strict=True)
            if one is None
        ]
        deleted = store.delete(others)
    return replace(moved, deleted=deleted)


def push_shards(
    folder: Path,
    store: Store,
    *,
    workers: int = 2,
    advance: Callable[[float], None] = lambda _: None,
) -> Moved:
    """The same from a folder of shards, which `hplus bulk` has encoded: what is sent is what an
    index of these shards holds."""
    check_fits(read_manifest(folder), store.settings)
    shards = read_encodings(folder, STEP, fingerprint=store.settings.fingerprint)
    fitted = ((documents, _as_stored(fit(own, store.settings))) for documents, own in shards)
    return _push(fitted, store, workers, advance)


def _as_stored(encoded: Encoded) -> Encoded:
    """An encoding with the lexical weights of a segment, which keeps them as float16."""
    weights = as_float16(encoded.lexical.weights).astype(np.float32)
    return replace(encoded, lexical=replace(encoded.lexical, weights=weights))


def _push(
    pairs: Iterable[tuple[list[Document], Encoded]],
    store: Store,
    workers: int,
    advance: Callable[[float], None],
) -> Moved:
    sent = total = 0
    empty = not store.count()
    # A few steps wait for each worker, so that reading never gets far ahead of sending.
    waiting: deque[Future[int]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for documents, encoded in pairs:
                total += len(documents)
                waiting.append(pool.submit(_send, store, documents, encoded, advance, empty=empty))
                while len(waiting) > 3 * workers:
                    sent += waiting.popleft().result()
            while waiting:
                sent += waiting.popleft().result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return Moved(sent, total - sent)


def _send(
    store: Store,
    documents: list[Document],
    encoded: Encoded,
    advance: Callable[[float], None],
    *,
    empty: bool,
) -> int:
    """Send what the collection lacks; of one that was empty when the push began, that is not
    asked."""
    held = {} if empty else store.held([document.id for document in documents])
    new = []
    for i, document in enumerate(documents):
        known = held.get(document.id)
        if known is None or not known.same(
            text_hash(document.text), document.metadata, digest(encoded, i)
        ):
            new.append(i)
    if new:
        store.write([documents[i] for i in new], encoded.take(np.array(new, np.int64)))
    advance(len(documents))
    return len(new)


def encodings(index: Index, size: int) -> Iterator[tuple[list[Document], Encoded]]:
    """Documents of an index with their stored encodings, `size` at a time, as of now, segment by
    segment."""
    snapshot = index.engine.snapshot
    parts = zip(snapshot.parts, snapshot.first.tolist(), snapshot.permitted(None), strict=False)
    for part, before, places in parts:
        for own, encoded in chunks(part.segment, places):
            rows = snapshot.rows(before + own)
            documents = [Document(row.id, row.text, row.metadata) for row in rows]
            for first in range(0, len(rows), size):
                yield documents[first : first + size], encoded[first : first + size]


def pull(
    store: Store, path: Path, *, advance: Callable[[float], None] = lambda _: None
) -> tuple[Index, Moved]:
    """The documents of a collection as an index on this machine; one that exists is completed."""
    if path.exists():
        index = Index.open(path)
        check_same_settings(index.settings, store)
        return index, _fetch(store, index, advance)
    with New(path):
        create(path, replace(store.settings, passages=None), Disk(), store.terms)
        index = Index.open(path)
        return index, _fetch(store, index, advance)


def _fetch(store: Store, index: Index, advance: Callable[[float], None]) -> Moved:
    fetched = total = 0
    for page in store.pages(PAGE):
        there = index.get(page)
        held = store.held(page)
        wanted = [id_ for id_, one in zip(page, there, strict=True) if one is None]
        for id_, one in zip(page, there, strict=True):
            if one is not None and text_hash(one.text) != held[id_].hash:
                raise InputError(
                    f"{index.path} has another document {id_!r} than {store.place}; pull to a new "
                    "folder"
                )
        rows = store.documents(wanted)
        index.add_encoded(
            wanted,
            store.read(wanted),
            texts=[rows[id_].text for id_ in wanted],
            metadata=[rows[id_].metadata for id_ in wanted],
        )
        fetched, total = fetched + len(wanted), total + len(page)
        advance(len(page))
    return Moved(fetched, total - fetched)


def diff(
    index: Index, store: Store, *, advance: Callable[[float], None] = lambda _: None
) -> Difference:
    """What an index and a collection do not have in common."""
    found = Difference()
    here: set[str] = set()
    for documents, encoded in encodings(index, STEP):
        held = store.held([document.id for document in documents])
        for i, document in enumerate(documents):
            here.add(document.id)
            there = held.get(document.id)
            if there is None:
                found.only_here.append(document.id)
            elif there.hash != text_hash(document.text):
                found.texts.append(document.id)
            elif there.metadata != document.metadata:
                found.metadata.append(document.id)
            elif there.digest != digest(encoded, i):
                found.encodings.append(document.id)
            else:
                found.same += 1
        advance(len(documents))
    for page in store.pages(PAGE):
        found.only_there += [id_ for id_ in page if id_ not in here]
    return found
