"""hplus-small: the checkpoint that carries its own encoder."""

from pathlib import Path

import numpy as np

from hplus import HPlus
from hplus.installed import BUILT_IN
from hplus.origins import origins

FOLDER = BUILT_IN / "small"


def test_it_is_the_default_and_needs_no_other_package(small: HPlus) -> None:
    assert small.name == "small"
    assert all(at.place.startswith("package hplus") for at in origins(small.checkpoint))
    assert "thenlper/gte-small" in str(small)
    place = Path(small.checkpoint.backbone.reference["path"])
    assert place == FOLDER / "encoder"
    assert small.checkpoint.backbone.device == "onnxruntime int8"
    assert (place / "model.int8.safetensors").stat().st_size < 36_000_000
    assert small.languages == ["en"]


def test_its_units_are_phrases(small: HPlus) -> None:
    text = "Metformin lowers HbA1c in type 2 diabetes; warfarin 5 mg p.o. once daily, P < 0.001"
    assert [unit.text for unit in small.segment(text)[0]] == [
        "Metformin", "lowers", "HbA1c", "in", "type 2 diabetes", ";",
        "warfarin", "5 mg", "p.o.", "once daily", ",", "P < 0.001",
    ]  # fmt: skip


def test_it_ranks_by_every_view(small: HPlus) -> None:
    documents = [
        "Insulin treats type 1 diabetes.",
        "Loop diuretics lower potassium in the blood.",
        "Bridges are built of steel.",
    ]
    scores = small.score("low potassium caused by a diuretic", documents)
    for view, found in scores.views().items():
        assert found.argmax() == 1, view


def test_narrow_prefixes_keep_most_of_a_state(small: HPlus) -> None:
    """Rotated: the first columns have the largest variance."""
    states = small.states(["Loop diuretics lower potassium in the blood of adults."] * 2).states
    variance = (states - states.mean(axis=0)).var(axis=0)
    assert variance[:128].sum() > 2 * variance[128:].sum() / 2
    assert np.argmax(variance) < 64
