"""Raw states, and those of the token projection in their place (eq:token_projection), divided alike
and with the same number of units in every text.

A projection is trained on a model's frozen states (`experiments/train_projection.py`) and read by
this protocol alone. Those of built-in checkpoints are in `data/` of this package, by their names;
that of any other checkpoint lies in its folder:

    projection.safetensors   project.weight [d, d], project.bias [d]
    projection.json          sha256 of that file, and how it was trained
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np

from hplus.errors import InputError
from hplus.heads.files import read_tensors
from hplus.model import HPlus
from hplus.states_file import StoredStates
from hplus.types import F32, Bool, Units
from hplus.units.partition import partition
from hplus.units.vectors import normalise, segment_sums, unit_importance, unit_vectors
from hplus_lab import paper
from hplus_lab.equal_counts import MADE_TO_COUNT, RANDOM, counted, in_order, rank_prefixes
from hplus_lab.experiment import Experiment, Inputs
from hplus_lab.kinds.kind import Curve, Kind
from hplus_lab.line import At, Line
from hplus_lab.paper import Delta, Printed
from hplus_lab.protocol import Protocol

DATA = Path(__file__).parents[1] / "data"
SPACES = ("raw", "projected")
Projection = tuple[F32, F32]
"""W_T f32[d, d] and b_T f32[d]."""


def name(rule: str, space: str, budget: int) -> str:
    return f"{rule}, {space} {budget}"


def lines(x: Experiment) -> Iterator[Line]:
    projection = read_projection(projection_folder(x.bench.model))
    counts = counted(x, x.protocol.groupings)
    for space, rule in product(SPACES, x.protocol.groupings):
        queries, documents = (
            _units(x, side, begins, projection if space == "projected" else None)
            for side, begins in zip(x.sides, counts.begins[rule], strict=True)
        )
        for _, budget, ranker in rank_prefixes(x, counts, queries, documents, ("joint",)):
            at: At = {"rule": rule, "space": space, "budget": budget}
            yield x.line(name(rule, space, budget), ranker, x.gate, at)


def _units(x: Experiment, side: StoredStates, begins: Bool, projection: Projection | None) -> Units:
    """In order of importance."""
    units = partition(begins, side.tokens.offsets)
    if projection is None:
        vectors = unit_vectors(side.states[:, : x.width].astype(np.float32), units, x.width)
    else:  # affine: the mean of the projections is the projection of the mean
        matrix, bias = (part[: x.width] for part in projection)
        means = segment_sums(side.states.astype(np.float32), units.bounds)
        means /= np.diff(units.bounds).astype(np.float32)[:, None]
        vectors = normalise(means @ matrix.T + bias)
    weights = unit_importance(x.bench.importance(side, x.importance), units)
    return in_order(side, units, vectors, weights, weights)


def projection_folder(model: HPlus) -> Path:
    """Where the projection of a model lies."""
    source = model.checkpoint.source
    folder = DATA / source if (DATA / source).is_dir() else Path(source)
    if not (folder / "projection.json").is_file():
        raise InputError(
            f"{model.recipe.name} has no token projection; experiments/train_projection.py trains "
            "one"
        )
    return folder


def read_projection(folder: Path) -> Projection:
    """W_T and b_T, if the file is the one that `projection.json` describes."""
    tensors = read_tensors(folder / "projection.safetensors", _digest(folder), or_f16=True)
    return tensors["project.weight"], tensors["project.bias"]


def _digest(folder: Path) -> str:
    found: str = json.loads((folder / "projection.json").read_text("utf-8"))["sha256"]
    return found


def inputs(_: Protocol, model: HPlus, __: Inputs) -> list[str]:
    return [_digest(projection_folder(model))]


def check(protocol: Protocol) -> list[str]:
    complaints = []
    if protocol.sides != ("joint",):
        complaints.append("sides of projection are joint")
    if not {*RANDOM, *MADE_TO_COUNT}.isdisjoint(protocol.groupings):
        complaints.append("projection has no groupings but the model's and fixed rules")
    return complaints


def printed(label: str, _: bool) -> list[Printed]:
    table = paper.table(label)
    macros: dict[str, float] = {}
    differences = {}
    for row in table.rows:
        (raw_phrase, raw_token), (phrase, token) = (
            [name(rule, space, row["budget"]) for rule in ("model", "tokens")] for space in SPACES
        )
        bigram = name("ngrams-2", "projected", row["budget"])
        macros |= {phrase: row["projected_phrase"], token: row["projected_token"]}
        for sides, column, bounds in (
            ((raw_phrase, raw_token), "raw_phrase_minus_token", "raw"),
            ((phrase, token), "projected_phrase_minus_token", "projected_token"),
            ((phrase, bigram), "projected_phrase_minus_bigram", "projected_bigram"),
        ):
            differences[sides] = Delta(row[column], row[f"{bounds}_low"], row[f"{bounds}_high"])
    return [Printed(label, table.tasks, macros=macros, differences=differences)]


KIND = Kind(
    lines,
    counts="exact",
    states=("budgets", "groupings"),
    check=check,
    inputs=inputs,
    curve=Curve("budget", "B, units kept of a text at most", ("rule", "space")),
    paper=printed,
)
