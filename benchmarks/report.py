"""Write the measured tables into docs/*.md and README.md from docs/results/*.jsonl.

    python benchmarks/report.py

Text between `<!-- name -->` and `<!-- end -->` is replaced; nothing else is touched.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
SETS = ("scifact", "nfcorpus", "feedbackqa", "medicalqa")
TITLES = ("SciFact", "NFCorpus", "FeedbackQA", "MedicalQA")
BUDGETS = (4, 8, 16, 32, 64, 128)
SYSTEMS = {"crf": "phrases (hplus-mini)", "runs": "content-word runs", "words": "words"}
SYSTEMS |= {"tokens": "tokens"}


def rows(name: str) -> list[dict[str, Any]]:
    """The lines of a results file."""
    path = RESULTS / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def found(results: list[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    """The one row of each set that has these values."""
    fits = [row for row in results if all(row.get(k) == v for k, v in wanted.items())]
    by_set = {row["set"]: row for row in fits}
    if len(fits) != len(SETS) or set(by_set) != set(SETS):
        raise SystemExit(f"{len(fits)} rows for {wanted}, expected one per set; run quality.py")
    return [by_set[name] for name in SETS]


def table(header: list[str], body: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cells(at: list[dict[str, Any]]) -> list[str]:
    """nDCG@10 of every set and their mean."""
    values = [row["ndcg10"] for row in at]
    return [f"{value:.1f}" for value in (*values, sum(values) / len(values))]


def mean_vectors(at: list[dict[str, Any]]) -> float:
    return sum(float(row["vectors"]) for row in at) / len(at)


def quality(results: list[dict[str, Any]]) -> str:
    """All units, weights and widths, and the two budgets that matter most."""
    body = []
    for width in (384, 128):
        at = found(results, view="global", width=width)
        body.append(["global", "", "", str(width), "1", *cells(at)])
    for weights in ("idf", "head"):
        at = found(results, view="lexical", weights=weights)
        body.append(["lexical", "", weights, "", "", *cells(at)])
    keys = dict.fromkeys(
        (r["view"], r["units"], r["weights"], r["width"], r["budget"])
        for r in results
        if r["view"] in ("phrase", "hybrid")
        and (r["budget"] == "all units" or re.search(r"(merge|ward) to (16|32) ", r["budget"]))
        and (
            r["weights"] in ("head", "idf") or r["budget"] == "all units" or r["units"] == "tokens"
        )
        and not (r["units"] == "crf" and r["weights"] == "idf" and r["budget"] != "all units")
    )
    order = {"tokens": 0, "words": 1, "runs": 2, "crf": 3}
    for view, units, weights, width, budget in sorted(
        keys, key=lambda k: (k[0] == "hybrid", order[k[1]], -k[3])
    ):
        at = found(results, view=view, units=units, weights=weights, width=width, budget=budget)
        what = f"{SYSTEMS[units]}, {budget}".replace(" units", "")
        body.append([view, what, weights, str(width), f"{mean_vectors(at):.0f}", *cells(at)])
    header = ["view", "document units", "weights", "width", "vectors", *TITLES, "macro"]
    return table(header, body)


def curves(results: list[dict[str, Any]]) -> str:
    """Macro nDCG@10 over document budgets."""
    systems = {
        "phrases, drop": ("crf", "head", "drop"),
        "phrases, merge": ("crf", "head", "merge"),
        "tokens, pooled (uniform)": ("tokens", "uniform", "ward"),
        "tokens, pooled (idf)": ("tokens", "idf", "ward"),
    }
    measured = {row["budget"] for row in results if row["units"] == "tokens"}
    body = []
    for label, (units, weights, policy) in systems.items():
        line = [label]
        for count in (*BUDGETS, None):
            budget = "all units" if count is None else f"{policy} to {count} units"
            if units == "tokens" and budget not in measured:
                line.append("")
                continue
            at = found(
                results, view="phrase", units=units, weights=weights, width=384, budget=budget
            )
            line.append(cells(at)[-1])
        body.append(line)
    return table(["units", *(str(count) for count in BUDGETS), "all"], body)


def differences() -> str:
    """The differences that the project has bars for, with intervals."""
    body = [
        [
            row["difference"],
            f"{row['mean']:+.2f}",
            f"{row['low']:+.2f} to {row['high']:+.2f}",
            f"{row['p']:.4f}",
        ]
        for row in rows("differences")
    ]
    return table(["difference, macro of the four", "points", "95 % interval", "p"], body)


def spans() -> str:
    """Span F1 and multi-word recall; for random units the mean of the five seeds."""
    results = rows("spans")
    body = []
    for corpus in dict.fromkeys(row["corpus"] for row in results):
        of_corpus = [row for row in results if row["corpus"] == corpus]
        groups: dict[str, list[dict[str, Any]]] = {}
        for row in of_corpus:
            groups.setdefault(row["units"].replace("random-", "random ").split()[0], []).append(row)
        for units, some in groups.items():
            line = [corpus, {"crf": "phrases", "ngrams-2": "bigrams", "ngrams-3": "trigrams",
                             "random": "random, same lengths"}.get(units, units)]  # fmt: skip
            for measure in ("f1", "multi_recall"):
                line.append(f"{sum(row[measure] for row in some) / len(some):.1f}")
                if units == "crf":
                    line.append("")
                    continue
                lows = [row[f"{measure}_behind"] for row in some]
                mean = sum(low[0] for low in lows) / len(lows)
                line.append(f"{mean:+.1f} (from {min(low[1] for low in lows):+.1f})")
            body.append(line)
    header = ["corpus", "units", "exact F1", "phrases ahead by", "multi-word recall"]
    return table([*header, "phrases ahead by"], body)


def lengths() -> str:
    """How long the model's units are."""
    body = [
        [
            row["corpus"],
            f"{row['units_a_text']:.1f}",
            f"{row['share_of_several_words']:.0%}",
            f"{row['mean_words']:.2f}",
            f"{row['mean_words_of_several']:.2f}",
        ]
        for row in rows("spans")
        if row["units"] == "crf"
    ]
    header = [
        "corpus",
        "units per text",
        "of several words",
        "mean words",
        "of several: mean words",
    ]
    return table(header, body)


