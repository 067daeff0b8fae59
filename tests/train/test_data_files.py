"""Training data on disk: the rows that lists in memory would have, whatever they are read from."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import toy  # noqa: E402
from hplus.errors import InputError  # noqa: E402
from hplus.teach.align import tags_of_units  # noqa: E402
from hplus.teach.groups import Bad, Group  # noqa: E402
from hplus.train import data_files  # noqa: E402
from hplus.train.config import Config  # noqa: E402
from hplus.train.data import Batches, Data  # noqa: E402
from hplus.train.data_files import open_data, write_data  # noqa: E402
from hplus.train.texts import read_texts  # noqa: E402
from hplus.types import Span  # noqa: E402

NOTHING = "\u200b"  # what BERT's normaliser takes away


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return toy.base(toy.encoder(tmp_path_factory.mktemp("toy") / "encoder"))


def settings() -> Config:
    config = Config()
    return replace(config, data=replace(config.data, query_length=6, document_length=7))


def written(
    base: Any,
    folder: Path,
    rows: Sequence[Group],
    labels: Sequence[tuple[str, Sequence[Span]]] = (),
    bad: Bad | None = None,
) -> Data:
    bad = bad or Bad(rows=len(rows))
    write_data(folder, rows, labels, base.backbone, base.recipe, settings(), bad)
    return open_data(folder, base.backbone, base.recipe, settings())


def rows_with_repeats() -> list[Group]:
    """Queries and documents again, another order of them, labels on some, one row unscored."""
    rows = [*toy.groups(9), *toy.groups(3)]
    rows[1] = replace(rows[1], source="other", scores=None)
    rows[10] = replace(rows[10], documents=rows[10].documents[::-1], query_units=(Span(0, 3),))
    rows[4] = replace(rows[4], positive_units=(Span(2, 6),))
    rows[5] = replace(rows[5], query="kidney \ud800 病", query_units=None)
    return rows


@pytest.mark.parametrize("step", [1, 4, 512])
def test_rows_are_those_of_lists_in_memory(
    base: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr(data_files, "STEP", step)
    rows = rows_with_repeats()
    labels = [(rows[4].documents[0], [Span(0, 2)]), (rows[5].query, [Span(0, 1)])]
    labels += [(rows[5].query, [Span(0, 6)]), (rows[6].documents[1], [Span(0, 4)])]
    data = written(base, tmp_path / "data", rows, labels)

    texts = list(dict.fromkeys(text for row in rows for text in row.documents))
    for side, stored, expected in (
        ("query", data.queries, [row.query for row in rows]),
        ("document", data.documents, texts),
    ):
        length = 6 if side == "query" else 7
        read = read_texts(expected, base.backbone, base.recipe, side, length)  # type: ignore[arg-type]
        some = stored.take(np.arange(len(expected))[::-1])
        assert list(some.tokens.texts) == expected[::-1]
        assert (stored.tokens.ids == read.tokens.ids).all()
        assert (stored.tokens.spans == read.tokens.spans).all()
        assert (stored.tokens.offsets == read.tokens.offsets).all()
        assert (stored.lengths == read.lengths).all()
        assert len(stored) == len(expected)

    answers: dict[str, set[int]] = {}
    for row in rows:
        answers.setdefault(row.query, set()).add(texts.index(row.documents[0]))
    for i, row in enumerate(rows):
        members, scores = data.group(i)
        assert members.tolist() == [texts.index(text) for text in row.documents]
        assert scores.tolist() == list(row.scores or [-np.inf] * len(row.documents))
        assert set(data.answers_of(i).tolist()) == answers[row.query]
    assert {k: v.tolist() for k, v in data.by_source.items()} == {
        "other": [1],
        "toy": [0, *range(2, 12)],
    }

    # The last label counts, and a group's own more than a file's.
    known = [dict(labels), dict(labels)]
    for row in rows:
        if row.query_units is not None:
            known[0][row.query] = row.query_units
        if row.positive_units is not None:
            known[1][row.documents[0]] = row.positive_units
    sides = (
        (data.queries, data.query_tags, data.query_labelled),
        (data.documents, data.document_tags, data.document_labelled),
    )
    for own, (stored, tags, labelled) in zip(known, sides, strict=True):
        every = stored.take(np.arange(len(stored))).tokens
        assert labelled.tolist() == [text in own for text in every.texts]
        expected_tags = tags_of_units(every, [own.get(text, ()) for text in every.texts])
        counts = np.repeat(labelled, np.diff(every.offsets))
        assert (tags[counts] == expected_tags[counts]).all()
        assert labelled.any()


def test_a_text_without_tokens_is_named_by_its_place(base: Any, tmp_path: Path) -> None:
    """The row is left out; documents it shares with others are numbered as if it were not there."""
    fine = [replace(row, place=f"a.jsonl:{i}") for i, row in enumerate(toy.groups(200))]
    first = replace(fine[3], documents=(*fine[2].documents[::-1], NOTHING), scores=None)
    rows = [fine[0], replace(first, place="b.jsonl:7"), *fine[1:]]
    rows.append(replace(fine[0], query=NOTHING, place="b.jsonl:9"))
    bad = Bad(rows=len(rows))
    data = written(base, tmp_path / "data", rows, bad=bad)
    assert bad.kinds == {"a text without tokens": 2}
    assert bad.places == [
        f"b.jsonl:7: a text without tokens ({NOTHING!r})",
        f"b.jsonl:9: a text without tokens ({NOTHING!r})",
    ]
    alone = written(base, tmp_path / "alone", fine)
    for name in ("members", "bounds", "scores", "question"):
        assert (getattr(data, name) == getattr(alone, name)).all(), name
    assert data.documents.strings(np.arange(9)) == alone.documents.strings(np.arange(9))


def test_many_texts_without_tokens_are_refused(base: Any, tmp_path: Path) -> None:
    rows = [replace(row, place=f"a.jsonl:{i + 1}") for i, row in enumerate(toy.groups(9))]
    rows[4] = replace(rows[4], documents=(*rows[4].documents[:3], NOTHING))
    with pytest.raises(InputError, match=r"1 of 9 rows are bad.* a\.jsonl:5: a text without token"):
        written(base, tmp_path / "data", rows)


def test_data_of_an_interrupted_run_are_replaced(base: Any, tmp_path: Path) -> None:
    """Files are appended to while they are written, so nothing old may be left in them."""

    def interrupted() -> Any:
        yield from toy.groups(700)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        written(base, tmp_path / "data", interrupted(), bad=Bad())
    assert (tmp_path / "data" / "query.ids").stat().st_size
    data = written(base, tmp_path / "data", toy.groups(9))
    assert len(data.queries) == 9
    assert len(data.members) == 36


def test_memory_does_not_grow_with_the_texts(
    base: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of 2 KB each, written and a batch made of them; lists of them took 2.5 KB a row."""
    monkeypatch.setattr(data_files, "STEP", 8)
    config = replace(settings(), batch=replace(settings().batch, queries=8))

    def peak(count: int) -> int:
        long = (
            Group("a", f"dose {i:04}", (f"{i:04}" + " heart failure" * 140, "cell"))
            for i in range(count)
        )
        tracemalloc.start()
        data = written(base, tmp_path / str(count), long, bad=Bad())  # type: ignore[arg-type]
        Batches(data, config).at(0)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(40)  # modules and caches
    assert peak(160) - peak(40) < 120 * 1000
