"""The file of a shard: a round trip, the same bytes every time, and no flipped bit goes unseen."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from brute_force import row_errors
from builders import assert_same, random_vectors
from hplus import HPlus, InputError
from hplus.bulk.documents import Documents
from hplus.bulk.encode import encode
from hplus.bulk.job import Job, job_of
from hplus.bulk.shard_file import read_about, read_shard
from hplus.errors import HPlusError
from hplus.storage.segment import FORMATS, Format, dequantise, global_format, quantise


@pytest.fixture
def shard(tmp_path: Path, tiny: HPlus, corpus: Path, job: Job) -> Path:
    encode(tiny, job, Documents(corpus, job), tmp_path, [2])
    return tmp_path / job.file(2)


@pytest.mark.parametrize("format", FORMATS)
def test_a_shard_holds_its_documents_and_their_encodings(
    tmp_path: Path, tiny: HPlus, corpus: Path, format: Format
) -> None:
    job = job_of(tiny, corpus, shards=5, format=format, width=16, budget=2)
    encode(tiny, job, Documents(corpus, job), tmp_path, [2])
    found = read_shard(tmp_path / job.file(2))
    documents = Documents(corpus, job).of(2)
    assert found.documents == documents
    assert documents[0].metadata == {"year": 4}
    parts = [tiny.encode_document([d.text], budget=job.budget, width=16) for d in documents]
    for i, fresh in enumerate(parts):
        kept = found.encoded[i]
        for mine, wanted, own in (
            (kept.global_, fresh.global_, global_format(format)),
            (kept.units.vectors, fresh.units.vectors, format),
        ):
            off = np.linalg.norm(mine - wanted, axis=1)
            assert (off <= row_errors(wanted, own, wanted.shape[1]) + 1e-6).all()
        assert_same(kept.units.spans, fresh.units.spans)
        assert_same(kept.lexical.ids, fresh.lexical.ids)
    assert read_about(tmp_path / job.file(2)) == (job, 2)


@given(st.integers(0, 2**32 - 1), st.floats(1e-6, 10), st.sampled_from(["int8", "int4"]))
def test_what_was_rounded_to_codes_once_stays_the_same(
    seed: int, scale: float, format: Format
) -> None:
    """So an index made from shards has the codes of one made from texts."""
    rows = random_vectors(np.random.default_rng(seed), 20, 16) * np.float32(scale)
    rows[3] = 0
    codes, scales = quantise(rows, format)
    again, their_scales = quantise(dequantise(codes, scales), format)
    np.testing.assert_array_equal(codes, again)
    assert scales is not None
    assert their_scales is not None
    np.testing.assert_array_equal(scales, their_scales)


def test_a_shard_without_documents_is_a_shard(tmp_path: Path, tiny: HPlus, corpus: Path) -> None:
    job = job_of(tiny, corpus, shards=40)
    empty = next(s for s in range(1, 41) if job.bounds(s)[0] == job.bounds(s)[1])
    encode(tiny, job, Documents(corpus, job), tmp_path, [empty])
    assert len(read_shard(tmp_path / job.file(empty))) == 0


def test_no_flipped_bit_goes_unseen(shard: Path) -> None:
    """Wherever it is: in the header, in an array, in the checksum itself."""
    whole = shard.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    draw = random.Random(0)
    places = [*range(8), *draw.sample(range(8, 8 + length), 150)]
    places += draw.sample(range(8 + length, len(whole)), 250)
    for place in places:
        content = bytearray(whole)
        content[place] ^= 1 << draw.randrange(8)
        shard.write_bytes(content)
        if place < 8 + length and whole[place] == ord(
            " "
        ):  # filling at the end of the header, which says nothing
            continue
        with pytest.raises(HPlusError, match=f"^{re.escape(str(shard))} "):
            read_shard(shard)


def test_a_file_cut_short_is_named(shard: Path) -> None:
    whole = shard.read_bytes()
    for size in (0, 7, 9, 500, len(whole) // 2, len(whole) - 1):
        shard.write_bytes(whole[:size])
        for read in (read_shard, read_about):
            with pytest.raises(
                InputError, match=r"00002-of-00005.safetensors is damaged: .* again"
            ):
                read(shard)


@pytest.mark.parametrize(
    ("format", "named"), [("int8", "hplus-shard-1"), ("int4", "hplus-shard-3")]
)
def test_a_shard_names_the_oldest_format_that_reads_it(
    tmp_path: Path,
    tiny: HPlus,
    corpus: Path,
    monkeypatch: pytest.MonkeyPatch,
    format: Format,
    named: str,
) -> None:
    """What a program does not know it must ask to be updated for, not call damaged."""
    from hplus.bulk import shard_file

    job = job_of(tiny, corpus, shards=5, format=format, width=16)
    encode(tiny, job, Documents(corpus, job), tmp_path, [2])
    path = tmp_path / job.file(2)
    with safe_open(path, "np") as file:
        assert json.loads(file.get_tensor("about").tobytes())["format"] == named
    for name in ("FORMAT", "WITH_MEAN", "WITH_INT4"):
        monkeypatch.setattr(shard_file, name, "hplus-shard-0")
    with pytest.raises(InputError, match=f"has format '{named}', .* update hplus"):
        read_about(path)


def test_a_checksum_of_garbage_does_not_make_it_a_shard(
    tmp_path: Path, tiny: HPlus, job: Job, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets that run backwards, for instance, from a program that is not this one."""
    from hplus.bulk import shard_file

    good = shard_file.arrays_of

    def spoilt(encoded: object) -> dict[str, object]:
        arrays = good(encoded)  # type: ignore[arg-type]
        return arrays | {"offsets": arrays["offsets"][::-1].copy()}

    monkeypatch.setattr(shard_file, "arrays_of", spoilt)
    encode(tiny, job, Documents(corpus, job), tmp_path, [1])
    with pytest.raises(InputError, match=r"00001-of-00005.* is damaged: units.offsets"):
        read_shard(tmp_path / job.file(1))


def test_texts_of_any_characters_come_back(tmp_path: Path, tiny: HPlus) -> None:
    texts = ["a\u2028b\nc\r\nd", "糖尿病", "\x00\x1f", "", '"\\n"']
    corpus = tmp_path / "odd.jsonl"
    corpus.write_text(
        "".join(json.dumps({"_id": str(i), "text": t}) + "\n" for i, t in enumerate(texts))
    )
    job = job_of(tiny, corpus, shards=1)
    encode(tiny, job, Documents(corpus, job), tmp_path, [1])
    found = read_shard(tmp_path / job.file(1))
    assert found.documents == Documents(corpus, job).of(1)
    assert [d.text for d in found.documents] == [text.strip() for text in texts]
