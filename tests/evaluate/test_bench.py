"""The bench against the model itself, query by query and document by document."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hplus import Budget, HPlus, InputError, states_file
from hplus.evaluate import bench as beir
from hplus.evaluate.bench import Bench, evaluate
from hplus.evaluate.data import RetrievalSet, demo_folder, read_beir
from hplus.evaluate.metrics import ndcg
from hplus.heads.crf import CRF
from hplus.heads.importance import ImportanceHead

VIEWS = ("global", "token", "phrase", "lexical", "hybrid")
BUDGETS = {"all": Budget(), "drop": Budget(4), "merge": Budget(4, policy="merge")}


@pytest.fixture(scope="module")
def demo() -> RetrievalSet:
    """The first queries of the demo corpus, on every third document and all relevant ones."""
    whole = read_beir(demo_folder("en"))
    query_ids = whole.query_ids[:8]
    wanted = {document for name in query_ids for document in whole.judgements[name]}
    rows = [i for i, name in enumerate(whole.document_ids) if i % 3 == 0 or name in wanted]
    return RetrievalSet(
        [whole.document_ids[i] for i in rows],
        [whole.documents[i] for i in rows],
        query_ids,
        whole.queries[:8],
        {name: whole.judgements[name] for name in query_ids},
    )


@pytest.fixture
def small_pool(monkeypatch: pytest.MonkeyPatch) -> int:
    """A pool that leaves most of the corpus out."""
    monkeypatch.setattr(beir, "POOL", 20)
    return 20


def model_of(folder: Path, data: RetrievalSet, **settings: Any) -> HPlus:
    return HPlus(folder, long="cut", **settings).fit_idf(data.documents)


def with_heads(model: HPlus) -> HPlus:
    """The model with random heads as its units and importance."""
    random = np.random.default_rng(3)

    def draw(*shape: int) -> Any:
        return random.normal(0, 0.2, shape).astype(np.float32)

    d, recipe = model.dim, model.recipe
    trained = replace(
        recipe, units="crf", importance="head", layer=1, trained=("crf", "importance")
    )
    model.checkpoint = replace(
        model.checkpoint,
        recipe=trained,
        crf=CRF(draw(3, d), draw(3), draw(3, 3), draw(3), draw(3)),
        head=ImportanceHead(draw(d), 0.5),
    )
    return model


def tokens_of(model: HPlus) -> HPlus:
    """The same model with every token a unit that counts the same."""
    other = HPlus(model.checkpoint.source, units="tokens", importance="uniform", long="cut")
    assert other.dim == model.dim
    return other


def slow(model: HPlus, data: RetrievalSet, pool: int) -> dict[str, list[dict[str, float]]]:
    """Scores of each query's pool by `HPlus.score`: view -> query -> document -> score."""
    tokens = tokens_of(model)
    whole = model.encode_document(data.documents).global_
    found: dict[str, list[dict[str, float]]] = {view: [] for view in VIEWS}
    for query in data.queries:
        similar = whole @ model.encode_query(query).global_[0]
        best = np.argsort(-similar, kind="stable")[:pool]
        names = [data.document_ids[i] for i in best]
        texts = [data.documents[i] for i in best]
        scores = model.score(query, texts)
        late = tokens.score(query, texts, alphas={"phrase": 1.0})
        views = (scores.global_, late.phrase, scores.phrase, scores.lexical, scores.fused)
        for view, values in zip(VIEWS, views, strict=True):
            assert values is not None
            found[view].append(dict(zip(names, values.tolist(), strict=True)))
    return found


def slow_ndcg(scores: list[dict[str, float]], data: RetrievalSet) -> list[float]:
    values = []
    for name, own in zip(data.query_ids, scores, strict=True):
        ranking = sorted(own, key=lambda document: (-own[document], document))
        values.append(ndcg(ranking[:10], data.judgements[name]))
    return values


@pytest.mark.usefixtures("rounded")
@pytest.mark.parametrize("kind", [*BUDGETS, "heads"])
def test_every_view_is_what_the_model_scores(
    tiny_folder: Path, demo: RetrievalSet, tmp_path: Path, small_pool: int, kind: str
) -> None:
    model = model_of(tiny_folder, demo, document_budget=BUDGETS.get(kind, Budget(6)))
    if kind == "heads":
        model = with_heads(model)
    result = evaluate(model, demo, tmp_path)
    assert tuple(result.ndcg10) == VIEWS
    scores = slow(model, demo, small_pool)
    expected = {view: slow_ndcg(own, demo) for view, own in scores.items()}
    for view, values in expected.items():
        found = result.ndcg10[view]
        assert found.shape == (len(demo.queries),)
        # A tie within rounding may fall either way; most queries have none.
        assert np.mean(np.abs(found - values) > 1e-6) <= 0.1, view
        assert found.mean() == pytest.approx(np.mean(values), abs=0.02), view
    assert len({tuple(values) for values in expected.values()}) == len(VIEWS)


def test_pooled_scores_are_the_model_s_within_float16(
    tiny_folder: Path, demo: RetrievalSet, tmp_path: Path, small_pool: int
) -> None:
    model = model_of(tiny_folder, demo)
    bench = Bench(model, demo, tmp_path)
    expected = slow(model, demo, small_pool)
    found = {
        "global": bench.global_,
        "token": bench.phrase("tokens", "uniform", 32, Budget(), Budget())[0],
        "phrase": bench.phrase("runs", "idf", 32, Budget(), Budget())[0],
        "lexical": bench.lexical("idf"),
    }
    assert bench.pools.shape == (len(demo.queries), small_pool)
    for view, scores in found.items():
        for row, own in enumerate(expected[view]):
            names = bench.ids[bench.pools[row]].tolist()
            assert set(names) == set(own)
            np.testing.assert_allclose(
                bench.pooled(scores)[row], [own[name] for name in names], atol=3e-3
            )


