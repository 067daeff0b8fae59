"""Cells that nobody measured: lines as the experiments name them, with values from a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hplus.evaluate.cost import Cost
from hplus.evaluate.lab import Line
from hplus.evaluate.protocol import Protocol
from hplus.evaluate.results import Cell

POOL = {"candidates": 1000.0, "recall": 0.9, "oracle": 0.95, "degenerate": 0.0}


def cell(
    protocol: Protocol,
    task: str,
    lines: Mapping[str, Line | Sequence[float]],
    system: str = "mini",
    split: str = "test",
) -> Cell:
    """One set's cell; values alone make a line without cost."""
    whole = {
        name: line if isinstance(line, Line) else Line(name, np.array(line, np.float64))
        for name, line in lines.items()
    }
    n = len(next(iter(whole.values())).values)
    return Cell(
        protocol=protocol.name,
        protocol_hash=protocol.hash,
        system=system,
        fingerprint=f"{system} fingerprint",
        terms="",
        task=task,
        split=split,
        documents=1234,
        query_ids=tuple(f"q{i}" for i in range(n)),
        data_hash=f"{task} data",
        pool_hash=f"{task} pool",
        lines=whole,
    )


def made_up(protocol: Protocol, task: str, system: str = "mini", queries: int = 40) -> Cell:
    """A cell with the lines of its kind; the same arguments, the same values."""
    rng = np.random.default_rng([*f"{protocol.name}{task}{system}".encode()])
    base = rng.uniform(0.2, 0.6, queries)
    lines = {}
    for place, name in enumerate(names(protocol)):
        level = 0.03 * np.log2(1 + max((int(w) for w in name.split() if w.isdigit()), default=4))
        values = np.clip(base + level + rng.normal(0.002 * place, 0.05, queries), 0, 1)
        vectors = 4.0 + 3 * place
        cost = Cost(vectors, 512 * vectors, 3.5, 1e6 * vectors)
        pooled = protocol.kind == "pool-sizes" or name == "global"
        lines[name] = Line(name, values, cost, POOL if pooled else {})
    return cell(protocol, task, lines, system)


def names(protocol: Protocol) -> list[str]:
    """The lines of the experiments, some of them."""
    budgets, sides = protocol.budgets, protocol.sides
    kinds = {
        "views": ["global", "phrase", "hybrid", "lexical", "phrase, model alone", "token"],
        "exact-count": [
            f"{g}, {s} {b}" for g in protocol.groupings for s in sides for b in budgets
        ],
        "budgets": [
            "model, all",
            *(f"model, {way} to {b}" for way in ("drop", "merge") for b in budgets),
            "model, drop to 30% of importance",
            "tokens, all",
            *(f"tokens, ward to {b}" for b in budgets),
        ],
        "pool-sizes": [f"{view} {k}" for k in protocol.pools for view in ("token", "phrase")],
        "widths": [
            f"{view} {w}{gate}"
            for w in ("64", "128", "256", "full")
            for view in ("global", "token", "phrase")
            for gate in ([""] if view == "global" else [", own gate", ", frozen gate"])
        ],
        "fusion": ["G", "P", "L", "G+P", "G+L", "P+L", "G+P+L"],
        "projection": [
            f"{g}, {s} {b}"
            for g in protocol.groupings
            for s in ("raw", "projected")
            for b in budgets
        ],
        "ablations": sorted({s for c in protocol.contrasts for s in (c.ours, c.theirs)}),
    }
    return kinds[protocol.kind]
