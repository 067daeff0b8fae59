"""Cells that nobody measured: lines as the kinds name them, with values from a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hplus_lab.cell import Cell
from hplus_lab.cost import Cost
from hplus_lab.kinds import exact_count, fusion, pool_sizes, projection, widths
from hplus_lab.line import At, Line
from hplus_lab.protocol import Protocol

POOL = {"candidates": 1000.0, "recall": 0.9, "oracle": 0.95, "degenerate": 0.0}
FREE = Cost(1.0, 1.0, 1.0, 1.0)


def cell(
    protocol: Protocol,
    task: str,
    lines: Mapping[str, Line | Sequence[float]],
    system: str = "mini",
    split: str = "test",
) -> Cell:
    """One set's cell; values alone make a line that costs next to nothing."""
    whole = {
        name: line if isinstance(line, Line) else Line(name, np.array(line, np.float64), FREE)
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
    for place, (name, at) in enumerate(coordinates(protocol).items()):
        level = 0.03 * np.log2(1 + max((x for x in at.values() if isinstance(x, int)), default=4))
        values = np.clip(base + level + rng.normal(0.002 * place, 0.05, queries), 0, 1)
        vectors = 4.0 + 3 * place
        cost = Cost(vectors, 512 * vectors, 3.5, 1e6 * vectors)
        pooled = protocol.kind == "pool-sizes" or name == "global"
        lines[name] = Line(name, values, cost, at, POOL if pooled else {})
    return cell(protocol, task, lines, system)


def coordinates(protocol: Protocol) -> dict[str, At]:
    """Some lines of each kind, and where they stand."""
    budgets, groupings = protocol.budgets, protocol.groupings
    kinds: dict[str, dict[str, At]] = {
        "views": {
            view: {"view": view}
            for view in (
                *("global", "phrase", "hybrid", "lexical", "phrase, model alone"),
                *("weighted token", "unweighted token", "pooled token", "dense"),
            )
        },
        "exact-count": {
            exact_count.name(rule, side, b): {"rule": rule, "side": side, "budget": b}
            for rule in groupings
            for side in protocol.sides
            for b in budgets
        },
        "budgets": {
            "model, all": {"rule": "model", "policy": "drop"},
            **{
                f"model, {policy} to {b}": {"rule": "model", "policy": policy, "budget": b}
                for policy in ("drop", "merge")
                for b in budgets
            },
            "model, drop to 30% of importance": {"rule": "model", "policy": "drop", "share": 0.3},
            "weighted tokens, all": {"rule": "weighted tokens", "policy": "drop"},
        },
        "pool-sizes": {
            pool_sizes.name(view, k): {"view": view, "pool": k}
            for k in protocol.pools
            for view in pool_sizes.VIEWS
        },
        "widths": {
            widths.name(view, "full" if w == 384 else str(w), gate): {"view": view, "width": w}
            | ({"gate": f"{gate} gate"} if gate else {})
            for w in (64, 128, 256, 384)
            for view in ("global", "weighted token", "unweighted token", "pooled token", "phrase")
            for gate in ([""] if view == "global" else ["own", "frozen"])
        },
        "fusion": {name: {"views": name} for name in fusion.COMBINATIONS},
        "projection": {
            projection.name(rule, space, b): {"rule": rule, "space": space, "budget": b}
            for rule in groupings
            for space in projection.SPACES
            for b in budgets
        },
        "ablations": {
            name: {"rule": name}
            for name in sorted({s for c in protocol.contrasts for s in (c.ours, c.theirs)})
        },
    }
    return kinds[protocol.kind]
