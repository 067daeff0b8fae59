"""Weighted MaxSim on one thread: our kernels, plain numpy, maxsim-cpu, and reading the bytes.

    python benchmarks/kernels.py [rounds]

12 query units against 1,000 documents of 253 (all tokens of an abstract) and of 32 vectors (a
budget), 128 wide. Every system takes its turn in every round; `x numpy` (the faster of its two
ways) and `x maxsim-cpu` are ratios of best times, which other work on the machine disturbs least.
Two limits are measured in the same run: `of reading`, the time it takes to read the bytes over
that of the kernel, and `of peak`, its multiply-adds over what the core does with the same
instructions and nothing to read (peak.c; a query of 16-bit codes takes two of VNNI's for each).
maxsim-cpu is optional (`pip install maxsim-cpu`); it has no weights, so its query is multiplied by
them. Writes docs/results/kernels.jsonl.
"""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from hplus.kernels import maxsim, reference, weighted_maxsim
from hplus.storage.segment import quantise
from hplus.storage.spread import spread
from hplus.types import F32

try:
    import maxsim_cpu
except ImportError:
    maxsim_cpu = None

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "kernels.jsonl"
UNITS, DOCUMENTS, WIDTH = 12, 1000, 128
BLOCK = 25  # documents per block for numpy
System = Callable[[], Any]
PEAKS = {  # the function of peak.c, and its multiply-adds for one of ours
    "hplus C, AVX512: int8": ("int8_avx512", 2),
    "hplus C, AVX2: int8": ("int8_avx2", 1),
    "hplus C, AVX512: int4": ("int8_avx512", 2),
    "hplus C, AVX2: int4": ("int8_avx2", 1),
    "hplus C, AVX512: f32": ("f32_avx2", 1),
    "hplus C, AVX2: f32": ("f32_avx2", 1),
}


