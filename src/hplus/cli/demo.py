"""`hplus demo`: the whole path on a corpus that comes with the package."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hplus.cli.common import Device, Model, TermsFile, console, load
from hplus.cli.score import print_explanation
from hplus.cli.segment import print_units

if TYPE_CHECKING:
    from hplus.evaluate.data import RetrievalSet
    from hplus.model import HPlus
    from hplus.types import Encoded

EXAMPLE = "Example: hplus demo"
TEXT = (
    "Metformin lowers HbA1c in type 2 diabetes with chronic kidney disease; "
    "the starting dose is 500 mg once a day."
)
QUERY = "ECG changes in hypokalaemia"


def demo(model: Model = "mini", device: Device = None, terms: TermsFile = None) -> None:
    """Segment a text, explain a query, and rank the demo corpus by each view."""
    from rich.table import Table

    from hplus.evaluate.data import demo_folder, read_beir
    from hplus.units.select import Budget, shrink
    from hplus.views import fusion

    started = time.monotonic()
    out = console()
    hplus = load(model, device, terms)
    out.print(str(hplus) + "\n")

    out.print(f'$ hplus segment "{TEXT}"', style="bold")
    print_units(hplus.segment(TEXT)[0], out)

    corpus = read_beir(demo_folder("en"))
    whole = hplus.encode_document(corpus.documents, budget=Budget(), progress=True)
    budgeted = shrink(whole, hplus.recipe.document_budget)
    query = hplus.encode_query(QUERY)
    best = fusion.score(query, budgeted, hplus.recipe.fusion).ranking()[:2].tolist()
    texts = [corpus.documents[i] for i in best]
    out.print(f'\n$ hplus score "{QUERY}" … --explain', style="bold", end="")
    out.print("  (best two of the demo corpus)")
    explanations = hplus.score(QUERY, texts, explain=True).explanations or []
    for name, text, explanation in zip(best, texts, explanations, strict=True):
        print_explanation(QUERY, text, explanation, corpus.document_ids[name], out)

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("view", "vectors per document", "nDCG@10"):
        table.add_column(column, justify="left" if column == "view" else "right")
    for view, vectors, value in evaluate(hplus, corpus, whole, budgeted):
        table.add_row(view, f"{vectors:.1f}", f"{value:.3f}")
    counts = f"{len(corpus.documents)} passages full of look-alikes, {len(corpus.queries)} queries"
    out.print(f"\n{counts}", style="bold")
    out.print(table)
    out.print(f"\n{time.monotonic() - started:.0f} s in all", style="grey50")


def evaluate(
    hplus: HPlus, corpus: RetrievalSet, whole: Encoded, budgeted: Encoded
) -> list[tuple[str, float, float]]:
    """View, vectors per document and mean nDCG@10 on a small set, by full ranking."""
    from hplus.evaluate.metrics import ndcg
    from hplus.views import fusion

    queries = hplus.encode_query(corpus.queries)
    n = len(corpus.documents)
    alphas = hplus.recipe.fusion
    rows = [
        ("global", 1.0, whole, {"global": 1.0}),
        ("lexical", 0.0, whole, {"lexical": 1.0}),
        ("phrase, all units", len(whole.weights) / n, whole, {"phrase": 1.0}),
        (
            f"phrase, {hplus.recipe.document_budget}",
            len(budgeted.weights) / n,
            budgeted,
            {"phrase": 1.0},
        ),
        ("fused, the default", 1 + len(budgeted.weights) / n, budgeted, alphas),
    ]
    results = []
    for view, vectors, documents, weights in rows:
        values = []
        for q, name in enumerate(corpus.query_ids):
            ranking = fusion.score(queries[q], documents, weights).ranking()[:10]
            found = [corpus.document_ids[i] for i in ranking]
            values.append(ndcg(found, corpus.judgements[name]))
        results.append((view, vectors, sum(values) / len(values)))
    return results
