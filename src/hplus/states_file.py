"""Token states of many texts, kept on disk: encoded once, read by every experiment.

    CACHE/<key>/   ids, spans, offsets, mean f32[n, d], states f16[T, d], inner f16[T, d], done.json

The key is a hash of the backbone, the window and the texts, so a cache can hold any number of
sets and never answers for another. Encoding that was interrupted goes on where it stopped. float16
halves the disk (1.5 KB per token for MiniLM with both layers) and moves a similarity by about 1e-4.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hplus.backbones.encode import Reading, capacity, cut_tokens, encode_states
from hplus.errors import InputError
from hplus.files import write_text
from hplus.heads.crf import CRF, emissions, viterbi
from hplus.heads.importance import ImportanceHead
from hplus.progress import show_progress
from hplus.recipe import Side
from hplus.types import F32, Bool, Tokens
from hplus.units import patterns
from hplus.units.partition import begins_of_tags, keep_characters_whole

if TYPE_CHECKING:
    from hplus.model import HPlus

F16 = npt.NDArray[np.float16]
# Texts between two notes of what is done: what an interrupt can cost.
STEP = 256
# Tokens whose states are turned to float32 at a time.
ROWS = 65_536


@dataclass(frozen=True)
class StoredStates:
    """Token states of a set of texts; `states` and `inner` are mapped from disk, f16[T, d]."""

    tokens: Tokens
    states: F16
    inner: F16
    pooled: F32


def stored_states(
    model: HPlus,
    texts: Sequence[str],
    cache: str | os.PathLike[str],
    *,
    side: Side = "document",
    progress: str = "",
) -> StoredStates:
    """The states of all texts, each cut at the window; encoded now where the cache lacks them.

    progress: what to call the work beside the bar; without a name there is no bar.
    """
    backbone, reading = model.checkpoint.backbone, _reading(model, side)
    read = partial(backbone.tokenizer.tokens, prompt=reading.prompt)
    tokens = cut_tokens(read(texts), capacity(backbone, reading))
    folder = Path(cache) / _key(model, texts, reading)
    folder.mkdir(parents=True, exist_ok=True)
    done_file = folder / "done.json"
    done = read_done(done_file, len(texts))
    shapes: dict[str, tuple[type, tuple[int, int]]] = {
        "states": (np.float16, (len(tokens.ids), backbone.dim)),
        "mean": (np.float32, (len(texts), backbone.dim)),
    }
    below = reading.layer != backbone.depth
    if below:  # else the heads read the last layer, whose states are kept already
        shapes["inner"] = (np.float16, (len(tokens.ids), backbone.dim))
    arrays = {
        name: mapped(folder / f"{name}.npy", dtype, shape, fresh=done == 0)
        for name, (dtype, shape) in shapes.items()
    }
    wanted = bool(progress) and done < len(texts)
    with show_progress(progress, len(texts), wanted=wanted) as shown:
        shown.advance(done)
        for first in range(done, len(texts), STEP):
            last = min(first + STEP, len(texts))
            step = encode_states(
                backbone,
                read(texts[first:last]),
                reading,
                threads=model.threads,
                advance=shown.advance,
            )
            rows = slice(tokens.offsets[first], tokens.offsets[last])
            arrays["states"][rows] = step.states
            if below:
                arrays["inner"][rows] = step.inner
            arrays["mean"][first:last] = step.pooled
            for array in arrays.values():
                array.flush()
            write_done(done_file, last)
    inner = arrays["inner" if below else "states"]
    return StoredStates(tokens, arrays["states"], inner, np.asarray(arrays["mean"]))


def are_stored(
    model: HPlus, texts: Sequence[str], cache: str | os.PathLike[str], *, side: Side = "document"
) -> bool:
    """Whether the cache has the states of all these texts."""
    folder = Path(cache) / _key(model, texts, _reading(model, side))
    return read_done(folder / "done.json", len(texts)) == len(texts) > 0


def unit_begins(crf: CRF, stored: StoredStates, *, settled: bool = False) -> Bool:
    """Where the CRF's units begin, bool[T]; settled: by the patterns of spelling."""
    tokens = stored.tokens
    scores = np.empty((len(tokens.ids), 3), np.float32)
    for first in range(0, len(tokens), STEP):
        last = min(first + STEP, len(tokens))
        rows = slice(tokens.offsets[first], tokens.offsets[last])
        offsets = tokens.offsets[first : last + 1] - tokens.offsets[first]
        scores[rows] = emissions(crf, stored.inner[rows].astype(np.float32), offsets)
    tags, _ = viterbi(crf, scores, tokens.offsets)
    begins = keep_characters_whole(begins_of_tags(tags, tokens.offsets), tokens)
    return patterns.override(begins, tokens) if settled else begins


def weigh(head: ImportanceHead, stored: StoredStates) -> F32:
    """The head's importance of every token, f32[T]."""
    importance = np.empty(len(stored.tokens.ids), np.float32)
    for first in range(0, len(importance), ROWS):
        rows = slice(first, first + ROWS)
        importance[rows] = head.importance(stored.inner[rows].astype(np.float32))
    return importance


def _reading(model: HPlus, side: Side) -> Reading:
    reading = replace(model.recipe.reading(side), long="cut")
    return replace(reading, layer=reading.layer or model.checkpoint.backbone.depth)


def _key(model: HPlus, texts: Sequence[str], reading: Reading) -> str:
    digest = hashlib.sha256()
    reference = {k: v for k, v in model.checkpoint.backbone.reference.items() if k != "path"}
    adapter = model.checkpoint.files.get("adapter.safetensors")
    what: list[object] = [reference, adapter, reading.window, reading.layer]
    # Left out where they are the usual ones, so that caches written before they existed serve.
    beside = (reading.prompt, reading.pooling, reading.mean_over, model.recipe.attention)
    if beside != ("", "mean", "all", "bidirectional"):
        what.append(beside)
    digest.update(json.dumps(what, sort_keys=True).encode())
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:24]


def mapped(path: Path, dtype: type, shape: tuple[int, int], *, fresh: bool) -> np.memmap:
    """An array on disk, made now or as it was left."""
    if fresh:
        return np.lib.format.open_memmap(path, "w+", dtype=dtype, shape=shape)
    try:
        np.lib.format.open_memmap(path, "r")  # opened for writing, a short file would be filled up
        array = np.lib.format.open_memmap(path, "r+")
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}); delete {path.parent}") from None
    if array.shape != shape or array.dtype != dtype:
        raise InputError(
            f"{path} holds {array.dtype} of shape {array.shape}, expected {shape}; "
            f"delete {path.parent}"
        )
    return array


def read_done(path: Path, texts: int) -> int:
    """How many of the texts were encoded before."""
    try:
        done = json.loads(path.read_text())["texts"]
    except FileNotFoundError:
        return 0
    except (ValueError, KeyError, TypeError):
        done = None
    if type(done) is not int or not 0 <= done <= texts:
        raise InputError(f"{path} is damaged; delete {path.parent}")
    return done


def write_done(path: Path, texts: int) -> None:
    """Record atomically how many texts are done."""
    write_text(path, json.dumps({"texts": texts}))
