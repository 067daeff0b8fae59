"""Passages: a search equals brute force over all passages, grouped by document."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hplus import Budget, HPlus, Index
from hplus.search import local
from hplus.search.snippets import snippet
from hplus.sources.document import VECTORS
from hplus.storage import lists, merge, sketches
from hplus.views import fusion
from tiny import write_tiny

LIMIT = 16
BUDGET = Budget(4, policy="merge")
SENTENCES = [
    "Chronic kidney disease of the patient. ",
    "Insulin therapy, 5 mg. ",
    "Type 2 diabetes and heart failure! ",
    "Sodium is high; potassium in the cell is low. ",
    "\n\nGene and protein. ",
    "cancer treatment for acute disease ",
]
# Lexical weights are stored as float16.
ERROR = 2e-3


def text_of(numbers: list[int]) -> str:
    return "".join(SENTENCES[i % len(SENTENCES)] for i in numbers).strip()


@pytest.fixture
def index(tiny: HPlus, tmp_path: Path) -> Iterator[Index]:
    path = tmp_path / "p.hplus"
    with Index.create(path, tiny, passages=LIMIT, budget=BUDGET, format="f32") as made:
        yield made


LONG = {
    "a": text_of([*range(12)]),
    "b": text_of([4]),
    "c": text_of([5, 3, 1, 1, 2, 4, 0, 2]),
    "d": "",
    "e": text_of([2, 2, 2, 2, 2, 2]),
}


def expected(
    model: HPlus, texts: dict[str, str], query: str, alphas: dict[str, float]
) -> dict[str, list[float]]:
    """The fused score of every passage of every document."""
    encoded_query = model.encode_query(query)
    found = {}
    for id_, text in texts.items():
        passages = [text[a:b] for a, b in model.passages(text, LIMIT)]
        encoded = model.encode_document(passages, budget=BUDGET)
        found[id_] = fusion.score(encoded_query, encoded, alphas).fused.tolist()
    return found


def check(index: Index, texts: dict[str, str], query: str, **options: Any) -> None:
    model = index.model
    view = options.get("view", "hybrid")
    alphas = dict(model.recipe.fusion) if view == "hybrid" else {view: 1.0}
    hits = index.search(query, **options)
    scores = expected(model, texts, query, alphas)
    best = {id_: max(own) for id_, own in scores.items()}
    assert len({hit.id for hit in hits}) == len(hits)
    if view != "lexical":
        assert len(hits) == min(options.get("k", 10), len(texts))
    falling = sorted(best.values(), reverse=True)
    for hit, wanted in zip(hits, falling, strict=False):
        assert hit.score == pytest.approx(wanted, abs=ERROR)
        assert hit.score == pytest.approx(best[hit.id], abs=ERROR)
        text = texts[hit.id]
        assert hit.text == text
        spans = model.passages(text, LIMIT)
        assert hit.passage in spans
        assert scores[hit.id][spans.index(hit.passage)] == pytest.approx(best[hit.id], abs=ERROR)
        if hit.explanation is not None and hit.passage is not None:
            for match in hit.explanation.phrase:
                for span in match.document_spans:
                    assert hit.passage.start <= span.start < span.end <= hit.passage.end
                assert match.document_text == " … ".join(text[a:b] for a, b in match.document_spans)
            assert hit.explanation.fused == hit.score


@pytest.mark.parametrize("view", ["hybrid", "global", "phrase", "lexical"])
@pytest.mark.parametrize("options", [{}, {"k": 2}, {"explain": True}, {"pool": 1, "k": 3}])
def test_a_search_is_brute_force_over_passages(
    index: Index, view: str, options: dict[str, Any]
) -> None:
    index.add(LONG.items())
    assert len(index) == 5
    for query in ("type 2 diabetes", "potassium of the cell", "gene cancer"):
        if view == "hybrid" and options.get("pool") == 1:
            assert len(index.search(query, **options)) == 3
        else:
            check(index, LONG, query, view=view, **options)


def test_k_documents_though_one_has_the_best_passages(index: Index) -> None:
    texts = {"long": text_of([2, 2] * 200), "b": text_of([0]), "c": text_of([1])}
    index.add(texts.items())
    for view in ("hybrid", "global", "phrase"):
        hits = index.search("type 2 diabetes and heart failure", k=3, pool=3, view=view)
        assert [hit.id for hit in hits][:1] == ["long"]
        assert len(hits) == 3
    pages = [index.search("type 2 diabetes", k=1, from_=i)[0].id for i in range(3)]
    assert sorted(pages) == ["b", "c", "long"]


def test_by_estimates_as_by_scanning(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(4)
    texts = {str(i): text_of(random.integers(0, 6, random.integers(1, 30)).tolist())
             for i in range(60)}  # fmt: skip
    monkeypatch.setattr(sketches, "SKETCHED", 20)
    monkeypatch.setattr(lists, "LISTED_DOCUMENTS", 20)
    monkeypatch.setattr(local, "SCANNED", 10)
    monkeypatch.setattr(local, "SURVIVORS", 30)
    index.add(texts.items())
    index.compact()
    for k in (5, 40, 60):
        near = index.search("type 2 diabetes and heart failure", k=k, pool=k)
        assert len({hit.id for hit in near}) == len(near) == k
        assert "sketches" in near.paths["phrase"] or k == 60
    exact = index.search("type 2 diabetes and heart failure", k=5, exact=True)
    check(index, texts, "type 2 diabetes and heart failure", k=5, exact=True)
    near = index.search("type 2 diabetes and heart failure", k=5)
    assert near[0].score == pytest.approx(exact[0].score, abs=ERROR)


def test_filters_rerank_and_likeness_speak_of_documents(index: Index) -> None:
    rows = [{"id": id_, "text": text, "n": n} for n, (id_, text) in enumerate(LONG.items())]
    index.add(rows)
    where = index.search("type 2 diabetes", where="n >= 2")
    assert sorted(hit.id for hit in where) == ["c", "d", "e"]
    check(index, {id_: LONG[id_] for id_ in "cde"}, "type 2 diabetes", where="n >= 2")
    again = index.rerank("type 2 diabetes", ["e", "a", "b"])
    full = {hit.id: hit.score for hit in index.search("type 2 diabetes")}
    assert {hit.id: hit.score for hit in again} == {id_: full[id_] for id_ in "abe"}
    like = index.more_like("a")
    assert sorted(hit.id for hit in like) == ["b", "c", "d", "e"]
    grouped = index.search("type 2 diabetes", group_by="n")
    assert [hit.id for hit in grouped] == [hit.id for hit in index.search("type 2 diabetes")]
    listed = index.search(["type 2 diabetes", "gene"])
    assert [hit.passage for hit in listed[0]] == [hit.passage for hit in grouped]


def test_documents_out_of_an_index_with_passages(index: Index, tmp_path: Path) -> None:
    rows = [{"id": id_, "text": text, "n": n} for n, (id_, text) in enumerate(LONG.items())]
    index.add(rows)
    assert (index.count(), index.count("n >= 2")) == (5, 3)
    assert [document.text for document in index] == list(LONG.values())
    assert index["c"].text == LONG["c"]
    model = index.model
    lines: list[str] = []
    assert index.export(lines.append, vectors=True) == 5
    for line, text in zip(map(json.loads, lines), LONG.values(), strict=True):
        spans = model.passages(text, LIMIT)
        passages = line[VECTORS]["passages"]
        assert [(one["start"], one["end"]) for one in passages] == spans
        encoded = model.encode_document([text[a:b] for a, b in spans], budget=BUDGET)
        np.testing.assert_allclose([one["global"] for one in passages], encoded.global_, atol=1e-6)
        counts = [len(one["units"]) for one in passages]
        assert counts == np.diff(encoded.units.offsets).tolist()
    index.export(tmp_path / "out.jsonl")
    index.export(tmp_path / "out.parquet", vectors=True)
    for name in ("out.jsonl", "out.parquet"):
        report = index.update(tmp_path / name)
        assert (report.unchanged, report.updated, report.added) == (5, 0, 0)
    assert index.delete(where="n >= 2") == 3
    assert sorted(hit.id for hit in index.search("gene")) == ["a", "b"]
    assert index.update_metadata({"a": {"n": 9}}) == 1
    assert [hit.id for hit in index.search("gene", where="n = 9")] == ["a"]
    assert index.verify().problems == []


def test_a_snippet_comes_from_the_passage(index: Index) -> None:
    filler = text_of([0, 1, 3] * 40)
    text = f"{filler} Acute cancer treatment with protein is here. {filler}"
    index.add([("x", text)])
    for explain in (False, True):
        (hit,) = index.search("acute cancer treatment protein", explain=explain)
        assert hit.passage is not None
        assert "Acute cancer" in text[hit.passage.start : hit.passage.end]
        shown = snippet(hit, 200).text
        assert "Acute cancer treatment" in shown
        assert hit.passage.start > len(filler) - 200


def test_json_has_the_passage(index: Index) -> None:
    index.add(LONG.items())
    (row,) = index.search("gene", k=1).as_json()["hits"]
    hit = index.search("gene", k=1)[0]
    assert list(row["passage"]) == list(hit.passage or ())


class Passages(RuleBasedStateMachine):
    """Whatever was changed, in whatever order, a search is brute force over what is there."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        texts = ["type 2 diabetes", "chronic kidney disease", "the heart failure of a patient"]
        self.model = HPlus(write_tiny(self.folder / "tiny")).fit_idf(texts)
        self.path = self.folder / "p.hplus"
        self.index = Index.create(
            self.path, self.model, passages=LIMIT, budget=BUDGET, format="f32"
        )
        self.texts: dict[str, str] = {}

    @rule(rows=st.dictionaries(st.sampled_from("abcdef"), st.lists(st.integers(0, 5), max_size=14)))
    def update(self, rows: dict[str, list[int]]) -> None:
        new = {id_: text_of(numbers) for id_, numbers in rows.items()}
        self.index.update(new.items())
        self.texts |= new

    @rule(ids=st.lists(st.sampled_from("abcdef"), max_size=2, unique=True))
    def delete(self, ids: list[str]) -> None:
        assert self.index.delete(ids) == len(set(ids) & set(self.texts))
        for id_ in ids:
            self.texts.pop(id_, None)

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        kept = data.draw(st.sets(st.sampled_from(sorted(self.texts)), min_size=1))
        self.index.update([(id_, self.texts[id_]) for id_ in sorted(kept)], sync=True)
        self.texts = {id_: self.texts[id_] for id_ in kept}

    @rule(block=st.integers(1, 9))
    def compact(self, block: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(merge, "BLOCK", block)
            self.index.compact()

    @rule()
    def reopen(self) -> None:
        self.index.close()
        self.index = Index.open(self.path, model=self.model)

    @rule(query=st.sampled_from(["type 2 diabetes", "potassium", "the gene"]), k=st.integers(1, 7))
    def search(self, query: str, k: int) -> None:
        check(self.index, self.texts, query, k=k, explain=k % 2 == 0)

    @invariant()
    def sound(self) -> None:
        assert len(self.index) == len(self.texts)
        assert self.index.verify().problems == []
        counted = [len(self.model.passages(text, LIMIT)) for text in self.texts.values()]
        found = self.index.stats()
        assert (found.documents, found.passages) == (len(counted), sum(counted))

    def teardown(self) -> None:
        self.index.close()
        shutil.rmtree(self.folder)


TestPassages = Passages.TestCase
TestPassages.settings = settings(deadline=None, max_examples=12, stateful_step_count=10)


def test_passages_follow_one_another(tiny: HPlus) -> None:
    for text in LONG.values():
        spans = tiny.passages(text, LIMIT)
        assert (spans[0].start, spans[-1].end) == (0, len(text))
        assert all(a.start < b.start <= a.end for a, b in pairwise(spans))
