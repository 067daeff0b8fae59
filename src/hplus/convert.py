"""An encoder made small and fast: a portable checkpoint in int8, and the proof that it is a copy.

encoder -> int8 or float32 weights, rotated if asked -> checkpoint -> states beside torch's
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hplus import checkpoint as checkpoints
from hplus.backbones.export import Form, Precision
from hplus.backbones.rotation import principal_axes
from hplus.errors import InputError
from hplus.types import F32, States

if TYPE_CHECKING:
    from hplus.model import HPlus

# Texts whose token states decide a rotation: 384 axes settle within a thousand.
ROTATION_TEXTS = 2_000


@dataclass(frozen=True)
class Proof:
    """A converted encoder beside the original on the same texts.

    cosines of the token states (mean, the lowest hundredth, the lowest) and the mean cosine of the
    global vectors; bytes of the weights; tokens read a second on one core, the original's too.
    """

    mean: float
    hundredth: float
    lowest: float
    global_: float
    size: int
    speed: float
    original_speed: float


def convert(
    model: HPlus,
    folder: str | os.PathLike[str],
    *,
    precision: Precision = "int8",
    rotate: Sequence[str] | None = None,
    name: str | None = None,
) -> F32 | None:
    """Write a model as a portable checkpoint whose encoder has this precision.

    rotate: texts onto whose principal axes the states are turned, so that a prefix of the width
    keeps most of them; returns the rotation. Heads read an inner layer, which stays as it is.
    """
    recipe, backbone = model.recipe, model.checkpoint.backbone
    if rotate is not None and recipe.trained and recipe.layer in (None, backbone.depth):
        raise InputError(f"the heads of {model.name} read the last layer, which would be rotated")
    rotation = None if rotate is None else principal_axes(_token_states(model, rotate))
    changed = replace(model.checkpoint, recipe=replace(recipe, name=name or recipe.name))
    if rotation is not None and changed.mean is not None:
        changed = replace(changed, mean=changed.mean @ rotation)
    checkpoints.save(folder, changed, include_encoder=True, form=Form(precision, rotation))
    return rotation


def prove(original: HPlus, copy: HPlus, texts: Sequence[str], rotation: F32 | None) -> Proof:
    """States of the copy against those of the original, text by text."""
    ours, speed = _timed(copy, texts)
    theirs, original_speed = _timed(original, texts)
    states, pooled = theirs.states, theirs.pooled
    if rotation is not None:
        states, pooled = states @ rotation, pooled @ rotation
    cosines = _cosines(ours.states, states)
    weights = Path(copy.checkpoint.backbone.reference["path"]).glob("*.safetensors")
    return Proof(
        mean=float(cosines.mean()),
        hundredth=float(np.quantile(cosines, 0.01)),
        lowest=float(cosines.min()),
        global_=float(_cosines(ours.pooled, pooled).mean()),
        size=sum(file.stat().st_size for file in weights),
        speed=speed,
        original_speed=original_speed,
    )


def _timed(model: HPlus, texts: Sequence[str]) -> tuple[States, float]:
    """States of all texts, and tokens a second of processor time."""
    from hplus.backbones.encode import encode_states

    backbone, reading = model.checkpoint.backbone, model.recipe.reading("document")
    tokens = backbone.tokenizer.tokens(texts, reading.prompt)
    with backbone.one_thread_each():
        encode_states(backbone, backbone.tokenizer.tokens(texts[:1]), reading)  # warm
        started = time.process_time()
        states = encode_states(backbone, tokens, reading)
    return states, len(tokens.ids) / max(1e-9, time.process_time() - started)


def _token_states(model: HPlus, texts: Sequence[str]) -> F32:
    if not texts:
        raise InputError("expected texts to find the rotation from, got none")
    order = np.random.default_rng(13).permutation(len(texts))[:ROTATION_TEXTS]
    return model.states([texts[i] for i in sorted(order.tolist())]).states


def _cosines(one: F32, other: F32) -> F32:
    """Row by row; rows of zeros, the states of unknown tokens, are left out."""
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    known = lengths > 0
    cosines: F32 = np.einsum("ij,ij->i", one, other)[known] / lengths[known]
    return cosines
