"""Write the measured tables into docs/*.md and README.md from docs/results/*.jsonl.

    python benchmarks/report.py

Text between `<!-- name -->` and `<!-- end -->` is replaced; nothing else is touched.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from hplus.evaluate.statistics import holm

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
    """The differences that the project has bars for, with intervals; Holm over all of them."""
    results = rows("differences")
    body = [
        [
            row["difference"],
            f"{row['mean']:+.2f}",
            f"{row['low']:+.2f} to {row['high']:+.2f}",
            f"{row['p']:.4f}",
            f"{corrected:.4f}",
        ]
        for row, corrected in zip(results, holm([row["p"] for row in results]), strict=True)
    ]
    return table(["difference, macro of the four", "points", "95 % interval", "p", "p, Holm"], body)


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


NAMES = {"bm25": "BM25", "mini": "hplus-mini", "small": "hplus-small"}
NAMES |= {"bge-small-en-v1.5": "bge-small", "mini2": "hplus-mini2"}
NAMES |= {"answerai-colbert-small-v1-states": "answerai-colbert-small"}
FRONT_PAGE = (
    ("bm25", ""),
    ("mini", "hybrid, phrases merged to 32, 384 wide"),
    ("mini2", "hybrid, phrases merged to 32, 384 wide"),
    ("mini2", "hybrid, phrases merged to 16, 128 wide"),
    ("small", "global, one vector of 384"),
    ("small", "lexical"),
    ("small", "tokens, all, 384 wide"),
    ("small", "tokens, pooled to 32, 384 wide"),
    ("small", "tokens, pooled to 16, 384 wide"),
    ("small", "phrases, all, 384 wide"),
    ("small", "phrases, merged to 32, 384 wide"),
    ("small", "phrases, merged to 16, 384 wide"),
    ("small", "phrases, merged to 16, 384 wide, int4"),
    ("small", "hybrid, phrases merged to 32, 384 wide"),
    ("small", "hybrid, phrases merged to 16, 384 wide"),
    ("small", "hybrid, phrases merged to 32, 384 wide, int4"),
    ("small", "hybrid, phrases merged to 16, 384 wide, int4"),
    ("small", "hybrid, phrases merged to 32, 128 wide"),
    ("small", "hybrid, phrases merged to 16, 128 wide"),
)


def front_page() -> str:
    """Quality against bytes: int8 vectors with an f16 scale each, or int4, plus the global vector.
    Other encoders are shown where all sets have been measured."""
    others = rows("front_page_others")
    results = rows("front_page") + others + [r for r in rows("smaller") if r["model"] == "mini2"]
    sets = Counter((row["model"], row["line"]) for row in others)
    whole = [other for other, count in sets.items() if count == len(SETS)]
    body = []
    for model, line in (*FRONT_PAGE[:1], *whole, *FRONT_PAGE[1:]):
        at = found(results, model=model, line=line)
        int4 = line.endswith(", int4")
        width = int(line.removesuffix(", int4").split()[-2]) if "wide" in line else 384
        own = 1 if line.startswith("hybrid") else 0  # the global vector
        each = (width // 2 if int4 else width) + 2
        size = (mean_vectors(at) - own) * each + 384 * own if "wide" in line else 384
        shown = "–" if not mean_vectors(at) else f"{size:,.0f}"
        body.append([NAMES[model], line or "words", shown, *cells(at)])
    return table(["model", "what is matched", "bytes of vectors", *TITLES, "macro"], body)


def smaller() -> str:
    """Macro of every line of three models, and how far the new one is from the two others."""
    results, table_rows = rows("smaller"), []
    models = ("small", "mini", "mini2")
    for line in dict.fromkeys(row["line"] for row in results):
        macros = [
            sum(row["ndcg10"] for row in found(results, line=line, model=model)) / len(SETS)
            for model in models
        ]
        own = {
            row["model"]: row for row in results if row["line"] == line and row["set"] == "macro"
        }
        minus = [own[f"mini2 minus {model}"] for model in models[:2]]
        shown = [_signed(row["mean"], row["low"], row["high"]) for row in minus]
        table_rows.append([line, *(f"{macro:.1f}" for macro in macros), *shown])
    header = ["", *(NAMES[model] for model in models)]
    header += [f"hplus-mini2 minus {NAMES[model]}" for model in models[:2]]
    return table(header, table_rows)


def front_page_differences() -> str:
    """The differences that the choices on the front page rest on."""
    body = [
        [
            row["ours"].replace(":", ": "),
            row["theirs"].replace(":", ": ") if row["theirs"] != "bm25" else "BM25",
            f"{row['mean']:+.2f}",
            f"{row['low']:+.2f} to {row['high']:+.2f}",
            f"{row['p_holm']:.4f}",
        ]
        for row in rows("front_page_differences")
    ]
    return table(["this", "minus that", "macro nDCG@10", "95 % interval", "p, Holm"], body)


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


def scan() -> str:
    """Exact search beside Qdrant, same vectors, same run: processor time on one core, the clock on
    two."""
    body = [
        [
            row["units"],
            str(row["cores"]),
            row["engine"],
            f"{row['queries_per_s']:.0f}",
            f"{row['times_ours']:.2f}",
            f"{row['ndcg10']:.1f}",
            str(row["peak_mb"]),
        ]
        for row in rows("scan")
    ]
    header = ["units", "cores", "engine", "queries/s", "times ours", "nDCG@10", "peak MB"]
    return table(header, body)


def beside() -> str:
    """The same beside xtr-warp-rs too."""
    body = [
        [
            row["units"],
            str(row["cores"]),
            row["engine"],
            f"{row['queries_per_s']:.0f}",
            f"{row['times_ours']:.2f}",
            f"{row['ndcg10']:.1f}",
            f"{row['top10']:.1f}",
            str(row["peak_mb"]),
        ]
        for row in rows("beside")
    ]
    header = ["units", "cores", "engine", "queries/s", "times ours", "nDCG@10"]
    return table([*header, "of float32's top ten, %", "peak MB"], body)


def alone() -> str:
    """Queries per second before and after Python had less to do, ours alone, on one core."""
    before = {(row["units"], row["engine"]): row for row in rows("alone_before")}
    body = [
        [
            row["units"],
            row["engine"],
            f"{before[row['units'], row['engine']]['queries_per_s']:.0f}",
            f"{row['queries_per_s']:.0f}",
            f"{row['ndcg10']:.1f}",
            str(row["peak_mb"]),
        ]
        for row in rows("alone")
    ]
    return table(["units", "engine", "before, queries/s", "now", "nDCG@10", "peak MB"], body)


def top_ten() -> str:
    """Hits of two older versions and of this one on the same index, and CPU time per query."""
    results = rows("top10")
    body = []
    for index, view in dict.fromkeys((row["index"], row["view"]) for row in results):
        at = {r["version"]: r for r in results if (r["index"], r["view"]) == (index, view)}
        after = at["after"]
        times = [f"{at[version]['ms']:.2f}" for version in ("before", "last", "after")]
        body.append([index, view, f"{after['alike']} of {after['queries']}", *times])
    header = ["index", "view", "top ten alike", "before, ms", "merged before this, ms", "now, ms"]
    return table(header, body)


def python_path() -> str:
    """CPU time per query before and after Python had less to do, on the same index."""
    results = rows("python_path")
    body = []
    for index, view in dict.fromkeys((row["index"], row["view"]) for row in results):
        at = {r["version"]: r for r in results if (r["index"], r["view"]) == (index, view)}
        alike = f"{at['after']['alike']} of {at['after']['queries']}"
        body.append([index, view, alike, *(f"{at[name]['ms']:.2f}" for name in ("last", "after"))])
    return table(["index", "view", "top ten alike", "before, ms", "now, ms"], body)


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


# docs/scale.md: corpora, what is kept of a document, and what its arithmetic takes for granted.
CORPORA = (10**5, 10**6, 10**7, 10**9)
KEPT = (("32 of 384", "index_32_384"), ("32 of 128", "index_32_128"), ("16 of 128", "index_16_128"))
CORE_HOUR_DOLLARS = 0.04
SHARD_DOCUMENTS = 10_000
NODE_BYTES = 48 * 10**9


def bulk_measured() -> str:
    """One document on its way from a file into an index."""
    (found,) = rows("bulk")
    index = {name: sum(found[key].values()) for name, key in KEPT}
    body = [
        ["tokens, bytes of text", f"{found['tokens']:,}; {found['text_bytes']:,}"],
        [
            f"encoding, one core with {found['instructions']}",
            f"{found['encode_ms']} ms (median of ten shards), {found['encode_ms_fastest']} ms "
            "(fastest)",
        ],
        ["memory of a worker", f"{found['encode_peak_mb']} MB, and its shard"],
        [
            "reading past a document",
            f"{found['read_us']} µs, {found['read_bytes']} bytes for its id",
        ],
        ["in a shard, int8", f"{found['shard_bytes_int8']:,} bytes"],
        ["in a shard, f32", f"{found['shard_bytes_f32']:,} bytes"],
        ["checking and reading a shard", f"{found['check_us']} µs"],
        ["adding it to an index, reading included", f"{found['index_us']} µs"],
    ]
    body += [[f"in an index, {name}", f"{size:,} bytes"] for name, size in index.items()]
    return table(["per document, SciFact abstracts", "measured"], body)


def bulk_parts() -> str:
    """The bytes of a document in an index, by part."""
    (found,) = rows("bulk")
    parts = list(found[KEPT[0][1]])
    body = [
        [name, *(f"{found[key][part]:,}" for part in parts), f"{sum(found[key].values()):,}"]
        for name, key in KEPT
    ]
    return table(["units, width", *parts, "all"], body)


def bulk_bytes() -> str:
    """Corpora in bytes: texts, shards, indexes."""
    (found,) = rows("bulk")
    body = [
        [
            _power(count),
            _bytes(count * found["text_bytes"]),
            f"{-(-count // SHARD_DOCUMENTS):,}",
            _bytes(count * found["shard_bytes_int8"]),
            *(_bytes(count * sum(found[key].values())) for _, key in KEPT),
            *(_bytes(count * found[key]["units"]) for _, key in (KEPT[0], KEPT[2])),
        ]
        for count in CORPORA
    ]
    header = [
        "documents",
        "texts",
        "shards",
        "their bytes",
        *(f"index, {name}" for name, _ in KEPT),
    ]
    return table([*header, *(f"unit vectors, {name}" for name, _ in (KEPT[0], KEPT[2]))], body)


def bulk_hours() -> str:
    """What encoding and indexing take."""
    (found,) = rows("bulk")
    body = []
    for count in CORPORA:
        hours = count * found["encode_ms"] / 3.6e6
        body.append(
            [
                _power(count),
                f"{hours:,.0f}" if hours >= 10 else f"{hours:.1f}",
                *(_time(hours / cores) for cores in (8, 64, 1_000)),
                f"{hours * CORE_HOUR_DOLLARS:,.2f}"
                if hours < 100
                else f"{hours * CORE_HOUR_DOLLARS:,.0f}",
                _time(count * found["index_us"] / 3.6e9),
            ]
        )
    header = ["documents", "core hours", "8 cores", "64 cores", "1,000 cores"]
    return table([*header, f"at ${CORE_HOUR_DOLLARS} a core hour", "indexing, one core"], body)


def bulk_nodes() -> str:
    """Machines that hold the unit vectors of a corpus in memory, by what is kept of a document."""
    (found,) = rows("bulk")
    body = []
    for count in CORPORA:
        sizes = [count * found[key]["units"] for _, key in KEPT]
        once = [-(-size // NODE_BYTES) for size in sizes]
        # Two copies are of use only on two machines.
        twice = [max(2, -(-2 * size // NODE_BYTES)) for size in sizes]
        body.append(
            [
                _power(count),
                *(f"{a:,}, {b:,}" for a, b in zip(once, twice, strict=True)),
            ]
        )
    return table(["documents", *(f"{name}: one copy, two" for name, _ in KEPT)], body)


def bulk_reading() -> str:
    """What a shard of 10,000 documents costs its maker, by the size of the whole source."""
    (found,) = rows("bulk")
    encoding = SHARD_DOCUMENTS * found["encode_ms"] / 1e3
    body = []
    for count in (10**5, 10**6, 10**7):
        reading = count / 2 * found["read_us"] / 1e6
        body.append(
            [
                _power(count),
                f"{encoding:,.0f} s",
                f"{reading:,.1f} s",
                f"{reading / encoding:.1%}",
                _bytes(count * found["read_bytes"]),
            ]
        )
    header = ["documents of the source", "encoding a shard", "reading up to it, mean", "share"]
    return table([*header, "memory of all ids"], body)


def searching() -> str:
    """The phrase view of the embedded index up to the largest size, one thread."""
    body = []
    for one in rows("scale"):
        ms = "" if one["path"] == "exact" else f"{one['ms']:.1f} ms"
        exact = f"{one['exact_ms']:.1f} ms"
        body.append([f"{one['documents']:,}", "32 of 128", exact, ms, f"{one['recall10']:.3f}"])
    found = _largest()
    own = found["embedded"]["phrase"]
    made_up = f"{found['units'] // found['documents']} of 128, all documents made up"
    body.append(
        [
            f"{found['documents']:,}",
            made_up,
            "",
            f"{own['p50_ms']:.1f} ms",
            f"{own['recall10']:.3f}",
        ]
    )
    return table(["documents", "units", "all compared", "by sketches", "recall@10"], body)


def engines_quality() -> str:
    """nDCG@10 by Qdrant and by the embedded index, and how many lists of hits are the same."""
    measured = [one for one in rows("engines") if "ndcg10" in one]
    body = []
    for set_, view in dict.fromkeys((one["set"], one["view"]) for one in measured):
        ours, *theirs = (one for one in measured if (one["set"], one["view"]) == (set_, view))
        figures = [f for one in theirs for f in (f"{one['ndcg10']:.3f}", one["same_lists"])]
        title = TITLES[SETS.index(set_)]
        body.append([title, view, f"{ours['ndcg10']:.3f}", *figures])
    header = ["set", "view", "embedded"]
    for name in ("Qdrant, exact", "Qdrant, 8-bit codes", "Qdrant, f16"):
        header += [name, "lists that are the same"]
    return table(header[: len(body[0])], body)


def _sizes() -> list[dict[str, Any]]:
    """What benchmarks/engines.py has measured by size, the smallest first."""
    sizes = [one for one in rows("engines") if "documents" in one]
    return sorted(sizes, key=lambda one: (one["documents"], one["codes"] != "none"))


def _largest() -> dict[str, Any]:
    """The largest collection, vectors as they are."""
    return [one for one in _sizes() if one["codes"] == "none"][-1]


def engines_sizes() -> str:
    """Qdrant beside the embedded index at every size measured."""
    body = []
    for one in _sizes():
        for name in ("embedded", "qdrant"):
            own = one[name]
            codes = "" if one["codes"] == "none" else f", {one['codes']} codes"
            body.append(
                [
                    f"{one['documents']:,}",
                    name if name == "embedded" else f"Qdrant, {one['stored']}{codes}",
                    f"{own['documents_per_second']:,}" if name == "qdrant" else "",
                    f"{own['disk_mb']:,}",
                    f"{own['resident_mb']:,}",
                    *(
                        f"{own[view]['p50_ms']}, {own[view]['p95_ms']}"
                        for view in ("hybrid", "phrase", "global")
                    ),
                    f"{own['phrase']['recall10']:.3f}, {own['hybrid']['recall10']:.3f}",
                ]
            )
    header = ["documents", "engine", "documents a second in", "disk, MB", "resident, MB"]
    views = [f"{view}, p50 and p95 ms" for view in ("hybrid", "phrase", "global")]
    return table([*header, *views, "recall@10, phrase and hybrid"], body)


def engines_measured() -> str:
    """What a document costs in Qdrant."""
    found = _largest()
    count, own = found["documents"], found["qdrant"]
    *_, smaller = (one for one in _sizes() if one["codes"] == "none" and one["documents"] < count)
    quick, rates = smaller["qdrant"], own["by_stretch"]
    body = [
        ["documents, units, width", f"{count:,}; {found['units'] // count} of 128, f32"],
        [
            "push, one client and the server, beside other work on two cores",
            f"{own['documents_per_second']:,} a s ({min(rates):,} to {max(rates):,} by 100,000)",
        ],
        [
            f"the same of {smaller['documents']:,} documents, nothing beside it",
            f"{quick['documents_per_second']:,} a s",
        ],
        [
            "its processor time, client and server",
            f"{own['client_cpu_ms_per_document']:.2f} ms and "
            f"{own['server_cpu_ms_per_document']:.2f} ms (of {smaller['documents']:,}: "
            f"{quick['client_cpu_ms_per_document']:.2f} and "
            f"{quick['server_cpu_ms_per_document']:.2f})",
        ],
        ["disk", f"{1e6 * own['disk_mb'] / count:,.0f} bytes"],
        ["memory that the server has resident", f"{1e6 * own['resident_mb'] / count:,.0f} bytes"],
        [
            "a search by the phrase view, exact, processor time of the server",
            f"{1e3 * own['phrase']['server_cpu_ms'] / count:.2f} µs",
        ],
        ["by the global view, exact", f"{1e3 * own['global']['server_cpu_ms'] / count:.2f} µs"],
    ]
    return table(["per document, Qdrant on one node", "measured"], body)


def engines_extrapolated() -> str:
    """What a corpus of such documents takes in Qdrant."""
    found = _largest()
    own, count = found["qdrant"], found["documents"]
    push = own["client_cpu_ms_per_document"] + own["server_cpu_ms_per_document"]
    body = []
    for size in CORPORA:
        factor = size / count
        seconds = factor * own["phrase"]["server_cpu_ms"] / 1e3
        memory = factor * own["resident_mb"] * 1e6
        nodes, hours = -(-int(memory) // NODE_BYTES), size * push / 3.6e6
        body.append(
            [
                _power(size),
                _bytes(factor * own["disk_mb"] * 1e6),
                _bytes(memory),
                f"{nodes:,}, {max(2, -(-2 * int(memory) // NODE_BYTES)):,}",
                f"{hours:,.2f}" if hours < 1 else f"{hours:,.0f}",
                f"{seconds:,.2f} s" if seconds < 10 else f"{seconds:,.0f} s",
                f"{max(1, -(-int(1e3 * seconds) // 200)):,}",
            ]
        )
    header = ["documents", "disk", "memory", "nodes: one copy, two", "push, core hours"]
    return table([*header, "phrase scan, core seconds a query", "cores for 0.2 s"], body)


def _power(count: int) -> str:
    return f"10^{len(str(count)) - 1}"


def _bytes(count: float) -> str:
    """
    >>> [_bytes(count) for count in (149e6, 1.64e9, 16.4e9, 8.2e12)]
    ['149 MB', '1.6 GB', '16 GB', '8.2 TB']
    """
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:,.{int(count < 10 * size)}f} {unit}"
    return f"{count:,.0f} bytes"


def _time(hours: float) -> str:
    if hours < 1:
        return f"{60 * hours:.0f} min"
    return f"{hours:,.1f} h" if hours < 48 else f"{hours / 24:,.1f} days"


def scale() -> str:
    """Latency, memory and disk by the number of documents."""
    body = []
    for row in rows("scale"):
        body.append(
            [
                f"{row['documents']:,}",
                row["path"].split()[0],
                f"{row['exact_cpu_ms']:.1f}",
                f"{row['cpu_ms']:.1f}",
                f"{row['recall10']:.3f}",
                f"{100 * row['ndcg10_exact']:.1f}",
                f"{100 * row['ndcg10']:.1f}",
                f"{row['open_ms']:.0f}",
                f"{row['search_mb']}",
                f"{row['disk_gb']:.2f}",
                *(
                    f"{row[name]:.0f}" if name in row else ""
                    for name in ("build_cpu_s", "build_mb")
                ),
            ]
        )
    names = [
        "documents",
        "path",
        "exact, ms",
        "search, ms",
        "recall@10",
        "nDCG@10, exact",
        "search",
    ]
    more = ["open, ms", "search, MB", "disk, GB", "build, s", "build, MB"]
    return table([*names, *more], body)


def scale_parts() -> str:
    """What a search by sketches spends where, beside bytes read and multiply-adds."""
    body = []
    for row in rows("scale"):
        for name, ms in row.get("parts_ms", {}).items():
            read, products = row["parts_mb"][name], row["parts_mmac"].get(name)
            rates = ["" if products is None else f"{products:,}", f"{read / ms:.1f}"]
            body.append([f"{row['documents']:,}", name, f"{ms:.2f}", f"{read:,.1f}", *rates])
    return table(["documents", "part", "ms", "MB read", "M mult.-adds", "GB/s"], body)


def scale_recall() -> str:
    """Recall@10 if one document in so many is scored exactly after the estimate."""
    measured = [row for row in rows("scale") if "recall10_of_one_in" in row]
    shares = sorted({int(share) for row in measured for share in row["recall10_of_one_in"]})[::-1]
    found = [[row["recall10_of_one_in"].get(str(share)) for share in shares] for row in measured]
    body = [
        [f"{row['documents']:,}", *("" if r is None else f"{r:.3f}" for r in own)]
        for row, own in zip(measured, found, strict=True)
    ]
    return table(["documents", *(f"1 in {share}" for share in shares)], body)


def first_stage() -> str:
    """Recall@10 by the number of candidates, of each way to choose them."""
    measured = [row for row in rows("first_stage") if "hybrid" in row]
    counts = [str(count) for count in (30, 100, 200, 1000, 4000)]
    body = [
        [
            f"{row['documents']:,} {row['kind']}",
            row["stage"],
            f"{row['ms']:.1f}",
            *(f"{row[view][count]:.3f}" for view in ("phrase", "hybrid") for count in counts),
        ]
        for row in measured
        if "phrase" in row
    ]
    names = [f"{view}, {int(n):,}" for view in ("phrase", "hybrid") for n in counts]
    return table(["documents", "candidates by", "ms", *names], body)


def ablations(name: str) -> str:
    """The start and the first variant as they are, the others minus the first."""
    start, base, *others = rows(name)
    lines = [line for line, value in start.items() if isinstance(value, float)]
    body = [[own["variant"], *(f"{own[line]:.1f}" for line in lines)] for own in (start, base)]
    for own in others:
        difference = own[f"minus_{base['variant']}"]
        body.append([own["variant"], *(_signed(*difference[line]) for line in lines)])
    return table(["", *lines], body)


def _signed(mean: float, low: float, high: float) -> str:
    """A difference with its interval, bold where that is clear of zero."""
    text = f"{mean:+.2f} [{low:.2f}, {high:.2f}]"
    return f"**{text}**" if low > 0 or high < 0 else text


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
    small = (
        "cold_start",
        "encode_rate",
        "terms_cost",
        "memory",
        "indexing",
        "kernels",
        "kernels_int4",
        "train_rate",
        "train_memory",
    )
    small += ("million", "kills", "parts", "precision", "smaller_rate")
    fill(
        ROOT / "docs" / "benchmarks.md",
        {
            "quality": quality(measured),
            "curves": curves(measured),
            "differences": differences(),
            "spans": spans(),
            "lengths": lengths(),
            "search": search(),
            "scan": scan(),
            "beside": beside(),
            "alone": alone(),
            "top_ten": top_ten(),
            "python_path": python_path(),
            "versions": versions(),
            "scale": scale(),
            "scale_parts": scale_parts(),
            "scale_recall": scale_recall(),
            "first_stage": first_stage(),
            "size": size(),
            "engines_quality": engines_quality(),
            "engines_sizes": engines_sizes(),
            "front_page": front_page_differences(),
            "smaller": smaller(),
            **{name: ablations(name) for name in ("ablations-small", "ablations")},
            **{name: listed(name) for name in small},
        },
    )
    fill(ROOT / "docs" / "baselines.md", {"measured": baselines()})
    fill(
        ROOT / "docs" / "scale.md",
        {
            "measured": bulk_measured(),
            "parts": bulk_parts(),
            "bytes": bulk_bytes(),
            "hours": bulk_hours(),
            "reading": bulk_reading(),
            "nodes": bulk_nodes(),
            "searching": searching(),
            "engines_measured": engines_measured(),
            "engines_extrapolated": engines_extrapolated(),
        },
    )
    fill(ROOT / "README.md", {"quality": front_page()})
