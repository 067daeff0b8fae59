"""BM25 against the formula written out, and its stems, ties and empty cases by hand."""

import logging
import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hplus.errors import InputError, MissingExtraError
from hplus.evaluate import bm25
from hplus.evaluate.bm25 import BM25, stems

# Words that are their own stems, so that the formula needs no stemmer; and words without a match.
VOCABULARY = ["heart", "liver", "lung", "fever", "cough", "0.5", "mg", "the", "of", "-"]
texts = st.lists(st.sampled_from(VOCABULARY), max_size=8).map(" ".join)
corpora = st.lists(texts, max_size=6)


def written_out(query: str, documents: list[str], k1: float = 0.9, b: float = 0.4) -> list[float]:
    """Lucene's BM25 of every document, term by term in float64."""
    kept = set(VOCABULARY) - {"the", "of", "-"}
    corpus = [[word for word in document.split() if word in kept] for document in documents]
    mean = sum(map(len, corpus)) / max(len(corpus), 1)
    scores = []
    for document in corpus:
        score = 0.0
        for term in query.split():
            df = sum(term in other for other in corpus)
            tf = document.count(term)
            if tf:
                idf = math.log(1 + (len(corpus) - df + 0.5) / (df + 0.5))
                score += idf * tf / (tf + k1 * (1 - b + b * len(document) / mean))
        scores.append(score)
    return scores


def test_one_score_by_hand() -> None:
    # N = 2, df = 1, tf = 2, length 3 of mean 2.
    expected = math.log(2) * 2 / (2 + 0.9 * (0.6 + 0.4 * 3 / 2))
    corpus = BM25(["heart lung heart", "fever"])
    np.testing.assert_allclose(corpus.scores("hearts"), [expected, 0], rtol=1e-6)


@given(texts, corpora, st.floats(0, 3), st.floats(0, 1))
def test_scores_are_the_formula(query: str, documents: list[str], k1: float, b: float) -> None:
    scores = BM25(documents, k1=k1, b=b).scores(query)
    assert scores.dtype == np.float32
    assert scores.shape == (len(documents),)
    np.testing.assert_allclose(scores, written_out(query, documents, k1, b), rtol=1e-5)


@given(st.lists(texts, max_size=3), corpora, st.integers(1, 8))
def test_search_is_a_stable_sort_of_the_scores(
    queries: list[str], documents: list[str], k: int
) -> None:
    corpus = BM25(documents)
    found, scores = corpus.search(queries, k)
    assert found.dtype == np.int64
    assert scores.dtype == np.float32
    assert found.shape == scores.shape == (len(queries), min(k, len(documents)))
    for query, row, row_scores in zip(queries, found, scores, strict=True):
        every = corpus.scores(query)
        assert row.tolist() == sorted(range(len(documents)), key=lambda i: (-every[i], i))[:k]
        assert row_scores.tolist() == every[row].tolist()


def test_ties_go_by_index_within_and_at_the_cut() -> None:
    documents = ["fever", "heart", "lung heart heart", "heart", "cough", "heart"]
    found, _ = BM25(documents, k1=0, b=0).search(["heart", "liver"], 3)
    assert found.tolist() == [[1, 2, 3], [0, 1, 2]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" - … 👍 _", []),
        ("The patients and THEIR livers", ["patient", "liver"]),
        ("It’s not the patient’s dose", ["not", "patient", "dose"]),
        ("anti-TNF at 0.5 mg/kg, HbA1c", ["anti", "tnf", "0.5", "mg", "kg", "hba1c"]),
        ("ＨｂＡ１ｃ dia\u00adbetes", ["hba1c", "diabet"]),
        ("糖尿病", ["糖尿", "尿病"]),
        ("癌", ["癌"]),
        ("癌，肺癌。癌", ["癌", "肺癌", "癌"]),
        ("肺 癌", ["肺", "癌"]),
        ("B超检查2型糖尿病", ["b", "超检", "检查", "2", "型糖", "糖尿", "尿病"]),
        ("葛\U000e0100城", ["葛城"]),
        ("カタカナ", ["カタカナ"]),
    ],
)
def test_stems(text: str, expected: list[str]) -> None:
    assert stems(text) == expected


def test_chinese_is_searched_by_pairs_of_characters() -> None:
    found, scores = BM25(["高血压的治疗", "2型糖尿病的症状", "病尿糖"]).search(["糖尿病"], 3)
    assert found.tolist() == [[1, 0, 2]]
    assert scores[0, 0] > 0
    assert scores[0, 1:].tolist() == [0, 0]


def test_what_is_empty_scores_zero() -> None:
    assert BM25([]).scores("heart").shape == (0,)
    assert BM25([]).search(["heart"], 3)[0].shape == (1, 0)
    for documents, query in [(["", "the"], "heart"), (["heart", ""], "of"), (["heart", ""], "mg")]:
        found, scores = BM25(documents).search([query], 5)
        assert found.tolist() == [[0, 1]]
        assert scores.tolist() == [[0, 0]]
    assert BM25(["heart"]).search([], 1)[0].shape == (0, 1)


def test_bad_options_are_named() -> None:
    with pytest.raises(InputError, match="expected k of 1 or more, got 0"):
        BM25(["heart"]).search(["heart"], 0)
    with pytest.raises(InputError, match=r"got k1=0\.9 and b=1\.5"):
        BM25(["heart"], b=1.5)
    with pytest.raises(InputError, match="k1=nan"):
        BM25(["heart"], k1=math.nan)
    with pytest.raises(InputError, match="put it in brackets"):
        BM25("heart")


def test_nothing_is_printed_or_logged(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        BM25(["heart", "lung"]).search(["heart"], 1)
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


@pytest.mark.parametrize(("module", "package"), [("bm25s", "bm25s"), ("Stemmer", "PyStemmer")])
def test_without_the_packages_the_extra_is_named(
    module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    bm25._stemmer.cache_clear()
    bm25._stem.cache_clear()
    with pytest.raises(MissingExtraError, match=rf"needs {package}: pip install 'hplus\[bm25\]'"):
        BM25(["heart"])
