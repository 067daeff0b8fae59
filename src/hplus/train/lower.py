"""States after layers that never change, computed once and kept on disk.

    FOLDER/<key>/  states f16[T, d], done.json

The key is a hash of the weights up to the layer and of all token ids, so a folder holds any number
of runs and never answers for another; models that share their lower layers share these states. An
interrupted pass goes on where it stopped. 0.75 KB per token and layer for 384 columns.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hplus.progress import show_progress
from hplus.states_file import F16, mapped, read_done, write_done
from hplus.train.student import Student, layers_of
from hplus.train.texts import Texts, chunks, packed_order
from hplus.types import I64, offsets_of, rows_of

STEP = 512
"""Texts between two notes of what is done."""


@dataclass(frozen=True)
class Layer:
    """States of all texts of one side after one layer, mapped from disk."""

    states: F16
    offsets: I64

    def take(self, rows: I64) -> Tensor:
        """Those of some texts, one after another, f32[T, d]."""
        places, _ = rows_of(self.offsets, rows)
        return torch.from_numpy(self.states[places].astype(np.float32))


@dataclass(frozen=True)
class Lower:
    """What a pass begins with; inner: what the heads read, None if that is a layer that learns."""

    lower: Layer
    inner: Layer | None


def stored_lower(student: Student, texts: Texts, cache: Path, *, chunk: int, what: str) -> Lower:
    """The states below the layers that learn, and those of the heads."""
    lower = stored_layer(student, student.frozen, texts, cache, chunk=chunk, what=what)
    heads, inner = student.layer, None
    if heads == student.frozen < student.depth:
        inner = lower
    elif heads < student.frozen:
        inner = stored_layer(student, heads, texts, cache, chunk=chunk, what=f"{what} for heads")
    return Lower(lower, inner)


def stored_layer(
    student: Student, layer: int, texts: Texts, cache: Path, *, chunk: int, what: str
) -> Layer:
    """The states after a layer; computed now where the cache lacks them."""
    offsets = offsets_of(texts.lengths)
    folder = cache / key(student, layer, texts)
    folder.mkdir(parents=True, exist_ok=True)
    done_file = folder / "done.json"
    done = read_done(done_file, len(texts))
    shape = (int(offsets[-1]), student.dim)
    states = mapped(folder / "states.npy", np.float16, shape, fresh=done == 0)
    with show_progress(f"states of {what}", len(texts), wanted=done < len(texts)) as bar:
        bar.advance(done)
        for first in range(done, len(texts), STEP):
            last = min(first + STEP, len(texts))
            some = texts.take(np.arange(first, last))
            pieces = list(chunks(some.lengths, chunk))
            found = []
            for piece in pieces:
                with torch.no_grad():
                    found.append(student.below(some.take(piece), layer))
                bar.advance(len(piece))
            order = torch.from_numpy(packed_order(some.lengths, pieces))
            states[offsets[first] : offsets[last]] = torch.cat(found)[order].cpu().numpy()
            states.flush()
            write_done(done_file, last)
    return Layer(states, offsets)


def key(student: Student, layer: int, texts: Texts) -> str:
    """A hash of everything the states depend on."""
    device = student.backbone.device.type
    low = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else ""
    digest = hashlib.sha256(f"{layer} {low}".encode())
    for module in [student.encoder.embeddings, *layers_of(student.encoder)[:layer]]:
        for name, parameter in sorted(module.named_parameters()):
            digest.update(name.encode() + parameter.detach().cpu().numpy().tobytes())
    for array in (texts.before, texts.after, texts.tokens.ids, texts.tokens.offsets):
        digest.update(array.data)  # without a copy: it may be as large as the data
        digest.update(b"|")
    return digest.hexdigest()[:24]
