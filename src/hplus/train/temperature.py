"""tau where it is written as 0: measured on the first batches, before anything is learned.

eq:teacher_distribution holds softmax(S / tau) against softmax(t). The two can only agree if S / tau
spreads as t does; so tau is the spread of the student's own scores in the groups over that of the
teacher's logits. A tau that is three times too small cost hplus-mini's global view 2.7 points.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from hplus.errors import InputError
from hplus.train import distributed
from hplus.train.config import Config, HeadLoss, LossSettings
from hplus.train.data import Batches, Data, part_of
from hplus.train.distributed import World
from hplus.train.objective import Objective
from hplus.train.passes import Reader, encode
from hplus.train.student import Student

BATCHES = 8
HEADS = ("global", "token", "lexical", "units")


def unwritten(config: Config) -> dict[str, HeadLoss]:
    """The heads that learn with a tau of 0, by name."""
    heads = {name: getattr(config.loss, _field(name)) for name in HEADS}
    return {name: head for name, head in heads.items() if head.weight and not head.tau}


def measured(
    student: Student,
    data: Data,
    config: Config,
    stage: int,
    batches: Batches,
    readers: list[Reader],
    world: World,
) -> dict[str, float]:
    """tau of each head that has none; every process gets the first one's."""
    heads = unwritten(config)
    if stage == 1 and not config.loss.global_.tau:
        raise InputError("loss.global.tau = 0: stage 1 has no teacher to measure by; write a tau")
    if stage == 1 or not heads:
        return {}
    # These heads alone: nothing else needs to be computed.
    once: dict[str, Any] = {_field(n): replace(head, tau=1.0) for n, head in heads.items()}
    objective = Objective(student, data, replace(config, loss=LossSettings(**once)), 2, world)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in heads}
    with torch.no_grad():
        for step in range(BATCHES):
            batch = part_of(batches.at(step), world.process, world.processes)
            rows = (batch.queries, batch.documents)
            objective(batch, [encode(r, own) for r, own in zip(readers, rows, strict=True)])
            for name, spreads in objective.spreads.items():
                found[name] += spreads
    taus = {}
    for name, spreads in found.items():
        own, teacher = np.mean(spreads, axis=0).tolist() if spreads else (0.0, 0.0)
        if not (own > 0 and teacher > 0):
            raise InputError(
                f"loss.{name}.tau = 0 asks for a measured tau, but in the groups of the first "
                f"batches the teacher's logits spread by {teacher:g} and the student's scores by "
                f"{own:g}; score the groups (hplus teach scores), or write a tau"
            )
        taus[name] = distributed.agreed(own / teacher, world)
    return taus


def with_taus(config: Config, taus: dict[str, float]) -> Config:
    """The configuration with measured temperatures in it."""
    heads = {name: head for name, head in unwritten(config).items() if name in taus}
    changed: dict[str, Any] = {_field(n): replace(h, tau=taus[n]) for n, h in heads.items()}
    return replace(config, loss=replace(config.loss, **changed))


def _field(name: str) -> str:
    return "global_" if name == "global" else name
