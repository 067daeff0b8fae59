"""A mean taken off before vectors become int8: finer codes, the same promises.

The property tests of search (`brute_force.corpora`) draw indexes with a mean as well.
"""

from __future__ import annotations

import copy
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brute_force import QuickDisk
from builders import assert_same, random_encoded, random_vectors, with_units
from hplus import Document, HPlus, Index, IndexDamagedError, InputError
from hplus.any_index import settings_for
from hplus.bulk.encode import encode_shards
from hplus.bulk.job import job_of
from hplus.bulk.shard_file import read_shard
from hplus.storage import catalogue, writer
from hplus.storage.catalogue import Settings
from hplus.storage.create import create
from hplus.storage.segment import Format, dequantise, quantise
from hplus.types import F32, Encoded
from hplus.units.vectors import normalise
from hplus.views import phrase
from shards import ROWS, index_bytes, write_rows

some = settings(deadline=None, max_examples=40)
WIDTH = 12


def skewed(random: np.random.Generator, rows: int, width: int = WIDTH) -> tuple[F32, F32]:
    """Unit vectors that lie around a mean of length 0.8 or so, and that mean."""
    centre = random_vectors(random, 1, width)
    vectors = normalise(centre + np.float32(0.5) * random_vectors(random, rows, width))
    return vectors, vectors.mean(axis=0)


def version(path: Path) -> int:
    with closing(sqlite3.connect(path / "catalogue.sqlite")) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def with_mean(model: HPlus, mean: F32 | None) -> HPlus:
    other = copy.copy(model)
    other.checkpoint = replace(model.checkpoint, mean=mean)
    return other


@pytest.fixture
def centred(tiny: HPlus) -> HPlus:
    """The tiny model with the mean of its units."""
    vectors = tiny.encode_document([str(row["text"]) for row in ROWS]).units.vectors
    return with_mean(tiny, vectors.mean(axis=0))


@pytest.fixture
def documents() -> list[Document]:
    return [Document(str(row["_id"]), str(row["text"]), {"year": row["year"]}) for row in ROWS]


def made(path: Path, mean: F32 | None, **options: Any) -> Index:
    widths: dict[str, Any] = {"width": WIDTH, "global_width": WIDTH, "fingerprint": "x"}
    own = settings_for(None, **widths, **options)
    own = own if mean is None else replace(own, mean=tuple(mean.tolist()))
    create(path, own, QuickDisk())
    return Index.open(path, disk=QuickDisk())


@some
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 30),
    st.sampled_from([0.0, 1e-3, 0.9]),
    st.sampled_from(["int8", "int4"]),
)
def test_what_was_rounded_once_stays_the_same(
    seed: int, rows: int, length: float, format: Format
) -> None:
    """So what goes through `Encoded`, a shard or an engine and back has the same codes."""
    random = np.random.default_rng(seed)
    vectors, _ = skewed(random, rows)
    mean = random_vectors(random, 1, WIDTH)[0] * np.float32(length)
    if rows > 2:
        vectors[1], vectors[2] = 0, mean
    codes, scales = quantise(vectors, format, mean)
    back = dequantise(codes, scales, mean)
    assert scales is not None
    again, their_scales = quantise(back, format, mean)
    np.testing.assert_array_equal(again, codes)
    np.testing.assert_array_equal(their_scales, scales)
    if rows > 2:
        assert not back[1].any()  # a row of zeros is one of zeros, not one near the mean
        np.testing.assert_array_equal(back[2], mean)


