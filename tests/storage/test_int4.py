"""int4: rows spread over their columns, two codes a byte, in an index like any other format."""

from __future__ import annotations

import doctest
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.fft import dct

from brute_force import QuickDisk
from builders import random_encoded, random_vectors, with_units
from hplus import BudgetError, HPlus, Index, IndexDamagedError
from hplus.storage import spread as module
from hplus.storage.check import checked
from hplus.storage.segment import Format, dequantise, quantise
from hplus.storage.spread import gathered, spread
from hplus.types import F32
from hplus.units.vectors import normalise
from hplus.views import phrase

some = settings(deadline=None, max_examples=40)
OPTIONS: dict[str, Any] = {"width": 64, "global_width": 32, "fingerprint": "x"}


@some
@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 400))
def test_spreading_is_the_cosine_transform(seed: int, rows: int, width: int) -> None:
    vectors = random_vectors(np.random.default_rng(seed), rows, width)
    across = spread(vectors)
    np.testing.assert_allclose(across, dct(vectors, norm="ortho"), atol=1e-6)
    np.testing.assert_allclose(gathered(across), vectors, atol=1e-6)
    np.testing.assert_allclose(across @ across.T, vectors @ vectors.T, atol=1e-5)
    for i in range(rows):  # the same whatever stands beside it
        np.testing.assert_array_equal(spread(vectors[i : i + 1])[0], across[i])
        np.testing.assert_array_equal(gathered(across[i : i + 1])[0], gathered(across)[i])


def falling(random: np.random.Generator, rows: int, width: int = 64) -> F32:
    """Unit vectors whose columns fall in variance, as those of a rotated encoder do."""
    sizes = np.exp(-np.arange(width) / 12)
    return normalise((random.standard_normal((rows, width)) * sizes).astype(np.float32))


def test_spread_rows_lose_less_than_half_of_what_others_lose() -> None:
    vectors = falling(np.random.default_rng(0), 500)
    codes, scales = quantise(vectors, "int4")
    off = np.square(dequantise(codes, scales) - vectors).sum(axis=1).mean()
    steps = np.abs(vectors).max(axis=1, keepdims=True) / 7
    plain = np.square(np.rint(vectors / steps) * steps - vectors).sum(axis=1).mean()
    assert off < 0.02
    assert off < 0.5 * plain


@pytest.mark.parametrize("length", [0.0, 0.8])
def test_rows_keep_their_lengths(length: float) -> None:
    random = np.random.default_rng(1)
    mean = random_vectors(random, 1, 64)[0] * np.float32(length)
    vectors = falling(random, 300)
    codes, scales = quantise(vectors, "int4", mean)
    lengths = np.linalg.norm(dequantise(codes, scales, mean) - mean, axis=1)
    np.testing.assert_allclose(lengths, np.linalg.norm(vectors - mean, axis=1), rtol=1e-3)


@pytest.mark.parametrize("width", [16, 32, 64])
def test_narrow_vectors_around_a_mean_are_taken_back(width: int) -> None:
    """Their lengths are less sure than those of int8: what an index or a shard gives out is still
    no damage, and its codes are the same when they are made again."""
    random = np.random.default_rng(4)
    mean = random_vectors(random, 1, width)[0] * np.float32(0.8)
    vectors = normalise(0.8 * mean / np.linalg.norm(mean) + 0.6 * falling(random, 4000, width))
    codes, scales = quantise(vectors, "int4", mean)
    encoded = random_encoded(random, [8] * 500, width)
    encoded = with_units(encoded, vectors=dequantise(codes, scales, mean))
    off = np.abs(np.square(encoded.units.vectors).sum(axis=1) - 1)
    assert off.max() > 0.03  # or this would be no test
    assert checked(encoded, [f"d{i}" for i in range(500)]).units.vectors.shape == (4000, width)
    again, same = quantise(encoded.units.vectors, "int4", mean)
    np.testing.assert_array_equal(again, codes)
    np.testing.assert_array_equal(same, scales)


