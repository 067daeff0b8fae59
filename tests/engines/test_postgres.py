"""What is particular to PostgreSQL: one clear error for whatever goes wrong, nothing half done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from brute_force import ALPHAS, TEXT
from builders import random_encoded
from hplus import IndexDamagedError, InputError, ServiceError
from hplus.index import Index

pytest.importorskip("psycopg", reason="needs hplus[postgres]")

import psycopg

from hplus.engines.connected import ConnectedIndex

WIDTH = 8
IDS = ["a", "b", "c"]
ENCODED = random_encoded(np.random.default_rng(0), [3, 0, 2], WIDTH)


@pytest.fixture
def url(new_url: Callable[[str], str]) -> str:
    return new_url("postgres")


@pytest.fixture
def index(url: str) -> Iterator[ConnectedIndex]:
    settings = {"width": WIDTH, "global_width": WIDTH, "fusion": ALPHAS, "fingerprint": "none"}
    with Index.connect(url, create=True, **settings) as made:
        made.add_encoded(IDS, ENCODED)
        yield made


def test_a_wrong_host_is_told_at_once_and_without_the_password() -> None:
    with pytest.raises(ServiceError, match="cannot be reached") as caught:
        Index.connect("postgresql://me:secret@127.0.0.1:9/papers?schema=notes")
    assert "secret" not in str(caught.value)


def test_the_name_of_a_schema_is_no_sql(postgres_uri: str) -> None:
    with pytest.raises(InputError, match="expected schema to be a plain name"):
        Index.connect(f'{postgres_uri}&schema=a"; DROP TABLE x; --')


def test_a_schema_that_somebody_changed(url: str, index: ConnectedIndex) -> None:
    store: Any = index.store
    with store.connection.change() as cursor:
        cursor.execute(store.connection.named("ALTER TABLE {schema}.units DROP COLUMN vector"))
    with pytest.raises(IndexDamagedError, match=r"units\.vector is missing, expected vector\(8\)"):
        Index.connect(url)
    with store.connection.change() as cursor:
        cursor.execute(store.connection.named("DROP TABLE {schema}.note"))
    with pytest.raises(InputError, match="was not made by hplus"):
        Index.connect(url)


def test_a_text_that_postgresql_cannot_keep_leaves_nothing_behind(index: ConnectedIndex) -> None:
    texts = [TEXT, TEXT + "\0", TEXT]
    with pytest.raises(ServiceError, match=r"refuses: .*NUL"):
        index.add_encoded(["x", "y", "z"], ENCODED, texts=texts)
    assert {document.id for document in index} == set(IDS)


def test_a_statement_that_takes_too_long(url: str, index: ConnectedIndex) -> None:
    with Index.connect(f"{url}&timeout=60") as quick:
        connection = quick.store.connection  # type: ignore[attr-defined]
        assert connection.rows("SHOW statement_timeout") == [("1min",)]
        connection.timeout = 0.2  # only now: a slow machine may take longer
        connection.rows("SELECT set_config('statement_timeout', '200', false)")
        with pytest.raises(ServiceError, match=r"no answer within 0\.2 seconds; try again"):
            connection.rows("SELECT pg_sleep(60)")
    assert len(index) == 3


def test_a_connection_that_is_lost_is_made_again(index: ConnectedIndex, postgres_uri: str) -> None:
    """A server that restarts costs one search, not the service."""
    store: Any = index.store
    ((process,),) = store.connection.rows("SELECT pg_backend_pid()")
    with psycopg.connect(postgres_uri, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [process])
    with pytest.raises(ServiceError, match="cannot be reached"):
        len(index)
    assert len(index) == 3
    assert store.connection.rows("SHOW statement_timeout") == [("30s",)]
    index.close()
    with pytest.raises(ServiceError, match="is closed"):
        len(index)


def test_a_document_that_disappears_during_a_search(index: ConnectedIndex) -> None:
    searched = index.engine
    numbers = searched.find(IDS)
    index.delete("a")
    with pytest.raises(ServiceError, match="was changed during the search; search again"):
        searched.rows(numbers)
    with pytest.raises(ServiceError, match="was changed during the search; search again"):
        searched.read(numbers, None)
