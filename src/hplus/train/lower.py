"""States of the layers that never change, computed once and kept on disk.

    FOLDER/<key>/  lower f16[T, d], inner f16[T, d], done.json

The key is a hash of the frozen weights and of all token ids, so a folder holds any number of runs
and never answers for another. An interrupted pass goes on where it stopped. 1.5 KB per token for
384 columns.
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
class Lower:
    """Stored states of all texts of one side, mapped from disk; inner: those that the heads read,
    None if they read a layer that learns."""

    lower: F16
    inner: F16 | None
    offsets: I64

    def take(self, rows: I64) -> tuple[Tensor, Tensor | None]:
        """Those of some texts, one after another, float32."""
        places, _ = rows_of(self.offsets, rows)
        return _f32(self.lower[places]), None if self.inner is None else _f32(self.inner[places])


def stored_lower(student: Student, texts: Texts, cache: Path, *, chunk: int, what: str) -> Lower:
    """The states below the layers that learn; computed now where the cache lacks them."""
    offsets = offsets_of(texts.lengths)
    folder = cache / key(student, texts)
    folder.mkdir(parents=True, exist_ok=True)
    done_file = folder / "done.json"
    done = read_done(done_file, len(texts))
    shape = (int(offsets[-1]), student.dim)
    heads_read_them = student.layer <= student.frozen < student.depth
    names = ("lower", "inner") if heads_read_them else ("lower",)
    arrays = [mapped(folder / f"{name}.npy", np.float16, shape, fresh=done == 0) for name in names]
    with show_progress(f"states of {what}", len(texts), wanted=done < len(texts)) as bar:
        bar.advance(done)
        for first in range(done, len(texts), STEP):
            last = min(first + STEP, len(texts))
            some = texts.take(np.arange(first, last))
            pieces = list(chunks(some.lengths, chunk))
            found = []
            for piece in pieces:
                with torch.no_grad():
                    found.append(student.below(some.take(piece)))
                bar.advance(len(piece))
            order = torch.from_numpy(packed_order(some.lengths, pieces))
            rows = slice(offsets[first], offsets[last])
            for array, side in zip(arrays, zip(*found, strict=True), strict=False):
                array[rows] = torch.cat(side)[order].cpu().numpy()
                array.flush()
            write_done(done_file, last)
    return Lower(arrays[0], arrays[1] if len(arrays) == 2 else None, offsets)


def key(student: Student, texts: Texts) -> str:
    """A hash of everything the states depend on."""
    device = student.backbone.device.type
    low = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else ""
    digest = hashlib.sha256(f"{student.frozen} {student.layer}{low}".encode())
    below = [student.encoder.embeddings, *layers_of(student.encoder)[: student.frozen]]
    for module in below:
        for name, parameter in sorted(module.named_parameters()):
            digest.update(name.encode() + parameter.detach().cpu().numpy().tobytes())
    for array in (texts.before, texts.after, texts.tokens.ids, texts.tokens.offsets):
        digest.update(array.tobytes() + b"|")
    return digest.hexdigest()[:24]


def _f32(states: F16) -> Tensor:
    return torch.from_numpy(states.astype(np.float32))
