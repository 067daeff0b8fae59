"""A protocol: what exactly was measured, frozen in one TOML file.

Numbers of two protocols are never compared: a result names its protocol and the hash of its text,
and results of different hashes are refused. A protocol prints as its own specification, which
parses back (`protocols/__init__.py` reads and checks them).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import Any

from hplus.evaluate.statistics import RESAMPLES
from hplus.storage.segment import Format

# What may be measured, and how it is called; nDCG has exponential gain.
METRICS = {
    "ndcg@10": "nDCG@10",
    "ndcg@100": "nDCG@100",
    "recall-top@100": "Recall@100 of the highest grade",
}
MACROS = ("all", "sensitivity", "english", "chinese", "non-cjk")


@dataclass(frozen=True)
class Contrast:
    """ours - theirs, two lines of a result; `{B}` stands for each of `budgets` in turn.

    p values are corrected within a family, for all its contrasts.
    """

    ours: str
    theirs: str
    family: str = "main"
    budgets: tuple[int, ...] = ()


@dataclass(frozen=True)
class Protocol:
    """All that may change a number; see docs/protocols.md for each word.

    kind: which module of `kinds/`. boundaries: "model" (the checkpoint's own: the CRF, or its rule)
    or "model+terms" (terminology overrides, refused without terms). gate_width: columns of the
    global vectors that choose the candidates. pools: the number K of candidates. sources: whose
    candidates a shared pool unites: "global" (the model's own) and baselines. rankers: baselines
    that rank besides. widths: columns of local vectors. counts: "natural", "exact"
    (eq:exact_count) or "budget". sides: which side a budget binds, "joint" or "document".
    groupings: rules of units/rules.py, "model", "random", "histogram", "shuffled", "chunks" and
    "pooled" (token pooling); those that are random run with every seed and are averaged query by
    query. contrasts: the Holm families. resamples: of the bootstrap. grid: weights tried on dev
    data, on so many queries of a set (dev_sample). sample: queries at most, drawn by the first
    seed.
    """

    name: str
    question: str
    kind: str
    paper: str = ""
    boundaries: str = "model"
    gate_width: int = 128
    pools: tuple[int, ...] = (1_000,)
    sources: tuple[str, ...] = ()
    rankers: tuple[str, ...] = ()
    widths: tuple[int, ...] = (128,)
    counts: str = "natural"
    budgets: tuple[int, ...] = ()
    shares: tuple[float, ...] = ()
    sides: tuple[str, ...] = ()
    groupings: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (13, 42, 2027, 3407, 9001)
    contrasts: tuple[Contrast, ...] = ()
    macros: tuple[str, ...] = MACROS
    text: str = "title text"
    window: int = 256
    format: Format = "f32"
    metric: str = "ndcg@10"
    resamples: int = RESAMPLES
    grid: tuple[float, ...] = ()
    dev_sample: int = 0
    sample: int = 0

    def __str__(self) -> str:
        named = [f.name for f in fields(self) if f.name != "contrasts"]
        lines = [f"{name} = {_toml(getattr(self, name))}" for name in named]
        for contrast in self.contrasts:
            lines += ["", "[[contrasts]]", f"ours = {_toml(contrast.ours)}"]
            lines += [f"theirs = {_toml(contrast.theirs)}", f"family = {_toml(contrast.family)}"]
            lines += [f"budgets = {_toml(contrast.budgets)}"] if contrast.budgets else []
        return "\n".join(lines) + "\n"

    @property
    def hash(self) -> str:
        """Of the specification: two protocols are one if and only if these are equal."""
        return hashlib.sha256(str(self).encode()).hexdigest()

    def filled_in(self) -> list[tuple[Contrast, int, Contrast]]:
        """Every contrast as it is stated, a budget (0 without one), and the contrast at it."""
        found = []
        for stated in self.contrasts:
            repeated = "{B}" in stated.ours + stated.theirs
            for budget in (stated.budgets or self.budgets) if repeated else (0,):
                ours, theirs = (
                    side.replace("{B}", str(budget)) for side in (stated.ours, stated.theirs)
                )
                found.append((stated, budget, Contrast(ours, theirs, stated.family)))
        return found

    def planned(self) -> list[Contrast]:
        """The contrasts with every budget filled in."""
        return [contrast for _, _, contrast in self.filled_in()]


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)
