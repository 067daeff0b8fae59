"""hplus-mini2: hplus-small in six layers, in a package of its own."""

import numpy as np
import pytest

from hplus import HPlus, installed
from hplus.evaluate.data import demo_folder, read_beir

DEMO = read_beir(demo_folder("en"))


@pytest.fixture(scope="module")
def mini2() -> HPlus:
    return HPlus("mini2")


def test_it_is_found_by_name_and_says_what_it_is(mini2: HPlus) -> None:
    assert mini2.name == "mini2"
    assert mini2.languages == ["en"]
    assert mini2.checkpoint.backbone.depth == 6
    assert "encoder" in mini2.recipe.trained
    assert "mini2" in installed.names()
    notes = mini2.checkpoint.notes
    assert {*notes["training"]["labels"], *notes["training"]["pairs"]} <= set(notes["data"])
    assert notes["stage2"]["validations"]


def test_what_is_shipped_is_small_and_has_a_card() -> None:
    folder = installed.folder_of("mini2")
    assert folder is not None
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 30_000_000
    assert "licence" in (folder / "README.md").read_text("utf-8").lower()


def test_it_is_like_the_model_that_taught_it(mini2: HPlus, small: HPlus) -> None:
    """Nearly the same units and importance, global vectors that point alike."""
    texts = DEMO.documents[:40]
    own, its = (model.encode_document(texts) for model in (mini2, small))
    assert np.mean(np.sum(own.global_ * its.global_, axis=1)) > 0.96
    units = [
        {
            (number, unit.start, unit.end): unit.weight
            for number, found in enumerate(model.segment(texts))
            for unit in found
        }
        for model in (mini2, small)
    ]
    shared = sorted(units[0].keys() & units[1].keys())
    assert len(shared) > 0.97 * max(map(len, units))
    weights = np.array([[of[unit] for unit in shared] for of in units])
    assert np.corrcoef(weights)[0, 1] > 0.99


def test_it_finds_what_is_asked(mini2: HPlus) -> None:
    """For most of the demo's questions the nearest global vector is that of an answer."""
    documents = mini2.encode_document(DEMO.documents).global_
    queries = mini2.encode_query(DEMO.queries).global_
    best = (queries @ documents.T).argmax(axis=1)
    right = [
        DEMO.judgements[query].get(DEMO.document_ids[place], 0) > 0
        for query, place in zip(DEMO.query_ids, best, strict=True)
    ]
    assert np.mean(right) > 0.6
