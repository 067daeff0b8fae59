"""How do latency, memory, disk and recall grow from ten thousand documents to a million?

    python benchmarks/scale.py ../shared/data/eval --cache /tmp/units --folder /tmp/scale \
        --out docs/results/scale.jsonl

SciFact's documents, hidden among made-up ones: each is a real one of the sets of `SETS` with every
unit moved to a cosine of 0.8 with its original, by noise of its own. All have 32 merged units of
width 128, in int8; the global vector of a document, made up or not, is the mean of its units, and
the words of a made-up one are those of its original. The queries are real ones of SciFact and
NFCorpus. Every query is run exactly and as a search does by default, in turn, on one thread, by
the clock and by processor time (the machine may be shared). The bars at a million: recall@10 of at
least 0.98 against the exact scan, a median below 20 ms, less than 6 GB on disk, opened within a
second. An index that is there is used again, and one that was not finished is finished.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hplus import Encoded, HPlus, Index
from hplus.evaluate.data import read_beir
from hplus.evaluate.metrics import Judgements, ndcg
from hplus.kernels import implementation
from hplus.kernels.products import products
from hplus.search import local
from hplus.storage import sketches
from hplus.types import concatenate
from hplus.units.vectors import normalise
from million import Memory
from real_units import BUDGET, WIDTH, real_units

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
HIDDEN = "scifact"
SETS = (HIDDEN, "nfcorpus", "cisi")
QUERIES = 50  # of each set that is asked
SHARES = (512, 256, 128, 64, 32, 16, 8)
CHUNK = 5_000
SEED = 13
NOISE = 0.75  # a vector of this length at a right angle to a unit vector: cosine 0.8


def with_means(documents: Encoded) -> Encoded:
    """The mean of its units for the global vector of each document."""
    units = documents.units
    means = np.add.reduceat(units.vectors, units.offsets[:-1], axis=0)
    return replace(documents, global_=normalise(means))


def made_up(documents: Encoded, count: int, chunk: int) -> Encoded:
    """Documents near real ones."""
    random = np.random.default_rng([SEED, chunk])
    some = documents.take(random.integers(0, len(documents), count))
    units = some.units
    noise = random.standard_normal(units.vectors.shape, np.float32)
    moved = normalise(units.vectors + NOISE * normalise(noise))
    return with_means(replace(some, units=replace(units, vectors=moved)))


def chunks(
    hidden: Encoded, ids: list[str], documents: Encoded, count: int
) -> Iterator[tuple[list[str], Callable[[], Encoded]]]:
    """The ids of an index of `count` documents, some at a time, and how to make their encodings."""
    yield ids, partial(with_means, hidden)
    for first in range(len(ids), count, CHUNK):
        names = [f"made-{i:07d}" for i in range(first, min(first + CHUNK, count))]
        yield names, partial(made_up, documents, len(names), first)


def build(folder: Path, hidden: Encoded, ids: list[str], documents: Encoded, count: int) -> Any:
    """Make an index of `count` documents in one segment; what it cost, if that was done at once."""
    if folder.exists():
        index = Index.open(folder)
    else:
        # With a model, for its mean: what is taken off before int8.
        model = HPlus(long="cut")
        index = Index.create(folder, model, budget=BUDGET, width=WIDTH, global_width=WIDTH)
    there, added_s, cpu_s = len(index), 0.0, 0.0
    wanted, done = [], 0
    for names, make in chunks(hidden, ids, documents, count):
        done += len(names)
        if done > there:
            wanted.append((names, make))
    with Memory() as memory, index, ThreadPoolExecutor(1) as pool:
        # One chunk is made up while another is added: a reader of encodings would do as much.
        made = [pool.submit(make) for _, make in wanted[:1]]
        for i, (names, _) in enumerate(wanted):
            encoded = made.pop().result()
            made = [pool.submit(make) for _, make in wanted[i + 1 : i + 2]]
            started, cpu = time.perf_counter(), time.thread_time()
            index.add_encoded(names, encoded)
            added_s += time.perf_counter() - started
            cpu_s += time.thread_time() - cpu
        started, cpu = time.perf_counter(), time.process_time()
        index.compact()
        compact_s, cpu_s = time.perf_counter() - started, cpu_s + time.process_time() - cpu
    if there:
        return {}
    return {
        "add_s": round(added_s, 1),
        "compact_s": round(compact_s, 1),
        "build_cpu_s": round(cpu_s, 1),
        "build_mb": memory.most,
    }


def timed(run: Callable[[], Any]) -> tuple[Any, float, float]:
    """A result, and the milliseconds it took by the clock and of the processor."""
    started, cpu = time.perf_counter(), time.process_time()
    result = run()
    return result, 1000 * (time.perf_counter() - started), 1000 * (time.process_time() - cpu)


def measure(
    index: Index, asked: dict[str, list[tuple[str, Encoded]]], judged: Judgements
) -> tuple[dict[str, Any], list[list[str]]]:
    """Recall@10 and nDCG@10 of a search as it is by default, and the medians of both paths; and the
    exact hits of every query."""
    names = ("exact_ms", "exact_cpu_ms", "ms", "cpu_ms")
    took: dict[str, list[float]] = {name: [] for name in names}
    recall: dict[str, list[float]] = {}
    gains: dict[str, list[float]] = {"ndcg10_exact": [], "ndcg10": []}
    path, exact_hits = "", []
    for name, queries in asked.items():
        for id_, query in queries:
            found: dict[str, list[str]] = {}
            for prefix, exact in (("exact_", True), ("", False)):
                search = partial(index.search, query, view="phrase", k=10, exact=exact)
                hits, wall, cpu = timed(search)
                found[prefix], path = [hit.id for hit in hits], hits.paths["phrase"]
                took[f"{prefix}ms"].append(wall)
                took[f"{prefix}cpu_ms"].append(cpu)
            shared = set(found["exact_"]) & set(found[""])
            recall.setdefault(name, []).append(len(shared) / len(found["exact_"]))
            exact_hits.append(found["exact_"])
            if name == HIDDEN:
                for prefix, key in (("exact_", "ndcg10_exact"), ("", "ndcg10")):
                    gains[key].append(ndcg(found[prefix], judged[id_]))
    line = {
        "path": path,
        "recall10": round(statistics.mean([r for own in recall.values() for r in own]), 3),
        **{f"recall10_{name}": round(statistics.mean(own), 3) for name, own in recall.items()},
        **{name: round(statistics.mean(own), 4) for name, own in gains.items()},
        **{name: round(statistics.median(own[1:]), 1) for name, own in took.items()},
    }
    return line, exact_hits


def parts(index: Index, queries: list[Encoded], exact_hits: list[list[str]]) -> dict[str, Any]:
    """Of a search by sketches, the medians of its parts in processor milliseconds, with the bytes
    that each reads and its multiply-adds, both in millions; and the recall@10 if one document in so
    many is scored exactly."""
    (part,) = index.engine.snapshot.parts
    segment, places = part.segment, np.arange(len(part.segment))
    if segment.sketches is None or segment.anchors is None or segment.anchor_map is None:
        return {}
    kept = max(local.SURVIVORS, len(places) // local.SURVIVING)
    steps: dict[str, list[float]] = {"anchors": [], "sketches": [], "choice": [], "survivors": []}
    units = statistics.mean(len(query.units.weights) for query in queries)
    ranks = []
    for query, hits in zip(queries, exact_hits, strict=True):
        score = partial(local.phrase_scores, segment, query.units, budget=None)
        scored, _, ms = timed(partial(score, segment.anchors))
        steps["anchors"].append(ms)
        vector = sketches.fit(segment.anchor_map, scored)
        near, _, ms = timed(partial(products, vector, segment.sketches, places))
        steps["sketches"].append(ms)
        chosen, _, ms = timed(partial(local._largest, near, kept))
        steps["choice"].append(ms)
        steps["survivors"].append(timed(partial(score, chosen))[2])
        ranks += [int((near > near[place]).sum()) for place in index.engine.find(hits).tolist()]
    row, each = segment.vectors.shape[1], len(segment.vectors) / len(segment)
    read = {
        "anchors": len(segment.anchors) * each * row,
        "sketches": segment.sketches.nbytes,
        "choice": 4 * len(places),
        "survivors": min(kept, len(places)) * each * row,
    }
    return {
        "survivors": kept,
        "parts_ms": {name: round(statistics.median(own), 2) for name, own in steps.items()},
        "parts_mb": {name: round(size / 1e6, 1) for name, size in read.items()},
        "parts_mmac": {
            name: round((units if name in ("anchors", "survivors") else 1) * size / 1e6)
            for name, size in read.items()
            if name != "choice"
        },
        "recall10_of_one_in": {
            share: round(float(np.mean(np.array(ranks) < len(places) // share)), 3)
            for share in SHARES
        },
    }


def own_mb() -> int:
    """Memory of this process, files mapped into it not counted."""
    status = Path("/proc/self/status").read_text("utf-8")
    return int(status.split("RssAnon:")[1].split()[0]) // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    options = parser.parse_args()
    encoded = {name: real_units(options.data / name, options.cache) for name in SETS}
    judged = read_beir(options.data / HIDDEN)
    hidden, documents = encoded[HIDDEN][0], concatenate([own for own, _ in encoded.values()])
    random = np.random.default_rng(SEED)
    asked: dict[str, list[tuple[str, Encoded]]] = {}
    for name in SETS[:2]:
        queries, ids = encoded[name][1], read_beir(options.data / name).query_ids
        drawn = np.sort(random.permutation(len(queries))[:QUERIES])
        asked[name] = [(ids[row], queries[row]) for row in drawn.tolist()]
    for count in options.sizes:
        folder = options.folder / str(count)
        notes = options.folder / f"{count}.json"
        if not notes.exists():
            built = build(folder, hidden, judged.document_ids, documents, count)
            notes.write_text(json.dumps(built))
        index, open_ms, _ = timed(partial(Index.open, folder))
        with index:
            stats, before = index.stats(), own_mb()
            line = {"documents": count, "kernel": implementation(), "units": stats.units}
            found, exact_hits = measure(index, asked, judged.judgements)
            queries = [query for own in asked.values() for _, query in own]
            line |= found | parts(index, queries, exact_hits)
            line |= {
                "open_ms": round(open_ms, 1),
                "search_mb": own_mb() - before,
                "disk_gb": round((sum(stats.bytes.values()) + stats.catalogue) / 1e9, 3),
                "disk_mb": {n: round(size / 1e6, 1) for n, size in stats.bytes.items()}
                | {"catalogue": round(stats.catalogue / 1e6, 1)},
                **json.loads(notes.read_text()),
            }
        print(json.dumps(line), flush=True)
        known = options.out.read_text().splitlines() if options.out.exists() else []
        lines = {json.loads(text)["documents"]: text for text in known}
        lines[count] = json.dumps(line)
        options.out.write_text("".join(lines[size] + "\n" for size in sorted(lines)))


if __name__ == "__main__":
    main()
