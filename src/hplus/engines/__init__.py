"""Engines elsewhere that store, replicate and search: hplus decides what is stored and how it is
scored.

    qdrant://host:6334/papers                        one node, or any node of a cluster
    qdrant://a:6334,b:6334,c:6334/papers             several nodes: if one fails, the next is asked
    postgresql://user@host/database?schema=papers    PostgreSQL with pgvector

`open_store` and `create_store` give what `ConnectedIndex` reads and writes; each engine is imported
when its scheme is met.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hplus.engines.address import Address, parse
from hplus.engines.store import Store
from hplus.errors import InputError
from hplus.storage.catalogue import Settings


def open_store(url: str) -> Store:
    """The collection at an address; it exists and was made by hplus."""
    address = parse(url)
    store: Store = _engine(address).open_store(address)
    return store


def create_store(url: str, settings: Settings, terms: Sequence[str], **options: Any) -> Store:
    """A new, empty collection at an address; options: those of the engine."""
    address = parse(url)
    if settings.passages is not None:
        raise InputError(
            f"{address} keeps whole documents, but passages of {settings.passages} tokens were "
            "asked for; leave passages out, or make each passage a document"
        )
    store: Store = _engine(address).create_store(address, settings, terms, **options)
    return store


def exists(url: str) -> bool:
    """Whether there is a collection at an address, whoever made it."""
    address = parse(url)
    return bool(_engine(address).exists(address))


def is_address(text: object) -> bool:
    """Whether a text is the address of an engine rather than a path."""
    return isinstance(text, str) and text.startswith(("qdrant://", "postgresql://", "postgres://"))


def name_of(place: str | os.PathLike[str]) -> str:
    """What an index is called: by its folder, without the ending, or by its collection.

    >>> name_of("med/notes.hplus"), name_of("qdrant://a:6334,b:6334/papers?timeout=5")
    ('notes', 'papers')
    """
    if not is_address(place):
        return Path(place).resolve().stem
    address = parse(str(place))
    return address.options.get("schema", address.name)


def _engine(address: Address) -> Any:
    """The module of an engine."""
    if address.scheme == "qdrant":
        from hplus.engines import qdrant

        return qdrant
    from hplus.engines import postgres

    return postgres
