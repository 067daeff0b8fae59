"""What a connected index needs of an engine beyond search: documents in and out, counts, checks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from hplus.filters.ast import Filter
from hplus.search.engine import Engine
from hplus.sources.document import Document
from hplus.storage.catalogue import Settings, dump
from hplus.types import Encoded, Span, Units


@dataclass(frozen=True)
class Held:
    """What is known of a stored document without reading its vectors: the hash of its text, its
    metadata, and the digest of its encoding."""

    hash: bytes
    metadata: dict[str, Any]
    digest: str

    def same(self, text_hash: bytes, metadata: Mapping[str, Any], digest: str) -> bool:
        """Whether a document with these is stored already."""
        return (
            self.hash == text_hash
            and self.digest == digest
            and dump(dict(self.metadata)) == dump(dict(metadata))
        )


@dataclass(frozen=True)
class Named:
    """A document for people."""

    id: str
    text: str
    metadata: dict[str, Any]
    passage: Span | None = None


@dataclass(frozen=True)
class StoreStats:
    """What a collection holds, as far as its server says: documents, the bytes of the server's
    files where it tells, its version, and other figures by name."""

    documents: int
    version: str
    figures: Mapping[str, int | str] = field(default_factory=dict)


class Store(Protocol):
    """A collection of encoded documents in an engine elsewhere."""

    @property
    def place(self) -> str:
        """Its address, without a password."""

    @property
    def settings(self) -> Settings: ...
    @property
    def terms(self) -> list[str]: ...

    def engine(self) -> Engine:
        """The collection as one search sees it."""

    def count(self, where: Filter | None = None) -> int: ...

    def held(self, ids: Sequence[str]) -> dict[str, Held]:
        """Those of these documents that are stored."""

    def documents(self, ids: Sequence[str]) -> dict[str, Document]:
        """The same with their texts."""

    def pages(self, size: int) -> Iterator[list[str]]:
        """The ids of all documents, some at a time."""

    def read(self, ids: Sequence[str]) -> Encoded:
        """Stored encodings in this order; all of the documents exist."""

    def write(self, documents: Sequence[Document], encoded: Encoded) -> None:
        """Put documents in, in place of those with their ids; confirmed when it returns."""

    def set_metadata(self, metadata: Mapping[str, dict[str, Any]]) -> None:
        """Other metadata of documents that exist."""

    def delete(self, ids: Sequence[str]) -> int: ...
    def delete_where(self, where: Filter) -> int: ...
    def stats(self) -> StoreStats: ...

    def problems(self) -> list[str]:
        """What is not as hplus made it, a sentence each: vectors, their sizes, indexes."""

    def close(self) -> None: ...


def digest(encoded: Encoded, document: int) -> str:
    """Tells whether an encoding is the one that was stored: a hash of everything in it."""
    hashed = hashlib.blake2b(digest_size=16)
    own = slice(document, document + 1)
    coverage = encoded.coverage
    a, b = encoded.lexical.offsets[document : document + 2].tolist()
    for array in (
        encoded.global_[own],
        *_arrays(encoded.units, document),
        encoded.lexical.ids[a:b],
        encoded.lexical.weights[a:b],
        *_arrays(encoded.dropped, document)[1:],
        coverage.tokens[own],
        coverage.windows[own],
        coverage.cut[own],
        coverage.importance[own],
        coverage.kept[own],
    ):
        hashed.update(np.int64(array.size).tobytes())
        hashed.update((array + array.dtype.type(0)).tobytes())  # -0.0 is 0.0
    return hashed.hexdigest()


def _arrays(units: Units, document: int) -> tuple[Any, ...]:
    """Vectors, weights, spans and span offsets of one document's units."""
    first, last = units.offsets[document : document + 2].tolist()
    bounds = units.span_offsets[first : last + 1]
    return (
        units.vectors[first:last],
        units.weights[first:last],
        units.spans[bounds[0] : bounds[-1]],
        bounds - bounds[0],
    )
