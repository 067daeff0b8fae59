"""What an index weighs: parts add up to the files, and the predicted saving is the real one."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from brute_force import TEXT, Corpus, QuickDisk, corpora, index_of
from builders import random_encoded
from hplus.index import Index
from hplus.storage import lists as ivf
from hplus.storage import sketches
from hplus.storage.segment import FORMATS, LARGEST, Format, Segment
from hplus.storage.stats import PARTS
from hplus.types import Encoded
from hplus.units.select import Budget

some = settings(deadline=None, max_examples=15)


def files(index: Index) -> list[dict[str, np.ndarray]]:
    """The arrays of every segment as safetensors reads them."""
    return [
        safetensors.numpy.load_file(path)
        for path in sorted((index.path / "segments").glob("*.safetensors"))
    ]


def test_every_array_belongs_to_one_part() -> None:
    named = [name for names in PARTS.values() for name in names]
    others = {"mean", "inverse_norms", "scales_of_width", "longest_rows"}
    assert sorted(named) == sorted({f.name for f in fields(Segment)} - others)


@some
@given(st.data(), corpora())
def test_counts_and_bytes_are_those_of_the_files(data: st.DataObject, corpus: Corpus) -> None:
    gone = data.draw(st.sets(st.integers(0, len(corpus) - 1)))
    with pytest.MonkeyPatch.context() as patch, index_of(corpus) as index:
        patch.setattr(sketches, "SKETCHED", 1)
        patch.setattr(ivf, "LISTED_DOCUMENTS", 1)
        index.add_encoded(["with lists"], random_encoded_like(corpus))
        index.delete([corpus.ids[i] for i in gone])
        found, arrays = index.stats(), files(index)
        for part, names in PARTS.items():
            assert found.bytes[part] == sum(
                segment[name].nbytes for segment in arrays for name in names if name in segment
            )
        everything = sum(array.nbytes for segment in arrays for array in segment.values())
        assert sum(found.bytes.values()) == everything
        assert found.segments == len(arrays)
        assert found.documents == len(index) == len(corpus) + 1 - len(gone)
        assert found.deleted == len(gone)
        assert found.catalogue > len(TEXT) * len(index)  # the texts are there already
        # What lives: the documents that were not deleted, and the one with lists.
        kept = np.array([i for i in range(len(corpus)) if i not in gone], np.int64)
        alive, extra = corpus.documents.take(kept), random_encoded_like(corpus)
        assert found.units == len(alive.units.weights) + len(extra.units.weights)
        assert found.tokens == alive.coverage.tokens.sum() + extra.coverage.tokens.sum()
        for name in ("importance", "kept"):
            sums = [getattr(one.coverage, name).sum(dtype="f8") for one in (alive, extra)]
            assert getattr(found, name) == pytest.approx(sum(sums), rel=1e-5)


def random_encoded_like(corpus: Corpus) -> Encoded:
    """One more document of three units, of the corpus' widths."""
    width = corpus.documents.units.width
    encoded = random_encoded(np.random.default_rng(7), [3], width)
    global_ = np.zeros((1, corpus.documents.global_.shape[1]), np.float32)
    return replace(encoded, global_=global_)


@pytest.mark.parametrize("policy", ["drop", "merge"])
@pytest.mark.parametrize("format", FORMATS)
def test_what_a_smaller_index_would_weigh_is_what_it_weighs(
    tmp_path: Path, format: Format, policy: str
) -> None:
    random = np.random.default_rng(0)
    lengths = [0, 1, 5, 8, 9, 17, 31, 40]
    encoded = random_encoded(random, lengths, 70)
    ids = [str(i) for i in range(len(lengths))]

    def create(name: str) -> Index:
        return Index.create(
            tmp_path / name,
            width=70,
            global_width=70,
            budget=Budget(40, policy=policy),  # type: ignore[arg-type]
            format=format,
            fingerprint="x",
            disk=QuickDisk(),
        )

    with create("whole") as index:
        index.add_encoded(ids[:4], encoded[:4])
        index.add_encoded(ids[4:], encoded[4:])
        index.delete("3")
        promised = index.stats().smaller
        assert set(promised) == {(b, w) for b in (8, 16, 32, 40) for w in (64, 70)}
        for (budget, width), size in promised.items():
            with create(f"{budget} {width}") as other:
                other.add_encoded(ids, encoded)
                other.delete("3")
                other.compact(budget=budget, width=width)
                (arrays,) = files(other)
                weighs = arrays["vectors"].nbytes
                weighs += arrays["scales"].nbytes if format in LARGEST else 0
                assert size == weighs == other.stats().bytes["units"]


def test_an_empty_index_weighs_nothing(tmp_path: Path) -> None:
    with Index.create(
        tmp_path / "index", width=8, global_width=8, fingerprint="x", disk=QuickDisk()
    ) as index:
        found = index.stats()
        assert (found.documents, found.units, found.segments, found.tokens) == (0, 0, 0, 0)
        assert set(found.bytes.values()) == {0}
        assert found.smaller == {}


def test_the_catalogue_weighs_what_its_file_will(tmp_path: Path) -> None:
    """While a reader is open, the latest changes are in a log beside the file."""
    path = tmp_path / "index"
    with Index.create(path, width=8, global_width=8, fingerprint="x", disk=QuickDisk()) as index:
        encoded = random_encoded(np.random.default_rng(0), [1] * 50)
        index.add_encoded(list(map(str, range(50))), encoded, texts=["long " * 2000] * 50)
        found = index.stats().catalogue
    assert found == (path / "catalogue.sqlite").stat().st_size > 500_000


def test_lists_and_sketches_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketches, "SKETCHED", 2)
    monkeypatch.setattr(ivf, "LISTED_DOCUMENTS", 2)
    with Index.create(
        tmp_path / "index", width=8, global_width=8, fingerprint="x", disk=QuickDisk()
    ) as index:
        index.add_encoded(["a", "b"], random_encoded(np.random.default_rng(0), [7, 6]))
        # One centroid of eight float32, two offsets and both documents.
        assert index.stats().bytes["lists"] == 1 * 8 * 4 + 2 * 8 + 2
        # Two sketches of one column, one anchor and its part in the map.
        assert index.stats().bytes["sketches"] == 2 * 1 + 8 + 4
