"""hplus-zh: the Chinese model, in a package of its own."""

from pathlib import Path

import pytest

from hplus import HPlus, Index, checkpoint, installed
from hplus.errors import CheckpointError
from hplus.evaluate.data import demo_folder, read_beir
from hplus.unknown import Count

FRACTURE = "骨折后应及时复位固定，避免移位。"
CANCER = "胃癌患者常有上腹部疼痛、消瘦和黑便。"


@pytest.fixture(scope="module")
def zh() -> HPlus:
    return HPlus("zh")


@pytest.fixture
def _without_zh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed.importlib.util, "find_spec", lambda _: None)


def test_it_is_found_by_name_and_says_what_it_is(zh: HPlus) -> None:
    assert zh.name == "zh"
    assert zh.languages == ["zh"]
    assert zh.recipe.trained == ("crf", "importance")
    assert zh.recipe.pooling == "cls"
    assert "zh" in installed.names()
    notes = zh.checkpoint.notes
    assert {*notes["training"]["labels"], *notes["training"]["pairs"]} <= set(notes["data"])


def test_what_is_shipped_is_small_and_has_a_card() -> None:
    folder = installed.folder_of("zh")
    assert folder is not None
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 30_000_000
    assert "licence" in (folder / "README.md").read_text("utf-8").lower()


def test_words_of_several_characters_are_units(zh: HPlus) -> None:
    text = "糖尿病患者应定期检查视网膜，高血压也会引起头痛。"
    units = [unit.text for unit in zh.segment(text)[0]]
    assert {"糖尿病", "患者", "视网膜", "高血压", "头痛"} <= set(units)
    assert "".join(units) == text


def test_little_of_chinese_is_unknown(zh: HPlus) -> None:
    """A few rare characters (砜, 钇) are; abbreviations in capitals are not."""
    assert zh.count_unknown(["糖尿病患者的CT、MRI与B超检查，HbA1c 7.5%"]).unknown == 0
    texts = read_beir(demo_folder("zh"))
    assert zh.count_unknown(texts.documents).share < 0.01
    assert zh.count_unknown(texts.queries).share < 0.01


def test_a_fracture_does_not_find_a_cancer(zh: HPlus, tmp_path: Path) -> None:
    rows = [{"id": "cancer", "text": CANCER}, {"id": "fracture", "text": FRACTURE}]
    with Index.create(tmp_path / "index", zh) as index:
        index.add(rows)
        best, second = index.search("骨折")
    assert (best.id, second.id) == ("fracture", "cancer")
    assert best.score > 2 * second.score
    views = zh.score("骨折", [CANCER, FRACTURE]).views()
    assert views["lexical"][0] == 0
    for found in views.values():
        assert found.argmax() == 1


@pytest.mark.usefixtures("_without_zh")
def test_one_sentence_says_how_to_install_it() -> None:
    for attempt in (HPlus, checkpoint.locate):
        with pytest.raises(CheckpointError, match=r"not installed: pip install \./models/zh"):
            attempt("zh")
    unknown = Count(tokens=4, unknown=3, chinese=True)
    assert unknown.advice("it", "small").endswith("take the model zh (pip install ./models/zh)")


def test_the_advice_of_an_english_model_is_the_model_zh() -> None:
    unknown = Count(tokens=4, unknown=3, chinese=True)
    assert unknown.advice("it", "hplus-small").endswith("take the model zh")
    assert "take an encoder" in unknown.advice("it", "hplus-zh")
