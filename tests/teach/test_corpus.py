"""Files to labelled texts: what is left out, what is chosen, and where the chunker divides."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hplus import CheckpointError, HPlus, checkpoint
from hplus.heads.crf import CRF, I
from hplus.recipe import Recipe
from hplus.teach.corpus import Source, label_file, noun_phrases, source_name
from hplus.teach.duplicates import collect
from hplus.teach.marked import Marked
from hplus.types import Span
from hplus.units.terms import Terms

LONG = "chronic kidney disease of the heart is a failure of sodium and potassium in a patient"


def crf_of(dim: int, *, bias: tuple[float, float, float], noise: float = 0) -> CRF:
    draw = np.random.default_rng(0).normal
    parts = [draw(0, noise, shape).astype(np.float32) for shape in ((3, dim), (3, 3), 3, 3)]
    return CRF(parts[0], np.array(bias, np.float32), *parts[1:])


def chunker_of(tiny: HPlus, folder: Path, crf: CRF) -> HPlus:
    recipe = Recipe(name="chunker", units="crf", window=64, trained=("crf",))
    return HPlus(checkpoint.save(folder, replace(tiny.checkpoint, recipe=recipe, crf=crf)))


@pytest.fixture(scope="module")
def whole(tiny: HPlus, tmp_path_factory: pytest.TempPathFactory) -> HPlus:
    """A chunker to which every text is one noun phrase."""
    bias = tuple(float(tag == I) for tag in range(3))
    return chunker_of(tiny, tmp_path_factory.mktemp("whole") / "x", crf_of(tiny.dim, bias=bias))  # type: ignore[arg-type]


@pytest.fixture
def plain(tmp_path: Path) -> dict[str, Any]:
    """Options of a run without terms and chunker."""
    return {
        "terms": None,
        "chunker": None,
        "length": "noun-phrase",
        "apart_from": None,
        "cache": tmp_path / "cache",
    }


def written(folder: Path, *rows: str | dict[str, Any], name: str = "rows.jsonl") -> Path:
    path = folder / name
    objects = ({"text": row} if isinstance(row, str) else row for row in rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in objects))
    return path


def texts(source: Source) -> list[str]:
    return [item.text for item in source.labels]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("spans/craft_np/train.jsonl.gz", "craft_np"),
        ("spans/craft_np/dev.jsonl", "craft_np"),
        ("craft_np/test.txt", "craft_np"),
        ("notes.txt", "notes"),
        ("some/where/notes.v2.jsonl.gz", "notes"),
        ("some/training.jsonl", "training"),
        ("train.jsonl", "train"),
        ("/train.jsonl", "train"),
    ],
)
def test_source_name(path: str, name: str) -> None:
    assert source_name(Path(path)) == name


def test_every_text_is_labelled(tmp_path: Path, plain: dict[str, Any]) -> None:
    path = written(
        tmp_path,
        {"text": "heart failure", "spans": [[0, 13, "Disease"]]},
        {"text": "cell by plate", "segments": ["cell", "by plates"]},
        {"query": "type 2 diabetes", "positive": "5 mg"},
    )
    source = label_file(path, **plain | {"terms": Terms(["type 2 diabetes"])})
    assert source.name == "rows"
    assert texts(source) == ["heart failure", "cell by plate", "type 2 diabetes", "5 mg"]
    assert [item.layers for item in source.labels] == [
        ("gold",),
        ("gold", "word"),
        ("term",),
        ("rule",),
    ]
    assert source.dropped == {"segments that do not occur": 1}
    assert not (tmp_path / "cache").exists(), "without a chunker nothing is encoded"


def test_an_empty_file(tmp_path: Path, plain: dict[str, Any], whole: HPlus) -> None:
    path = written(tmp_path)
    for chunker in (None, whole):
        assert label_file(path, **plain | {"chunker": chunker}) == Source("rows", [], {})


def test_a_repeated_text_is_labelled_once(tmp_path: Path, plain: dict[str, Any]) -> None:
    path = written(tmp_path, "one", "two", "one", "two ", "one", "three")
    assert texts(label_file(path, **plain)) == ["one", "two", "two ", "three"]


def test_the_repeated_one_is_left_out(tmp_path: Path, plain: dict[str, Any]) -> None:
    marked = {"text": "heart failure", "spans": [[0, 13, "Disease"]]}
    source = label_file(written(tmp_path, marked, "heart failure"), **plain)
    assert source.labels[0].layers == ("gold",)


def test_near_duplicates_of_evaluation_texts_are_left_out(
    tmp_path: Path, plain: dict[str, Any]
) -> None:
    edited = LONG.replace("patient", "person")
    inside = " ".join(LONG.split()[2:12])
    path = written(tmp_path, "heart failure", edited, "of another kind", inside, LONG.upper())
    source = label_file(path, **plain | {"apart_from": collect([LONG, "unrelated words"])})
    assert texts(source) == ["heart failure", "of another kind"]
    assert source.dropped == {"texts near an evaluation text": 3}
    away = label_file(path, **plain | {"apart_from": collect(["unrelated words"])})
    assert len(away.labels) == 5
    assert away.dropped == {}


def test_a_sample_is_chosen_by_the_seed(tmp_path: Path, plain: dict[str, Any]) -> None:
    path = written(tmp_path, *(f"text {i:02d}" for i in range(40)))
    everything = texts(label_file(path, **plain))

    def sample(count: int, seed: int = 13) -> list[str]:
        return texts(label_file(path, **plain, sample=count, seed=seed))

    assert len(everything) == 40
    some = sample(10)
    assert len(set(some)) == 10
    assert some == sorted(some), "in the order of the file"
    assert sample(10) == some
    assert sample(10, seed=14) != some
    assert sample(40) == sample(99) == everything
    # Each text has its chance: 40 * 0.75 ** 60 is about one in a million.
    assert set().union(*(sample(10, seed) for seed in range(60))) == set(everything)


def test_a_text_is_labelled_alike_in_a_sample(
    tmp_path: Path, plain: dict[str, Any], whole: HPlus
) -> None:
    path = written(tmp_path, *(f"heart failure of type {i} disease" for i in range(8)))
    full = label_file(path, **plain | {"chunker": whole}).labels
    some = label_file(path, **plain | {"chunker": whole}, sample=3).labels
    assert some == [item for item in full if item in some]
    assert some[0].layers == ("noun phrase", "noun phrase")


# The chunker


def test_the_chunkers_phrases_are_cut_at_function_words(
    tmp_path: Path, plain: dict[str, Any], whole: HPlus
) -> None:
    path = written(
        tmp_path,
        "heart failure of the kidney disease",
        {"text": "heart failure of the kidney disease!", "spans": [[21, 35, "NP"]]},
        {"text": "acute heart failure therapy", "spans": [[6, 19, "Disease"]]},
        "",
    )
    options = plain | {"chunker": whole, "terms": Terms(["heart failure"])}
    chunked = label_file(path, **options)
    assert [item.layers for item in chunked.labels] == [
        ("noun phrase", "noun phrase"),
        ("term", "noun phrase"),
        ("word", "gold", "word"),
        (),
    ]
    assert chunked.labels[0].units == (Span(0, 13), Span(21, 35))
    without = label_file(path, **options | {"chunker": None})
    assert without.labels[0].layers == ("term", "word", "word")
    minimal = label_file(path, **options | {"length": "minimal"})
    assert minimal.labels[0].layers == ("term", "word", "word")


def test_noun_phrases_are_the_units_of_the_chunker(tiny: HPlus, tmp_path: Path) -> None:
    """Any trained CRF will do: its units as `segment` shows them."""
    crf = crf_of(tiny.dim, bias=(0, 0, 0), noise=1)
    chunker = chunker_of(tiny, tmp_path / "chunker", crf)
    some = [LONG, "", "糖尿病患者的治疗", "type 2 diabetes", "of"]
    found = noun_phrases(chunker, [Marked(text) for text in some], tmp_path / "cache", "some")
    assert found == [[Span(u.start, u.end) for u in units] for units in chunker.segment(some)]
    assert 1 < len(found[0]) < len(LONG.split()), "some words are together, not all"
    for spans in found:
        assert all(a.end <= b.start for a, b in pairwise(spans))


def test_encoded_texts_are_kept_for_the_next_run(
    tmp_path: Path, plain: dict[str, Any], whole: HPlus, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, "heart failure", LONG)
    options = plain | {"chunker": whole}
    first = label_file(path, **options)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("encoded again")

    monkeypatch.setattr("hplus.states_file.encode_states", never)
    assert label_file(path, **options) == first


def test_a_model_without_a_crf_is_not_a_chunker(
    tmp_path: Path, plain: dict[str, Any], tiny: HPlus
) -> None:
    with pytest.raises(CheckpointError, match="no trained CRF to find noun phrases with"):
        label_file(written(tmp_path, "heart failure"), **plain | {"chunker": tiny})
