"""Filters in Qdrant, tree by tree, against the plain reference of their meaning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from builders import random_encoded
from filters.test_filters import ODD_NAMES, ODD_NUMBERS, ODD_TEXTS, trees
from hplus.filters.ast import Compare, Contains, Exists, Field, Filter, In, matches
from hplus.index import Index

pytest.importorskip("qdrant_client", reason="needs hplus[qdrant]")

from hplus.engines.connected import ConnectedIndex
from hplus.engines.qdrant.fields import as_read, payload_of
from hplus.engines.qdrant.points import payload, point_id

ODD = [*ODD_TEXTS, *ODD_NUMBERS, True, False, None, [], {}, [1, "a"], [[1]], [None], {"a": 1}]
SIGNS = ("=", "!=", "<", "<=", ">", ">=")


def held() -> dict[str, dict[str, Any]]:
    """Metadata by id: every odd value by itself, and some of them inside one another."""
    random = np.random.default_rng(3)
    rows: list[dict[str, Any]] = [{"a": value} for value in ODD]

    def drawn(depth: int) -> Any:
        kind = random.integers(0, 4 if depth else 2)
        if kind == 2:
            return [drawn(depth - 1) for _ in range(random.integers(0, 3))]
        if kind == 3:
            return {str(random.choice(ODD_NAMES)): drawn(depth - 1) for _ in range(2)}
        return ODD[random.integers(0, len(ODD))]

    rows += [
        {str(random.choice(ODD_NAMES)): drawn(3) for _ in range(random.integers(0, 4))}
        for _ in range(80)
    ]
    return {f"d{i}": row for i, row in enumerate(rows)}


ROWS = held()
PLAIN = {id_: row for id_, row in ROWS.items() if "rough" not in payload_of(row)}


@pytest.fixture(scope="module", params=["plain numbers", "all numbers"])
def stored(
    request: pytest.FixtureRequest, qdrant_node: Any
) -> Iterator[tuple[Any, dict[str, dict[str, Any]]]]:
    """A collection of these documents; plain numbers are those that the server compares alone."""
    from engine_servers import address

    rows = PLAIN if request.param == "plain numbers" else ROWS
    url = address([qdrant_node], f"filters{len(rows)}")
    widths = {"width": 2, "global_width": 2}
    with Index.connect(url, create=True, fingerprint="none", **widths) as index:
        encoded = random_encoded(np.random.default_rng(0), [1] * len(rows), 2)
        index.add_encoded(list(rows), encoded, metadata=list(rows.values()))
        yield index.store, rows


def assert_same(stored: tuple[Any, dict[str, dict[str, Any]]], filter: Filter) -> None:
    store, rows = stored
    expected = {point_id(id_) for id_, own in rows.items() if matches(filter, id_, own)}
    assert set(store.every_point(store.passing(filter))) == expected, filter


def test_every_odd_value_against_every_other(stored: Any) -> None:
    field = Field(("a",))
    for value in (*ODD_TEXTS, *ODD_NUMBERS, True, False):
        for sign in SIGNS[:2] if isinstance(value, bool) else SIGNS:
            assert_same(stored, Compare(field, sign, value))
    for text in ODD_TEXTS:
        assert_same(stored, Contains(field, text))
    assert_same(stored, In(field, (*ODD_TEXTS, True, 1)))
    for name in ODD_NAMES:
        assert_same(stored, Exists(Field((name,))))
        assert_same(stored, Exists(Field(("a", name))))


@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(filter=trees)
def test_any_filter_means_the_same(stored: Any, filter: Filter) -> None:
    assert_same(stored, filter)


def test_what_comes_back_is_what_was_stored(stored: Any) -> None:
    store, rows = stored
    found: dict[str, Any] = store.documents(list(rows))
    assert {id_: document.metadata for id_, document in found.items()} == rows


def test_floats_come_back_as_they_were_foretold(stored: Any) -> None:
    """What Qdrant makes of a number is what `as_read` says, so what it rounds is known before."""
    store, _ = stored
    random = np.random.default_rng(11)
    numbers = [
        *random.random(500),
        *random.normal(size=500) * 10.0 ** random.integers(-30, 30, 500),
    ]
    index = ConnectedIndex(store)
    encoded = random_encoded(random, [1], 2)
    index.add_encoded(["floats"], encoded, metadata=[{"numbers": list(map(float, numbers))}])
    (point,) = store.fetch([point_id("floats")], ["metadata", "rough"])
    kept = payload(point)["metadata"]["numbers"]
    assert kept == [as_read(repr(float(number))) for number in numbers]
    assert kept != list(map(float, numbers))
    assert index["floats"].metadata == {"numbers": list(map(float, numbers))}
    index.delete("floats")
