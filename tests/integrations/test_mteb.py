"""An official task of MTEB, run by MTEB itself on local data."""

from __future__ import annotations

from typing import Any

import pytest

from hplus import HPlus
from hplus.evaluate.metrics import ndcg
from service import DOCUMENTS

pytest.importorskip("mteb", reason="this needs mteb")
QUERIES = {"q1": "heart failure", "q2": "insulin therapy", "q3": "chronic kidney disease"}
JUDGEMENTS = {"q1": {"b": 1, "c": 1}, "q2": {"a": 1}, "q3": {"g": 1}}


def local(name: str, top_ranked: dict[str, list[str]] | None = None) -> Any:
    """The task of this name, its data replaced by DOCUMENTS: nothing is downloaded."""
    import mteb
    from datasets import Dataset

    task = mteb.get_task(name)
    split = {
        "corpus": Dataset.from_list(
            [{"id": row["id"], "title": "", "text": row["text"]} for row in DOCUMENTS]
        ),
        "queries": Dataset.from_list([{"id": id_, "text": text} for id_, text in QUERIES.items()]),
        "relevant_docs": JUDGEMENTS,
        "top_ranked": top_ranked,
    }
    task.dataset = {"default": {"test": split}}
    task.data_loaded = True
    return task


@pytest.mark.filterwarnings("ignore")
def test_an_official_task_from_local_data(served_model: HPlus) -> None:
    import mteb
    from mteb.models.models_protocols import SearchProtocol

    from hplus.integrations.mteb import HPlusSearch

    model = HPlusSearch(served_model, options={"view": "hybrid"})
    assert isinstance(model, SearchProtocol)
    assert model.mteb_model_meta.model_type == ["late-interaction"]
    result = mteb.evaluate(
        model, local("SciFact"), cache=None, co2_tracker=False, show_progress_bar=False
    )
    (scores,) = result.task_results[0].scores["test"]
    assert model._index is not None
    expected = [
        ndcg([hit.id for hit in model._index.search(text, k=10)], JUDGEMENTS[id_])
        for id_, text in QUERIES.items()
    ]
    assert scores["ndcg_at_10"] == pytest.approx(sum(expected) / len(expected), abs=1e-4)
    ranked = model.search(
        [{"id": "q1", "text": "heart failure"}], top_k=2, top_ranked={"q1": ["a", "b", "c"]}
    )
    assert set(ranked["q1"]) <= {"a", "b", "c"}
    assert len(ranked["q1"]) == 2
    model.close()
