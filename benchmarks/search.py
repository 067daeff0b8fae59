"""Full-corpus phrase search: queries per second, nDCG@10 and peak memory, beside three engines.

    python benchmarks/search.py ../shared/data/eval/scifact --cache /tmp/units \
        --folder /tmp/search --out docs/results/search.jsonl \
        --peer fast_plaid_=PYTHON --peer xtr_warp_=PYTHON --peer qdrant_=PYTHON

Every engine has the same unit vectors (real_units.py; 16 are its 32 merged further), its own
defaults, its own environment (the PYTHON given; benchmarks/peers/ says how each was made) and its
own process, which only opens an index and searches. Queries are encoded beforehand; engines that
take many at once get them in one call. All engines are open at once and take turns, one round each;
the medians of the rounds are compared. About an hour, mostly theirs; `--units "merge to 32"` does
one part, and what --folder already holds is used again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hplus.evaluate.data import RetrievalSet, read_beir
from hplus.evaluate.metrics import ndcg
from hplus.evaluate.statistics import paired_difference
from hplus.kernels import implementation
from hplus.types import F64
from kernels import processor

PEERS = Path(__file__).parent / "peers"
UNITS = {"merge to 16": 16, "merge to 32": 32}
VARIANTS = {
    "hplus_": ("int8", "int8 together", "int8 scan alone", "int8 hybrid", "f32"),
    "fast_plaid_": ("weighted", "plain"),
    "xtr_warp_": ("weighted", "plain"),
    "qdrant_": ("scan", "optimised"),
}
ROUNDS = 5
STEP = 5  # every fifth query is timed: fast-plaid takes a fifth of a second for each


def prepare(data: Path, cache: Path, folder: Path) -> None:
    """Vectors for the others and indexes of ours, a folder for each budget."""
    import numpy as np

    from hplus import Budget, Index
    from hplus.encoded_file import write_encoded
    from real_units import WIDTH, real_units

    found, encoded = read_beir(data), real_units(data, cache)
    ids, texts, queries = found.document_ids, found.documents, encoded[1]
    for name, count in UNITS.items():
        out = folder / name.replace(" ", "-")
        out.mkdir(parents=True)
        budget = Budget(count, policy="merge")
        documents = encoded[0].at(budget=budget)
        arrays = {
            "vectors": documents.units.vectors,
            "offsets": documents.units.offsets,
            "query_vectors": queries.units.vectors,
            "query_weights": queries.units.weights,
            "query_offsets": queries.units.offsets,
        }
        for file, array in arrays.items():
            np.save(out / f"{file}.npy", array)
        write_encoded(out / "queries.safetensors", queries, fingerprint="search")
        for format in ("int8", "f32"):
            index = Index.create(
                out / f"hplus-{format}",
                budget=budget,
                width=WIDTH,
                global_width=documents.global_.shape[1],
                fingerprint="search",
                format=format,  # type: ignore[arg-type]
            )
            rows = [{"row": row} for row in range(len(ids))]
            index.add_encoded(ids, documents, texts=texts, metadata=rows)
            index.compact()


@dataclass(frozen=True)
class Engine:
    """One engine as it is run: its script, the interpreter of its environment, a variant."""

    script: str
    python: str
    variant: str

    def command(self, folder: Path, *what: str) -> list[str]:
        return [self.python, str(PEERS / f"{self.script}.py"), str(folder), self.variant, *what]

    def build(self, folder: Path) -> None:
        subprocess.run(self.command(folder, "build"), check=True, stdout=sys.stderr)

    @contextmanager
    def opened(self, folder: Path, cores: int) -> Iterator[Opened]:
        """A process that has the index open and waits."""
        process = subprocess.Popen(
            self.command(folder, "search", str(cores)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield Opened(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


class Opened:
    """A running engine; `ask` lets it search every s-th query once."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.name = self._read()["name"]
        self.rounds: list[dict[str, Any]] = []

    def ask(self, step: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{step}\n")
        self.process.stdin.flush()
        self.rounds.append(self._read())

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args} ended with {self.process.wait()}")
        return json.loads(line)  # type: ignore[no-any-return]


def measure(engines: list[Engine], folder: Path, cores: int, rounds: int) -> list[Opened]:
    """All engines side by side: one round of all queries, then the ones that are timed."""
    with ExitStack() as stack:
        running = [stack.enter_context(engine.opened(folder, cores)) for engine in engines]
        for step in (1, *[STEP] * rounds):
            for engine in running:
                engine.ask(step)
    return running


def seconds(engine: Opened, cores: int) -> float:
    """Of a timed round, the median: processor time on one core, which other work on the machine
    disturbs least, and time by the clock on several."""
    name = "cpu_seconds" if cores == 1 else "seconds"
    return statistics.median(line[name] for line in engine.rounds[1:])


def agreement(engine: Opened, exact: Opened) -> float:
    """Share of the ten best documents by an exact scan in float32 that an engine finds."""
    pairs = zip(engine.rounds[0]["found"], exact.rounds[0]["found"], strict=True)
    return float(np.mean([len(np.intersect1d(own, wanted)) / 10 for own, wanted in pairs]))


def quality(data: RetrievalSet, engine: Opened) -> F64:
    """nDCG@10 of every query."""
    ids, found = data.document_ids, engine.rounds[0]["found"]
    return np.array(
        [
            ndcg([ids[row] for row in rows], data.judgements[query])
            for query, rows in zip(data.query_ids, found, strict=True)
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="for vectors and indexes")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--peer", action="append", default=[], metavar="SCRIPT=PYTHON")
    parser.add_argument("--units", nargs="+", default=list(UNITS), choices=UNITS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--cores", nargs="+", type=int, default=[1, len(os.sched_getaffinity(0))])
    parser.add_argument("--prepare", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prepare:
        prepare(options.data, options.cache, options.folder)
        return
    if not options.folder.exists():
        # In its own process, so that this one stays small.
        subprocess.run([sys.executable, *sys.argv, "--prepare"], check=True)
    pythons = {"hplus_": sys.executable} | dict(peer.split("=") for peer in options.peer)
    engines = [
        Engine(script, python, variant)
        for script, python in pythons.items()
        for variant in VARIANTS[script]
    ]
    data = read_beir(options.data)
    cpu = f"{processor()}, {implementation()}"
    lines = []
    for units in options.units:
        folder = options.folder / units.replace(" ", "-")
        for engine in engines:
            engine.build(folder)
        for cores in options.cores:
            running = measure(engines, folder, cores, options.rounds)
            values = [quality(data, engine) for engine in running]
            (exact,) = (engine for engine in running if engine.name.endswith(", f32"))
            for engine, own in zip(running, values, strict=True):
                ahead = paired_difference({"": own}, {"": values[0]})
                line = {
                    "units": units,
                    "cpu": cpu,
                    "cores": cores,
                    "engine": engine.name,
                    "queries_per_s": round(len(data.queries[::STEP]) / seconds(engine, cores), 1),
                    "times_ours": round(seconds(running[0], cores) / seconds(engine, cores), 3),
                    "ndcg10": round(100 * float(own.mean()), 2),
                    "ahead": [round(100 * x, 2) for x in (ahead.mean, ahead.low, ahead.high)],
                    "top10": round(100 * agreement(engine, exact), 2),
                    "peak_mb": round(engine.rounds[-1]["peak_mb"]),
                }
                lines.append(line)
                print(json.dumps(line), flush=True)
    options.out.write_text("\n".join(json.dumps(line) for line in lines) + "\n")


if __name__ == "__main__":
    main()
