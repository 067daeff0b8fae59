"""`hplus demo`: the whole path on a corpus that comes with the package."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hplus import DEFAULT_MODEL
from hplus.cli.common import Device, Model, TermsFile, console, load, plain_table
from hplus.cli.search import print_hit
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
# Query, options, and the options as typed.
SEARCHES: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("irreversible inhibition of platelets by aspirin", {}, ""),
    (
        "first-line drug for diabetes",
        {"where": 'not title contains "type 1"'},
        " --where 'not title contains \"type 1\"'",
    ),
    (
        "anaemia of chronic disease in rheumatoid arthritis",
        {"view": "phrase", "budget": 16},
        " --view phrase --budget 16",
    ),
)


def demo(model: Model = DEFAULT_MODEL, device: Device = None, terms: TermsFile = None) -> None:
    """Segment a text, index the demo corpus, search it, and rank it by each view."""
    from hplus.evaluate.data import demo_folder, read_beir
    from hplus.index import Index
    from hplus.sources.read import read
    from hplus.units.select import Budget, shrink

    started = time.monotonic()
    out = console()
    hplus = load(model, device, terms)
    out.print(str(hplus) + "\n")

    out.print(f'$ hplus segment "{TEXT}"', style="bold")
    print_units(hplus.segment(TEXT)[0], out)

    corpus = read_beir(demo_folder("en"))
    whole = hplus.encode_document(corpus.documents, budget=Budget(), progress=True)
    budgeted = shrink(whole, hplus.recipe.document_budget)
    with tempfile.TemporaryDirectory() as folder:
        made = Index.create(Path(folder) / "demo.hplus", hplus)
        documents = list(read(demo_folder("en")))
        made.add_encoded(
            [document.id for document in documents],
            whole,
            texts=[document.text for document in documents],
            metadata=[document.metadata for document in documents],
        )
        size = sum(made.stats().bytes.values())
        out.print("\n$ hplus index demo-en demo.hplus", style="bold")
        out.print(f"{len(made)} documents, {size / len(made) / 1000:.1f} kB per document")
        with made:
            for query, options, typed in SEARCHES:
                out.print(f'\n$ hplus search demo.hplus "{query}" -k 2{typed}', style="bold")
                for rank, hit in enumerate(made.search(query, k=2, explain=True, **options), 1):
                    print_hit(query, rank, hit, out, explain=False)
            out.print(f'\n$ hplus search demo.hplus "{QUERY}" -k 1 --explain', style="bold", end="")
            print_hit(QUERY, 1, made.search(QUERY, k=1, explain=True)[0], out, explain=True)

    table = plain_table("view", "vectors per document", "nDCG@10")
    for view, vectors, value in evaluate(hplus, corpus, whole, budgeted):
        table.add_row(view, f"{vectors:.1f}", f"{value:.3f}")
    counts = f"{len(corpus.documents)} passages full of look-alikes, {len(corpus.queries)} queries"
    out.print("\n" + counts, style="bold")
    out.print(table)
    out.print(f"\n{time.monotonic() - started:.0f} s in all", style="grey50")
    out.print("To search this corpus in a browser: hplus serve --demo", style="grey50")


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
        ("phrase, all units", len(whole.units.weights) / n, whole, {"phrase": 1.0}),
        (
            f"phrase, {hplus.recipe.document_budget}",
            len(budgeted.units.weights) / n,
            budgeted,
            {"phrase": 1.0},
        ),
        ("fused, the default", 1 + len(budgeted.units.weights) / n, budgeted, alphas),
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