README_ROWS = (
    ("phrase", "tokens", "uniform", "all units", 384),
    ("phrase", "tokens", "uniform", "ward to 32 units", 384),
    ("phrase", "tokens", "uniform", "ward to 16 units", 384),
    ("phrase", "crf", "head", "all units", 384),
    ("phrase", "crf", "head", "merge to 32 units", 384),
    ("phrase", "crf", "head", "merge to 16 units", 384),
    ("hybrid", "crf", "head", "merge to 32 units", 384),
    ("hybrid", "crf", "head", "merge to 16 units", 384),
    ("hybrid", "crf", "head", "merge to 32 units", 128),
    ("hybrid", "crf", "head", "merge to 16 units", 128),
)


def for_readme(results: list[dict[str, Any]]) -> str:
    """Quality against bytes: int8 vectors with an f16 scale each, plus the global vector."""
    at = found(results, view="global", width=384)
    body = [["global", "one vector of 384", "384", *cells(at)]]
    for view, units, weights, budget, width in README_ROWS:
        at = found(results, view=view, units=units, weights=weights, budget=budget, width=width)
        size = mean_vectors(at) * (width + 2) + (384 if view == "hybrid" else 0)
        what = f"{SYSTEMS[units]}, {budget}, {width} wide".replace("ward to", "pooled to")
        body.append([view, what.replace(" units", ""), f"{size:,.0f}", *cells(at)])
    return table(["view", "units of a document", "bytes of vectors", *TITLES, "macro"], body)


def listed(name: str) -> str:
    """A small results file as it is."""
    results = rows(name)
    return table(list(results[0]), [[str(value) for value in row.values()] for row in results])


