"""A whole retrieval task run by MTEB itself, from a BEIR folder on this machine.

python benchmarks/mteb_task.py SciFact SCIFACT [--out FILE]

Nothing is downloaded: the task's data are replaced by the folder's. Prints one JSON object, and
adds it to FILE: nDCG@10 as MTEB computes it (hybrid, the default settings, texts cut at the window
as `hplus evaluate beir` cuts them), and as this library computes it from the same index, view by
view.
"""

from __future__ import annotations

import argparse
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mteb
import numpy as np
from datasets import Dataset

from hplus import HPlus
from hplus.evaluate.data import RetrievalSet, read_beir
from hplus.evaluate.metrics import ndcg
from hplus.integrations.mteb import HPlusSearch

VIEWS = ("global", "phrase", "lexical", "hybrid")


def task_of(name: str, data: RetrievalSet) -> Any:
    """MTEB's task of this name over these documents, queries and judgements."""
    task = mteb.get_task(name)
    documents = zip(data.document_ids, data.documents, strict=True)
    queries = zip(data.query_ids, data.queries, strict=True)
    split = {
        "corpus": Dataset.from_list(
            [{"id": id_, "title": "", "text": text} for id_, text in documents]
        ),
        "queries": Dataset.from_list([{"id": id_, "text": text} for id_, text in queries]),
        "relevant_docs": data.judgements,
        "top_ranked": None,
    }
    task.dataset = {"default": {"test": split}}
    task.data_loaded = True
    return task


def mean_ndcg(model: HPlusSearch, data: RetrievalSet, view: str) -> float:
    """nDCG@10 by this library, over the index that MTEB had made."""
    model.options = {"view": view}
    rows = [
        {"id": id_, "text": text} for id_, text in zip(data.query_ids, data.queries, strict=True)
    ]
    found = model.search(rows, top_k=10)
    return float(np.mean([ndcg(list(found[id_]), data.judgements[id_]) for id_ in data.query_ids]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("task")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    data = read_beir(given.folder)
    model = HPlusSearch(HPlus(long="cut"))
    result = mteb.evaluate(model, task_of(given.task, data), cache=None, co2_tracker=False)
    (scores,) = result.task_results[0].scores["test"]
    found = {
        "task": given.task,
        "documents": len(data.documents),
        "queries": len(data.queries),
        "model": model.mteb_model_meta.name,
        "mteb": version("mteb"),
        "mteb, hybrid": round(100 * scores["ndcg_at_10"], 2),
        "library": {view: round(100 * mean_ndcg(model, data, view), 2) for view in VIEWS},
    }
    model.close()
    print(json.dumps(found, indent=1))
    if given.out is not None:
        with given.out.open("a") as out:
            out.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
