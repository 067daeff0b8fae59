"""Labels survive a round trip; bad ones are named; figures are counted by hand."""

import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hplus.backbones.tokenizer import Tokenizer
from hplus.errors import InputError
from hplus.teach.label_file import PAPER, read_labels, statistics, write_labels
from hplus.teach.labels import LAYERS, Labelled, label
from hplus.teach.marked import Marked
from hplus.types import Span
from tiny import tiny_tokenizer

HEART = Labelled("the heart failure", (Span(4, 17),), ("gold",))
HAN = Labelled("糖尿病 and 5 mg", (Span(0, 3), Span(8, 12)), ("term", "rule"))
NONE = Labelled("of the\n", (), ())


def tokens_of(labels: list[Labelled]) -> Any:
    return Tokenizer(tiny_tokenizer()).tokens([item.text for item in labels])


# Files


@pytest.mark.parametrize("name", ["labels.jsonl", "labels.jsonl.gz"])
def test_what_is_written_is_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / "deep" / "down" / name
    rows = [("a", HEART), ("b", HAN), ("a", NONE), ("a", HEART)]
    assert write_labels(path, iter(rows)) == 4
    assert read_labels(path) == {"a": [HEART, NONE, HEART], "b": [HAN]}
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")
    assert [file.name for file in path.parent.iterdir()] == [name]