def processor() -> str:
    """The CPU's name, as Linux reports it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    facts = {key.strip(): value.strip() for key, _, value in (x.partition(":") for x in lines)}
    return f"{facts['model name']} (family {facts['cpu family']}, model {facts['model']})"


def systems(length: int) -> dict[str, System]:
    """Every system on the same documents of `length` vectors each."""
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((DOCUMENTS * length, WIDTH), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    query = vectors[rng.integers(0, len(vectors), UNITS)]
    query += 0.5 * rng.standard_normal(query.shape, dtype=np.float32)
    query /= np.linalg.norm(query, axis=1, keepdims=True)
    weights = rng.random(UNITS, dtype=np.float32)
    scales = (np.abs(vectors).max(axis=1) / 127).astype(np.float16)
    codes = np.rint(vectors / scales[:, None]).clip(-127, 127).astype(np.int8)
    few, few_scales = quantise(vectors, "int4")
    spread_query = spread(query)
    halves = vectors.astype(np.float16)
    starts = np.arange(DOCUMENTS) * length
    ends = starts + length

    def numpy_in_blocks() -> F32:
        first = np.arange(BLOCK) * length
        best = [
            np.maximum.reduceat(query @ vectors[a : a + BLOCK * length].T, first, axis=1)
            for a in range(0, len(vectors), BLOCK * length)
        ]
        return weights @ np.concatenate(best, axis=1)

    def numpy_at_once() -> F32:
        return weights @ np.maximum.reduceat(query @ vectors.T, starts, axis=1)

    found: dict[str, System] = {
        "read the bytes, f32": lambda: np.add.reduce(vectors.view(np.int64), axis=None),
        "read the bytes, f16": lambda: np.add.reduce(halves.view(np.int64), axis=None),
        "read the bytes, int8": lambda: np.add.reduce(codes.view(np.int64), axis=None),
        "read the bytes, int4": lambda: np.add.reduce(few.view(np.int64), axis=None),
        "numpy BLAS + reduceat, at once": numpy_at_once,
        "numpy BLAS + reduceat, blocks": numpy_in_blocks,
    }
    if maxsim_cpu is not None:
        weighted, cube = query * weights[:, None], vectors.reshape(DOCUMENTS, length, WIDTH)
        found["maxsim-cpu"] = lambda: maxsim_cpu.maxsim_scores(weighted, cube)
    for kernel in maxsim.KERNELS:
        for name, asked, rows, factors in (
            ("f32", query, vectors, None),
            ("f16", query, halves, None),
            ("int8", query, codes, scales),
            ("int4", spread_query, few, few_scales),
        ):
            found[f"hplus {kernel}: {name}"] = partial(
                weighted_maxsim, asked, weights, rows, factors, starts, ends, kernel=kernel
            )
    exact = reference.weighted_maxsim(query, weights, vectors, None, starts, ends)
    for name, system in found.items():
        if not name.startswith("read"):
            near = {"int4": 0.2, "int8": 1e-2}.get(name[-4:], 2e-4)
            np.testing.assert_allclose(system(), exact, atol=near)
    return found


def peaks() -> dict[str, float]:
    """Multiply-adds a millisecond that the kernels could do if nothing had to be read."""
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/peak.so"
        source = str(Path(__file__).with_name("peak.c"))
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
        compiled = ctypes.CDLL(library)
    found = {}
    for name, (function, times) in PEAKS.items():
        if name.removeprefix("hplus ").split(":")[0] in maxsim.KERNELS:
            run = getattr(compiled, function)
            run.restype, run.argtypes = ctypes.c_double, [ctypes.c_long]
            rates = []
            for _ in range(10):
                started = time.perf_counter()
                products = run(200_000)
                rates.append(products / (time.perf_counter() - started) / 1e3)
            found[name] = max(rates) / times
    return found


def measured(length: int, rounds: int) -> list[dict[str, Any]]:
    """Interleaved rounds: best and median milliseconds, the ratio of the peers' best to it, and the
    shares of both limits."""
    found, limits = systems(length), peaks()
    multiply_adds = UNITS * DOCUMENTS * length * WIDTH
    times: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(rounds):
        for name, system in found.items():
            started = time.perf_counter()
            system()
            times[name].append((time.perf_counter() - started) * 1e3)

    def ratio(peer: str, name: str) -> float | None:
        peers = [min(times[other]) for other in times if other.startswith(peer)]
        return round(min(peers) / min(times[name]), 2) if peers else None

    def of_reading(name: str) -> float | None:
        if not name.startswith("hplus"):
            return None
        return round(min(times[f"read the bytes, {name.split()[-1]}"]) / min(times[name]), 2)

    def of_peak(name: str) -> float | None:
        return round(multiply_adds / min(times[name]) / limits[name], 2) if name in limits else None

    return [
        {
            "vectors": length,
            "system": name,
            "best_ms": round(min(times[name]), 2),
            "median_ms": round(statistics.median(times[name]), 2),
            "times_numpy": ratio("numpy", name),
            "times_maxsim_cpu": ratio("maxsim-cpu", name),
            "of_reading": of_reading(name),
            "of_peak": of_peak(name),
        }
        for name in found
    ]


if __name__ == "__main__":
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    os.environ["RAYON_NUM_THREADS"] = "1"  # maxsim-cpu's
    with threadpool_limits(1):
        rows = [row for length in (253, 32) for row in measured(length, rounds)]
    cpu = processor()
    print(f"{cpu}, one thread, {rounds} rounds, {UNITS} units x {DOCUMENTS:,} documents")
    if maxsim_cpu is None:
        print("maxsim-cpu is not installed and was left out")
    line = "{:>7}  {:<32}{:>8}{:>10}{:>9}{:>14}{:>12}{:>9}"
    names = ("vectors", "system", "best ms", "median ms", "x numpy", "x maxsim-cpu")
    print(line.format(*names, "of reading", "of peak"))
    for row in rows:
        print(line.format(*("" if value is None else value for value in row.values())))
    RESULTS.write_text("".join(json.dumps({**row, "cpu": cpu}) + "\n" for row in rows))
