"""Encodings brought to the widths and the budget of an index."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hplus.errors import InputError
from hplus.storage.catalogue import Settings
from hplus.types import Encoded, concatenate, item_of_row
from hplus.units.select import Budget, narrow, shrink
from hplus.units.vectors import normalise


def fit(encoded: Encoded, settings: Settings) -> Encoded:
    """A fresh encoding as an index of these settings stores it."""
    width = encoded.global_.shape[1]
    if width < settings.global_width:
        raise InputError(
            f"the encoding's global vectors have width {width}, the index needs "
            f"{settings.global_width}"
        )
    if width > settings.global_width:
        encoded = replace(encoded, global_=normalise(encoded.global_[:, : settings.global_width]))
    encoded = replace(encoded, units=narrow(encoded.units, settings.width))
    return _under(settings.budget, encoded)


def refit(encoded: Encoded, old: Settings, new: Settings) -> Encoded:
    """A stored encoding at smaller widths and budget; merging works on the stored vectors."""
    if new.global_width < encoded.global_.shape[1]:
        encoded = replace(encoded, global_=normalise(encoded.global_[:, : new.global_width]))
    # Stored vectors have lost their exact length to rounding.
    exact = replace(encoded.units, vectors=normalise(encoded.units.vectors))
    encoded = replace(encoded, units=narrow(exact, new.width))
    taken = new.budget.share == old.budget.share and new.budget.policy != "drop"
    return shrink(encoded, replace(new.budget, share=None) if taken else new.budget)


def _under(budget: Budget, encoded: Encoded) -> Encoded:
    """An encoding under a budget; no share is taken of a text whose units were merged already."""
    counts = np.diff(encoded.units.span_offsets)
    merged = np.zeros(len(encoded), np.bool_)
    merged[item_of_row(encoded.units.offsets)[counts > 1]] = True
    if budget.share is None or not merged.any():
        return shrink(encoded, budget)
    parts = [np.flatnonzero(merged), np.flatnonzero(~merged)]
    once = replace(budget, share=None)
    halves = [shrink(encoded.take(parts[0]), once), shrink(encoded.take(parts[1]), budget)]
    return concatenate(halves).take(np.argsort(np.concatenate(parts)))