def test_codes_are_finer_where_vectors_lie_around_a_mean(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    vectors, mean = skewed(random, 600, WIDTH)
    encoded = with_units(random_encoded(random, [6] * 100, WIDTH), vectors=vectors)
    query = with_units(random_encoded(random, [5], WIDTH), vectors=skewed(random, 5)[0])
    off = []
    for name, own in (("with", mean), ("without", None)):
        with made(tmp_path / name, own) as index:
            index.add_encoded([f"d{i}" for i in range(100)], encoded)
            exact = phrase.score(query.units, encoded.units) / phrase.scale(query.units)
            found = {hit.id: hit.score for hit in index.search(query, view="phrase", k=100)}
            scores = np.array([found[f"d{i}"] for i in range(100)])
            off.append(np.abs(scores - exact).mean())
    assert off[0] < 0.7 * off[1]


@pytest.mark.parametrize("width", [WIDTH, 7, 1])
def test_units_of_zeros_score_zero(tmp_path: Path, width: int) -> None:
    """At the stored width and below, where every row has its own share of the mean."""
    random = np.random.default_rng(1)
    vectors, mean = skewed(random, 40)
    vectors[::4] = 0
    encoded = with_units(random_encoded(random, [1] * 20 + [2] * 10, WIDTH), vectors=vectors)
    query = random_encoded(random, [4], WIDTH)
    with made(tmp_path / "index", mean) as index:
        index.add_encoded([f"d{i}" for i in range(30)], encoded)
        found = {hit.id: hit.score for hit in index.search(query, view="phrase", k=30, width=width)}
        for i in range(0, 20, 4):
            assert found[f"d{i}"] == 0
        stored = index.engine.read(np.arange(30), None).at(width=width)
        exact = phrase.score(query.at(width=width).units, stored.units) / phrase.scale(query.units)
        scores = np.array([found[f"d{i}"] for i in range(30)])
        np.testing.assert_allclose(scores, exact, atol=2e-4)


def test_an_explanation_is_its_score(tmp_path: Path, centred: HPlus, documents: Any) -> None:
    with Index.create(tmp_path / "index", centred, disk=QuickDisk()) as index:
        index.add(documents)
        for hit in index.search("type 2 diabetes", k=5, explain=True):
            assert hit.explanation is not None
            assert sum(hit.explanation.shares.values()) == pytest.approx(hit.score)


def same_in_portions(index: Index, documents: list[Document]) -> None:
    for first in range(0, len(documents), 5):
        index.add(documents[first : first + 5])
    index.compact()


def same_after_deletions(index: Index, documents: list[Document]) -> None:
    index.add([Document(f"x{i}", f"another text {i}", {}) for i in range(9)])
    index.add(documents)
    index.delete([f"x{i}" for i in range(9)])
    index.compact()


def same_through_encodings(index: Index, documents: list[Document]) -> None:
    """As `pull` does with what an engine has kept."""
    with Index.create(index.path.with_suffix(".own"), index.model, disk=QuickDisk()) as own:
        own.add(documents)
        stored = own.engine.read(np.arange(len(documents)), None)
    index.add_encoded(
        [one.id for one in documents],
        stored,
        texts=[one.text for one in documents],
        metadata=[one.metadata for one in documents],
    )
    index.compact()


@pytest.mark.parametrize(
    "make",
    [same_in_portions, same_after_deletions, same_through_encodings],
    ids=lambda f: f.__name__,
)
def test_the_same_codes_however_documents_came(
    tmp_path: Path,
    centred: HPlus,
    documents: list[Document],
    make: Callable[[Index, list[Document]], None],
) -> None:
    def codes(index: Index) -> tuple[Any, ...]:
        (part,) = index.engine.snapshot.parts
        return part.segment.vectors, part.segment.scales, part.segment.global_vectors

    with (
        Index.create(tmp_path / "one", centred, disk=QuickDisk()) as one,
        Index.create(tmp_path / "other", centred, disk=QuickDisk()) as other,
    ):
        one.add(documents)
        one.compact()
        make(other, documents)
        for ours, theirs in zip(codes(one), codes(other), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert one.settings == other.settings
        assert other.verify().problems == []


def test_an_index_of_shards_is_that_of_the_texts(
    tmp_path: Path, centred: HPlus, documents: list[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CONFIRM_SECONDS", float("inf"))
    source = write_rows(tmp_path / "corpus.jsonl", ROWS)
    job = job_of(centred, source, shards=3, width=16)
    encode_shards(centred, job, source, tmp_path / "shards")
    with (
        Index.create(tmp_path / "texts", centred, width=16, disk=QuickDisk()) as texts,
        Index.create(tmp_path / "index", centred, width=16, disk=QuickDisk()) as index,
    ):
        texts.add(source)
        index.add_shards(tmp_path / "shards")
        assert index_bytes(index) == index_bytes(texts)
    whole = centred.encode_document([one.text for one in documents], width=16)
    kept = read_shard(tmp_path / "shards" / job.file(1)).encoded.units.vectors
    np.testing.assert_allclose(kept, whole.units.vectors[: len(kept)], atol=0.01)


def test_shards_without_a_mean_are_added_to_an_index_with_one(
    tmp_path: Path, tiny: HPlus, centred: HPlus
) -> None:
    source = write_rows(tmp_path / "corpus.jsonl", ROWS)
    encode_shards(tiny, job_of(tiny, source, shards=2), source, tmp_path / "shards")
    with Index.create(tmp_path / "index", centred, disk=QuickDisk()) as index:
        index.add_shards(tmp_path / "shards")
        stored = index.engine.read(np.arange(len(ROWS)), None).units.vectors
    whole = centred.encode_document([str(row["text"]) for row in ROWS]).units.vectors
    np.testing.assert_allclose(stored, whole, atol=0.01)


def test_only_an_int8_index_of_a_model_with_a_mean_has_the_new_version(
    tmp_path: Path, tiny: HPlus, centred: HPlus
) -> None:
    for name, model, options, expected in (
        ("a", centred, {}, 3),
        ("b", centred, {"passages": 16}, 3),
        ("c", centred, {"format": "f16"}, 1),
        ("d", tiny, {}, 1),
        ("e", tiny, {"passages": 16}, 2),
    ):
        with Index.create(tmp_path / name, model, disk=QuickDisk(), **options) as index:
            index.add(ROWS)
            assert (index.settings.mean is not None) == (expected == 3)
            assert index.verify().problems == []
            assert index.search("type 2 diabetes", k=3)
        assert version(tmp_path / name) == expected


def test_an_older_hplus_refuses_it(
    tmp_path: Path, centred: HPlus, monkeypatch: pytest.MonkeyPatch
) -> None:
    Index.create(tmp_path / "index", centred, disk=QuickDisk()).close()
    monkeypatch.setattr(catalogue, "VERSIONS", (1, 2))
    with pytest.raises(InputError, match="has format 3, this hplus reads 1 to 2; update hplus"):
        Index.open(tmp_path / "index")


def test_an_index_without_a_mean_stays_as_it_is(
    tmp_path: Path, tiny: HPlus, centred: HPlus, documents: list[Document]
) -> None:
    """Made before its model had one: it opens, answers as before, and more is added as before."""
    assert tiny.fingerprint == centred.fingerprint
    with (
        Index.create(tmp_path / "old", tiny, disk=QuickDisk()) as old,
        Index.create(tmp_path / "expected", tiny, disk=QuickDisk()) as expected,
    ):
        old.add(documents[:15])
        expected.add(documents[:15])
        expected.add(documents[15:])
        with Index.open(tmp_path / "old", model=centred, disk=QuickDisk()) as opened:
            opened.add(documents[15:])
            ours, theirs = (
                [(hit.id, hit.score) for hit in index.search("type 2 diabetes", k=9)]
                for index in (opened, expected)
            )
            assert ours == theirs
            assert index_bytes(opened) == index_bytes(expected)
    assert version(tmp_path / "old") == 1


@pytest.mark.parametrize(
    "statement",
    [
        "PRAGMA user_version = 1",
        "PRAGMA user_version = 2",
        "DELETE FROM settings WHERE name = 'mean'",
        "UPDATE settings SET value = 'null' WHERE name = 'mean'",
        "UPDATE settings SET value = '[0.5]' WHERE name = 'mean'",
        "UPDATE settings SET value = '0.5' WHERE name = 'mean'",
        "UPDATE settings SET value = replace(value, '[', '[1e999, ') WHERE name = 'mean'",
        "UPDATE settings SET value = replace(value, '[', '[[') WHERE name = 'mean'",
        """UPDATE settings SET value = '"f32"' WHERE name = 'format'""",
        "UPDATE settings SET value = '31' WHERE name = 'width'",
    ],
)
def test_version_and_mean_belong_together(tmp_path: Path, centred: HPlus, statement: str) -> None:
    Index.create(tmp_path / "index", centred, disk=QuickDisk()).close()
    file = tmp_path / "index" / "catalogue.sqlite"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement)
    with pytest.raises(IndexDamagedError, match="damaged settings"):
        Index.open(tmp_path / "index")


def test_a_mean_that_is_not_finite_is_refused() -> None:
    own = settings_for(None, width=2, global_width=2, fingerprint="x")
    for mean in ((0.1, float("nan")), (0.1, 1e300), (0.1,)):
        with pytest.raises(InputError, match="a mean of 2 finite numbers"):
            replace(own, mean=mean)


def test_a_smaller_width_keeps_the_first_columns_of_the_mean(
    tmp_path: Path, centred: HPlus, documents: list[Document]
) -> None:
    with (
        Index.create(tmp_path / "wide", centred, disk=QuickDisk()) as wide,
        Index.create(tmp_path / "narrow", centred, width=16, disk=QuickDisk()) as narrow,
    ):
        wide.add(documents)
        narrow.add(documents)
        before = [(hit.id, hit.score) for hit in wide.search("type 2 diabetes", k=5, width=16)]
        wide.compact(width=16)
        assert wide.settings == narrow.settings
        after = {hit.id: hit.score for hit in wide.search("type 2 diabetes", k=23)}
        for id_, score in before:
            assert after[id_] == pytest.approx(score, abs=0.01)
        encoded: list[Encoded] = [
            index.engine.read(np.arange(23), None) for index in (wide, narrow)
        ]
        np.testing.assert_allclose(encoded[0].units.vectors, encoded[1].units.vectors, atol=0.01)
        assert_same(encoded[0].units.spans, encoded[1].units.spans)


def test_settings_survive_json(centred: HPlus) -> None:
    """As engines keep them: a list of numbers, exactly those of float32."""
    own = settings_for(centred)
    assert own.mean is not None
    values = {**vars(own), "mean": list(own.mean)}
    assert Settings(**values) == own
    np.testing.assert_array_equal(own.mean_vector, centred.checkpoint.mean)