def test_token_counts_all_tokens_whatever_the_budgets(
    tiny_folder: Path, demo: RetrievalSet, tmp_path: Path
) -> None:
    """ "Late interaction over all tokens": what a budget of units is measured against."""
    free = evaluate(model_of(tiny_folder, demo), demo, tmp_path)
    bound = model_of(tiny_folder, demo, document_budget=Budget(2), query_budget=Budget(2))
    again = evaluate(bound, demo, tmp_path)
    assert again.vectors["token"] == free.vectors["token"]
    np.testing.assert_array_equal(again.ndcg10["token"], free.ndcg10["token"])
    np.testing.assert_array_equal(again.ndcg10["lexical"], free.ndcg10["lexical"])
    assert not np.array_equal(again.ndcg10["phrase"], free.ndcg10["phrase"])


@pytest.mark.parametrize("kind", BUDGETS)
def test_vectors_are_counted(
    tiny_folder: Path, demo: RetrievalSet, tmp_path: Path, kind: str
) -> None:
    model = model_of(tiny_folder, demo, document_budget=BUDGETS[kind])
    found = evaluate(model, demo, tmp_path).vectors
    count = len(demo.documents)
    assert found == {
        "global": 1.0,
        "token": len(tokens_of(model).encode_document(demo.documents).units.weights) / count,
        "phrase": len(model.encode_document(demo.documents).units.weights) / count,
    }
    assert found["phrase"] <= 4 or kind == "all"
    assert found["token"] <= model.recipe.window - 2


def test_hybrid_is_of_the_views_that_the_recipe_fuses(
    tiny_folder: Path, demo: RetrievalSet, tmp_path: Path
) -> None:
    for view in ("global", "phrase", "lexical"):
        model = model_of(tiny_folder, demo, fusion={view: 2.0})
        result = evaluate(model, demo, tmp_path)
        assert tuple(result.ndcg10) == VIEWS
        np.testing.assert_array_equal(result.ndcg10["hybrid"], result.ndcg10[view])


def test_widths_cut_the_views(tiny_folder: Path, demo: RetrievalSet, tmp_path: Path) -> None:
    model = model_of(tiny_folder, demo, phrase_width=4, global_width=6)
    narrow = Bench(model, demo, tmp_path)
    encoded = model.encode_document(demo.documents).global_
    asked = model.encode_query(demo.queries).global_
    assert encoded.shape[1] == 6
    np.testing.assert_allclose(narrow.global_, asked @ encoded.T, atol=1e-5)
    result = evaluate(model, demo, tmp_path)
    score, _ = narrow.phrase("runs", "idf", 4, Budget(), Budget())
    np.testing.assert_array_equal(result.ndcg10["phrase"], narrow.ndcg10(narrow.pooled(score)))


def test_states_are_encoded_once(
    tiny_folder: Path, demo: RetrievalSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = evaluate(model_of(tiny_folder, demo), demo, tmp_path)

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("encoded again")

    monkeypatch.setattr(states_file, "encode_states", never)
    again = evaluate(model_of(tiny_folder, demo), demo, tmp_path)
    for view in VIEWS:
        np.testing.assert_array_equal(again.ndcg10[view], first.ndcg10[view])


def test_ties_fall_by_document_id(tiny_folder: Path, tmp_path: Path) -> None:
    data = RetrievalSet(
        ["b", "c", "a"],
        ["heart failure", "kidney", "insulin"],
        ["q"],
        ["heart failure"],
        {"q": {"a": 3, "b": 2, "c": 1}},
    )
    bench = Bench(HPlus(tiny_folder, long="cut"), data, tmp_path)
    assert bench.ndcg10(np.zeros((1, 3))).tolist() == [1.0]
    last = np.where(bench.ids[bench.pools] == "a", -1.0, 0.0)
    expected = ndcg(["b", "c", "a"], data.judgements["q"])
    assert bench.ndcg10(last).tolist() == [expected]


def test_texts_without_tokens_score_nothing(tiny_folder: Path, tmp_path: Path) -> None:
    data = RetrievalSet(
        ["a", "b", "c"],
        ["", "heart failure", " "],
        ["q", "r"],
        ["heart", ""],
        {"q": {"b": 1}, "r": {"a": 1}},
    )
    result = evaluate(HPlus(tiny_folder, long="cut"), data, tmp_path)
    for view in VIEWS:
        assert result.ndcg10[view].tolist() == [1.0, 1.0], view  # r ties, so "a" comes first


@pytest.mark.parametrize("lacking", ["queries", "documents"])
def test_an_empty_set_is_refused(tiny_folder: Path, tmp_path: Path, lacking: str) -> None:
    asked = ([], []) if lacking == "queries" else (["q"], ["heart"])
    there = ([], []) if lacking == "documents" else (["a"], ["heart failure"])
    data = RetrievalSet(*there, *asked, {"q": {"a": 1}} if asked[0] else {})
    with pytest.raises(InputError):
        evaluate(HPlus(tiny_folder, long="cut"), data, tmp_path)
