"""`hplus train heads`: the CRF on labels, then the importance head on pairs, both on frozen states.

text -> states (encoded once, kept in the cache) -> CRF -> units -> importance
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hplus.errors import InputError
from hplus.heads.crf import CRF
from hplus.heads.importance import ImportanceHead
from hplus.states_file import stored_states, unit_begins
from hplus.teach.align import tags_of_units
from hplus.teach.labels import Labelled
from hplus.train.crf import Tagged, train_crf
from hplus.train.importance import make_groups, train_importance
from hplus.train.loop import Schedule
from hplus.train.pairs import Pairs
from hplus.types import offsets_of

if TYPE_CHECKING:
    from hplus.model import HPlus

VALIDATION_SHARE = 0.1


@dataclass(frozen=True)
class Heads:
    """Trained heads, and the curves of their training."""

    crf: CRF
    importance: ImportanceHead | None
    curves: dict[str, list[dict[str, float]]]


def train_heads(
    model: HPlus,
    labels: Mapping[str, Sequence[Labelled]],
    dev_labels: Mapping[str, Sequence[Labelled]],
    pairs: Pairs | None,
    *,
    cache: Path,
    folder: Path,
    hidden: int = 64,
    schedule: Schedule | None = None,
) -> Heads:
    """Train on `model`'s backbone; `folder` keeps what resuming needs."""
    schedule = schedule or Schedule()
    training = tagged(model, labels, cache)
    validation = tagged(model, dev_labels, cache)
    crf, curve = train_crf(
        training, validation, hidden=hidden, schedule=schedule, file=folder / "crf.safetensors"
    )
    curves = {"crf": curve}
    if pairs is None:
        return Heads(crf, None, curves)
    queries = stored_states(model, pairs.queries, cache, side="query", progress="encoding queries")
    documents = stored_states(model, pairs.documents, cache, progress="encoding passages")
    # Shuffled: the order of the files must not decide what is held out.
    order = np.random.default_rng(schedule.seed).permutation(len(pairs.queries))
    groups = make_groups(
        queries,
        documents,
        unit_begins(crf, queries, settled=model.recipe.patterns),
        unit_begins(crf, documents, settled=model.recipe.patterns),
        pairs.groups,
    )
    shuffled = [groups[row] for row in order if len(groups[row].query)]
    if len(shuffled) < 2:
        raise InputError(f"expected two queries with tokens or more, got {len(shuffled)}")
    head, curves["importance"] = train_importance(
        shuffled,
        validation=max(1, int(VALIDATION_SHARE * len(shuffled))),
        schedule=schedule,
        file=folder / "importance.safetensors",
    )
    return Heads(crf, head, curves)


def tagged(model: HPlus, labels: Mapping[str, Sequence[Labelled]], cache: Path) -> Tagged:
    """Labels with their states; each source is cached by itself, so that runs can share it."""
    states, tags, lengths = [], [], []
    for source, items in labels.items():
        texts = [item.text for item in items]
        stored = stored_states(model, texts, cache, progress=f"encoding {source}")
        states.append(stored.inner)
        tags.append(tags_of_units(stored.tokens, [item.units for item in items]))
        lengths.append(np.diff(stored.tokens.offsets))
    return Tagged(np.concatenate(states), np.concatenate(tags), offsets_of(np.concatenate(lengths)))