def made(path: Path, format: Format) -> Index:
    return Index.create(path, format=format, disk=QuickDisk(), **OPTIONS)


def test_an_index_of_int4(tmp_path: Path) -> None:
    """Half the bytes of the units, nearly the same order, the same after compaction."""
    random = np.random.default_rng(2)
    encoded = random_encoded(random, [6] * 200, 64)
    encoded = with_units(encoded, vectors=falling(random, 1200))
    query = with_units(random_encoded(random, [4], 64), vectors=falling(random, 4))
    exact = phrase.score(query.units, encoded.units) / phrase.scale(query.units)
    bytes_, off = {}, {}
    for format in ("int8", "int4"):
        with made(tmp_path / format, format) as index:
            index.add_encoded([f"d{i}" for i in range(200)], encoded)
            bytes_[format] = index.stats().bytes["units"]
            found = {hit.id: hit.score for hit in index.search(query, view="phrase", k=200)}
            off[format] = np.abs([found[f"d{i}"] - exact[i] for i in range(200)]).mean()
            before = index.search(query, k=20, explain=True)
            index.delete(["d3", "d77"])
            index.compact()
            after = index.search(query, k=20, explain=True)
            gone = {"d3", "d77"}
            kept = [hit for hit in before if hit.id not in gone]
            assert after.hits[: len(kept)] == kept
            assert index.verify().problems == []
    assert bytes_["int4"] == bytes_["int8"] - 1200 * 32
    assert off["int8"] < off["int4"] < 0.02


def test_int4_is_searched_at_its_whole_width_alone(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    encoded, query = random_encoded(random, [5] * 9, 64), random_encoded(random, [3], 64)
    ids = [f"d{i}" for i in range(9)]
    with made(tmp_path / "index", "int4") as index:
        index.add_encoded(ids, encoded)
        message = (
            "width 32 requested, but int4 vectors are searched at their whole width, 64; `hplus "
            "compact --width 32` makes a narrower index"
        )
        for view in ("phrase", "hybrid"):
            with pytest.raises(BudgetError, match=message):
                index.search(query, view=view, width=32)
        assert len(index.search(query, width=64)) == 9
        index.compact(width=32)
        assert len(index.search(query, width=32)) == 9
        with pytest.raises(BudgetError, match="int4 keeps two numbers a byte, so width 7 must be"):
            index.compact(width=7)
    with pytest.raises(BudgetError, match="so width 63 must be even"):
        Index.create(tmp_path / "odd", format="int4", **OPTIONS | {"width": 63})


def test_a_model_is_indexed_in_int4(tiny: HPlus, tmp_path: Path) -> None:
    """From texts, with merged units; what is found first is what int8 finds first."""
    texts = [f"patient {i} has type {i % 7} diabetes" for i in range(40)]
    found = {}
    for format in ("int8", "int4"):
        with Index.create(tmp_path / format, tiny, format=format, budget=4) as index:
            index.add({"id": str(i), "text": text} for i, text in enumerate(texts))
            hits = index.search("patient 17 has type 3 diabetes", k=3)
            found[format] = hits[0].id
            assert index.settings.version == (4 if format == "int4" else 1)
    assert found["int4"] == found["int8"] == "17"


@pytest.mark.parametrize(
    "statement",
    [
        "PRAGMA user_version = 1",
        "PRAGMA user_version = 3",
        "UPDATE settings SET value = '\"int8\"' WHERE name = 'format'",
        "UPDATE settings SET value = '\"int2\"' WHERE name = 'format'",
        "UPDATE settings SET value = '63' WHERE name = 'width'",
    ],
)
def test_version_and_int4_belong_together(tmp_path: Path, statement: str) -> None:
    made(tmp_path / "index", "int4").close()
    file = tmp_path / "index" / "catalogue.sqlite"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement)
    with pytest.raises(IndexDamagedError, match="damaged settings"):
        Index.open(tmp_path / "index")


def test_the_example() -> None:
    assert doctest.testmod(module).failed == 0