def test_a_row_is_plain_json(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    write_labels(path, [("zh", HAN)])
    assert json.loads(path.read_text("ascii")) == {
        "source": "zh",
        "text": "糖尿病 and 5 mg",
        "units": [[0, 3, "term"], [8, 12, "rule"]],
    }


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_the_same_labels_give_the_same_bytes(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the file is called, at any time, and on a second writing over the first."""
    first, second = tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"
    rows = [("a", HEART), ("b", HAN)]
    for hour, path in enumerate((first, second, first)):
        monkeypatch.setattr(time, "time", lambda hour=hour: 3600.0 * hour)
        write_labels(path, rows)
        monkeypatch.undo()
    assert first.read_bytes() == second.read_bytes()


def test_files_are_read_one_after_another(tmp_path: Path) -> None:
    one, two = tmp_path / "1.jsonl", tmp_path / "2.jsonl.gz"
    write_labels(one, [("a", HEART), ("b", HAN)])
    write_labels(two, [("c", NONE), ("a", NONE)])
    found = read_labels(one, two)
    assert list(found) == ["a", "b", "c"]
    assert found["a"] == [HEART, NONE]
    assert list(read_labels(two, one)) == ["c", "a", "b"]


def test_a_failed_writing_leaves_the_old_labels(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    write_labels(path, [("a", HEART)])

    def broken() -> Iterator[tuple[str, Labelled]]:
        yield "b", HAN
        raise InputError("no more")

    with pytest.raises(InputError, match="no more"):
        write_labels(path, broken())
    assert read_labels(path) == {"a": [HEART]}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text(max_size=30), st.data())
def test_any_labels_come_back(tmp_path: Path, text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    units = tuple(Span(a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=False))
    layers = tuple(data.draw(st.sampled_from(LAYERS)) for _ in units)
    path = tmp_path / "any.jsonl.gz"
    write_labels(path, [("s", Labelled(text, units, layers)), ("s", label(Marked(text)))])
    assert read_labels(path) == {"s": [Labelled(text, units, layers), label(Marked(text))]}


def test_a_lone_surrogate_comes_back(tmp_path: Path) -> None:
    item = label(Marked("heart \ud800 failure"))
    write_labels(tmp_path / "labels.jsonl", [("a", item)])
    assert read_labels(tmp_path / "labels.jsonl") == {"a": [item]}


@pytest.mark.parametrize(
    "unit",
    [
        [0, 6, "word"],
        [-1, 2, "word"],
        [3, 3, "word"],
        [4, 3, "word"],
        [1, 3, "word"],
        [2, 5, "phrase"],
        [2, 5],
        [2, 5, "word", 1],
        [2, 5.0, "word"],
        [2, 5, None],
        "word",
        None,
    ],
)
def test_a_bad_unit_is_named_by_its_line(tmp_path: Path, unit: Any) -> None:
    path = tmp_path / "bad.jsonl"
    rows = [{"source": "a", "text": "heart", "units": [[0, 2, "word"]]} for _ in range(2)]
    rows[1]["units"] = [[0, 2, "word"], unit]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError) as error:
        read_labels(path)
    assert str(error.value) == (
        f"{path}:2: expected units [start, end, layer] in reading order within 5 characters, "
        f"got {json.dumps(unit)}"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"source": "a", "text": "heart"}', "got null"),
        ('{"source": "a", "text": "heart", "units": "word"}', 'got "word"'),
        ('{"text": "heart", "units": []}', "lacks source"),
        ('{"source": "a", "units": []}', "lacks text"),
        ('{"source": 1, "text": null, "units": []}', "lacks source and text"),
        ("[]", "lacks source and text"),
        ("{", "is not JSON"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_bad_row_is_named_by_its_line(
    tmp_path: Path, line: str, message: str, packed: bool
) -> None:
    path = tmp_path / "bad.jsonl"
    data = f'{{"source": "a", "text": "heart", "units": []}}\n{line}\n'.encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(InputError) as error:
        read_labels(path)
    assert f"{path}:2" in str(error.value)
    assert message in str(error.value)


@pytest.mark.parametrize("units", ["5", "null", "true", "{}", '[[false, true, "word"]]'])
def test_units_that_are_no_list_are_named_too(tmp_path: Path, units: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(f'{{"source": "a", "text": "heart", "units": {units}}}')
    with pytest.raises(InputError, match=r"bad\.jsonl:1"):
        read_labels(path)


def test_no_labels(tmp_path: Path) -> None:
    one, two = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    assert write_labels(one, []) == 0
    two.touch()
    with pytest.raises(InputError, match=r"1\.jsonl, .*2\.jsonl has no labels"):
        read_labels(one, two)
    with pytest.raises(InputError, match=r"none\.jsonl is missing"):
        read_labels(tmp_path / "none.jsonl")


# Figures


def test_statistics_counted_by_hand() -> None:
    labels = [
        # the | z ##z | heart failure | gene
        Labelled(
            "the zz heart failure gene",
            (Span(4, 6), Span(7, 20), Span(21, 25)),
            ("word", "gold", "word"),
        ),
        # of | x ##y ##z: no unit, but the pieces of a word are one segment
        Labelled("of xyz", (), ()),
        Labelled("", (), ()),
        # 糖 尿 病 | 5 mg / kg
        Labelled("糖尿病 5 mg/kg", (Span(0, 3), Span(4, 11)), ("term", "rule")),
        # type 2: a unit of several words
        Labelled("type 2", (Span(0, 6),), ("noun phrase",)),
    ]
    figures = statistics(labels, tokens_of(labels))
    assert figures == {
        "texts": 5,
        "tokens": 6 + 4 + 0 + 7 + 2,
        "units": 6,
        "gold": 1,
        "term": 1,
        "rule": 1,
        "noun phrase": 1,
        "word": 2,
        "pattern": 0,
        "units of several words": 3,
        "share of several words": 0.5,
        # zz, heart failure, xyz, 糖尿病, 5 mg/kg, type 2
        "multi-token segments": 6,
        "median tokens": 2.5,
        "mean tokens": (2 + 2 + 3 + 3 + 4 + 2) / 6,
        "longest text in tokens": 7,
    }
    assert list(figures)[3:9] == list(LAYERS)


def test_statistics_of_nothing() -> None:
    figures = statistics([], tokens_of([]))
    assert figures.pop("share of several words") == 0
    assert set(figures.values()) == {0}
    assert statistics([NONE], tokens_of([NONE]))["tokens"] == 2


def test_a_segment_never_spans_two_texts() -> None:
    labels = [Labelled("gene", (Span(0, 4),), ("word",))] * 3
    assert statistics(labels, tokens_of(labels))["multi-token segments"] == 0


def test_the_papers_figures() -> None:
    assert list(PAPER) == ["multi-token segments", "median tokens", "mean tokens"]
    assert set(PAPER) <= set(statistics([HEART], tokens_of([HEART])))
