"""Peak memory of indexing, and how long adding one document, deleting one and opening take.

    python benchmarks/indexing.py --folder /tmp/indexing --out docs/results/indexing.jsonl

Random documents of 32 units of width 128 go into an index in chunks, each size in its own process.
The bar: the peak does not grow with their number. Five minutes and 500 MB of disk.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hplus import Budget, Encoded, Index
from hplus.types import Coverage, Lexical, Units, offsets_of
from hplus.units.select import spend
from hplus.units.vectors import normalise

SIZES = (20_000, 100_000)
UNITS, WIDTH, GLOBAL_WIDTH, TOKENS, VOCABULARY = 32, 128, 384, 120, 30_000
CHUNK = 1_000
TIMES = 20


@dataclass(frozen=True)
class Shape:
    """Units and token ids of a document, and the widths of its vectors."""

    units: int = UNITS
    width: int = WIDTH
    global_width: int = GLOBAL_WIDTH
    tokens: int = TOKENS


def random_documents(
    random: np.random.Generator, count: int, shape: Shape | None = None
) -> Encoded:
    """Documents as a budget of 32 leaves them: one span per unit, 120 lexical tokens."""
    shape = shape or Shape()
    kept, width, tokens = shape.units, shape.width, shape.tokens

    def rows(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, np.float32)

    ones = np.ones(count, np.int32)
    weights = -np.sort(-random.random((count, kept), np.float32)).ravel()
    starts = np.tile(np.arange(kept, dtype=np.int32) * 40, count)
    step = VOCABULARY // tokens
    ids = np.arange(tokens) * step + random.integers(0, step, (count, tokens))
    units, dropped = spend(
        Budget(),
        Units(
            vectors=normalise(rows(count * kept, width)),
            weights=weights,
            offsets=offsets_of(kept * ones),
            spans=np.stack([starts, starts + 30], axis=1),
            span_offsets=np.arange(count * kept + 1),
        ),
    )
    importance = np.add.reduceat(weights, units.offsets[:-1])
    return Encoded(
        global_=normalise(rows(count, shape.global_width)),
        units=units,
        lexical=Lexical(
            ids=ids.astype(np.int32).ravel(),
            weights=random.random(count * tokens, np.float32),
            offsets=offsets_of(tokens * ones),
        ),
        dropped=dropped,
        coverage=Coverage(200 * ones, ones, 0 * ones, importance, importance),
    )


def fill(folder: Path, count: int) -> Iterator[int]:
    """Fill an index with `count` documents; yields the number added so far after every chunk."""
    index = Index.create(
        folder,
        budget=Budget(UNITS, policy="merge"),
        width=WIDTH,
        global_width=GLOBAL_WIDTH,
        fingerprint="random",
    )
    random = np.random.default_rng(13)
    for first in range(0, count, CHUNK):
        names = [str(first + i) for i in range(CHUNK)]
        index.add_encoded(names, random_documents(random, CHUNK))
        yield first + CHUNK
    index.close()


def child(folder: Path, count: int) -> None:
    """Fill an index, then change and open it; one line with the times and the peak."""
    from peers.protocol import peak_mb

    started = time.perf_counter()
    for _ in fill(folder, count):
        pass
    added = time.perf_counter() - started
    line = {"documents": count, "peak_mb": round(peak_mb()), "docs_per_s": round(count / added)}
    random = np.random.default_rng(14)
    more = random_documents(random, TIMES)
    index = Index.open(folder)
    adding = median_ms(lambda i: index.add_encoded([f"new {i}"], more[i]))
    deleting = median_ms(lambda i: index.delete(str(7 * i)))
    index.close()
    opening = median_ms(lambda _: Index.open(folder).close())
    line |= {"add_ms": adding, "delete_ms": deleting, "open_ms": opening}
    print(json.dumps(line | {"segments": Index.open(folder).stats().segments}))


def median_ms(act: Callable[[int], object]) -> float:
    """Of twenty times."""
    times = []
    for i in range(TIMES):
        started = time.perf_counter()
        act(i)
        times.append(1000 * (time.perf_counter() - started))
    return round(statistics.median(times), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.folder, options.child)
        return
    lines = []
    for count in options.sizes:
        folder = options.folder / str(count)
        shutil.rmtree(folder, ignore_errors=True)
        command = [sys.executable, *sys.argv, "--folder", str(folder), "--child", str(count)]
        lines.append(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        print(lines[-1], end="", flush=True)
        shutil.rmtree(folder)
    options.out.write_text("".join(lines))


if __name__ == "__main__":
    main()
