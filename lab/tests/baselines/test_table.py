"""The rows themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hplus.errors import InputError
from hplus_lab.baselines import (
    BASELINES,
    Baseline,
    available,
    cut_at,
    named,
)

PAPER = {
    *(f"qwen3-embedding-{size}{cut}" for size in ("0.6b", "4b", "8b") for cut in ("", "-mrl128")),
    *("bge-m3", "bge-m3-colbert", "embeddinggemma", "embeddinggemma-mrl128"),
    *("multilingual-e5-large-instruct", "gte-multilingual-base", "lateon-hpool", "colbertv2"),
}
AT_HAND = (
    *("bm25", "all-minilm-l6-v2", "bge-small-en-v1.5", "e5-small-v2"),
    *("answerai-colbert-small-v1-states", "ms-marco-minilm-l12-v2", "gte-small"),
)


def test_cutting_shorter_than_the_card_says() -> None:
    bge = named("bge-small-en-v1.5")
    assert (cut_at(bge, 256).max_tokens, cut_at(bge, 9_999)) == (256, bge)
    assert cut_at(named("bm25"), 256) == named("bm25")  # it reads words, all of them


def test_the_paper_s_configurations_are_there() -> None:
    assert set(BASELINES) == PAPER | set(AT_HAND)
    for name in PAPER:
        if name.endswith("-mrl128"):
            native = named(name.removesuffix("-mrl128"))
            assert replace(native, name=name, width=128) == named(name)
    with pytest.raises(InputError, match="there is no baseline 'bge'; known: bm25, "):
        named("bge")


@pytest.mark.parametrize("row", BASELINES.values(), ids=lambda row: row.name)
def test_a_row_is_sound_and_says_what_is_missing(row: Baseline, tmp_path: Path) -> None:
    assert (row.width > 0) == (row.kind in ("dense", "multi-vector"))
    assert (row.pooling == "token") == (row.kind in ("multi-vector", "sparse"))
    assert bool(row.query_marker) == bool(row.document_marker)
    assert not row.late.expand or row.late.query_tokens
    assert row.licence
    assert all(len(digest) == 64 for _, digest in row.weights.files)
    found = available(row, folder=tmp_path)
    assert bool(found) == (not found.missing)
    if not found:
        assert found.missing.startswith(row.name)
        assert "\n" not in found.missing