def search() -> str:
    """Engines over the same vectors; ours first, the others as multiples of it."""
    results = rows("search")
    body = []
    for units, engine in dict.fromkeys((row["units"], row["engine"]) for row in results):
        one, every = (
            next(row for row in results if (row["units"], row["engine"], row["cores"]) == key)
            for key in ((units, engine, 1), (units, engine, max(row["cores"] for row in results)))
        )
        mean, low, high = one.get("ahead", (0, 0, 0))
        ahead = f" ({mean:+.1f}, {low:+.1f} to {high:+.1f})" if low or high else ""
        body.append(
            [
                units,
                engine,
                f"{one['queries_per_s']:.0f} ({one['times_ours']:.2f})",
                f"{every['queries_per_s']:.0f} ({every['times_ours']:.2f})",
                f"{one['ndcg10']:.1f}{ahead}",
                f"{one['peak_mb']}",
            ]
        )
    header = ["units", "engine", "queries/s, one core (times ours)", "all cores", "nDCG@10"]
    return table([*header, "peak MB"], body)


def versions() -> str:
    """CPU time per query of two versions on the same index."""
    results = rows("versions")
    body = []
    for budget, view in dict.fromkeys((row["budget"], row["view"]) for row in results):
        at = [row for row in results if (row["budget"], row["view"]) == (budget, view)]
        ms = {row["version"]: row["ms"] for row in at}
        line = [budget, view, f"{ms['before']:.1f} ms"]
        for version in ("after", "after:AVX2"):
            line += [f"{ms[version]:.1f} ms", f"{ms['before'] / ms[version]:.1f}"]
        body.append(line)
    return table(["units", "view", "before", "after", "ratio", "after, AVX2", "ratio"], body)


def size() -> str:
    """Bytes per document by part, against token vectors, and what int8 costs."""
    parts = ("units", "weights", "spans", "lexical")
    body = [
        [
            dict(zip(SETS, TITLES, strict=True))[row["set"]],
            str(row["budget"]),
            *(f"{row[part]:,}" for part in parts),
            f"{row['bytes']:,}",
            f"{row['token_bytes']:,}",
            f"{row['ratio']:.3f}",
            f"{row['ndcg10_f32']:.2f}",
            f"{row['change']:+.2f}",
        ]
        for row in rows("size")
    ]
    header = ["set", "units", "codes, scales", *parts[1:], "bytes", "token vectors", "ratio"]
    return table([*header, "nDCG@10, f32", "int8"], body)


def baselines() -> str:
    """Each baseline, its quality and what it costs."""
    body = []
    for row in rows("baselines"):
        cost = row["cost"]
        spent = ["–"] * 4
        if cost is not None:
            vectors, kilobytes = f"{cost['vectors']:.1f}", f"{cost['bytes'] / 1000:.2f}"
            millions = f"{cost['multiplications'] / 1e6:.2f}"
            spent = [vectors, kilobytes, f"{cost['query_units']:.1f}", millions]
        body.append(
            [
                row["baseline"],
                row["pool"],
                str(row["queries"]),
                "whole" if row["tokens"] is None else str(row["tokens"]),
                f"{row['ndcg10']:.2f}",
                f"{row['low']:.1f} to {row['high']:.1f}",
                *spent,
            ]
        )
    names = ["baseline", "ranks", "queries", "tokens", "nDCG@10", "95 % interval", "vectors / doc"]
    return table([*names, "KB / doc", "units / query", "M mult. / query"], body)


def fill(page: Path, tables: dict[str, str]) -> None:
    """Replace the text between the markers."""
    text = page.read_text()
    for name, content in tables.items():
        text, count = re.subn(
            rf"(<!-- {name} -->\n).*?(<!-- end -->)",
            lambda match, content=content: f"{match[1]}{content}\n{match[2]}",  # type: ignore[misc]
            text,
            flags=re.DOTALL,
        )
        if count != 1:
            raise SystemExit(f"{page.name} has no markers for {name}")
    page.write_text(text)


if __name__ == "__main__":
    measured = rows("quality")
    small = ("cold_start", "encode_rate", "terms_cost", "memory", "scale", "indexing", "kernels")
    small += ("million", "kills")
    fill(
        ROOT / "docs" / "benchmarks.md",
        {
            "quality": quality(measured),
            "curves": curves(measured),
            "differences": differences(),
            "spans": spans(),
            "lengths": lengths(),
            "search": search(),
            "versions": versions(),
            "size": size(),
            **{name: listed(name) for name in small},
        },
    )
    fill(ROOT / "docs" / "baselines.md", {"measured": baselines()})
    fill(ROOT / "README.md", {"quality": for_readme(measured)})
