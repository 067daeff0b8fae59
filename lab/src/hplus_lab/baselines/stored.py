"""Encoded texts, kept on disk under the hash of what they were made from.

    CACHE/<key>/   rows.npy, done.json

An interrupted encoding continues where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hplus.progress import show_progress
from hplus.states_file import mapped, read_done, write_done
from hplus.types import I64
from hplus_lab.baselines.baseline import Baseline
from hplus_lab.cache import hash_of

# Texts after which progress is recorded: what an interrupt can cost.
STEP = 64
# Facts that change no vector.
_WITHOUT_EFFECT = ("name", "weights", "licence", "note")


def key_of(baseline: Baseline, files: Mapping[str, str], what: str, texts: Iterable[str]) -> str:
    """A hash of the facts, the weights, `what` ("query", "document", "pairs") and the texts."""
    of_side = asdict(_of_side(baseline, what))
    facts = {name: fact for name, fact in of_side.items() if name not in _WITHOUT_EFFECT}
    return hash_of([json.dumps([facts, dict(files), what], sort_keys=True), *texts])


def _of_side(baseline: Baseline, side: str) -> Baseline:
    """The facts that this side depends on, so that its vectors survive a change to the other."""
    late = baseline.late
    if side == "query":
        late = replace(late, skip_punctuation=False, pool_factor=1)
        return replace(baseline, document_prompt="", document_marker="", late=late)
    if side == "document":
        late = replace(late, query_tokens=0, expand=False)
        return replace(baseline, query_prompt="", query_marker="", late=late)
    return baseline


def stored_rows(
    cache: Path | None,
    key: str,
    offsets: I64,
    width: int,
    dtype: type,
    run: Callable[[int, int], npt.NDArray[Any]],
    progress: str,
) -> npt.NDArray[Any]:
    """Rows [offsets[-1], width] of all texts; `run(first, last)` makes those not stored yet.

    cache=None keeps them in memory. progress: the label of the bar; an empty one shows no bar.
    """
    texts, shape = len(offsets) - 1, (int(offsets[-1]), width)
    done = 0
    if cache is None:
        rows: npt.NDArray[Any] = np.empty(shape, dtype)
    else:
        folder = cache / key
        folder.mkdir(parents=True, exist_ok=True)
        done = read_done(folder / "done.json", texts)
        rows = mapped(folder / "rows.npy", dtype, shape, fresh=done == 0)
    wanted = bool(progress) and done < texts
    with show_progress(progress, texts, wanted=wanted) as shown:
        shown.advance(done)
        for first in range(done, texts, STEP):
            last = min(first + STEP, texts)
            rows[offsets[first] : offsets[last]] = run(first, last)
            if isinstance(rows, np.memmap):
                rows.flush()
                write_done(folder / "done.json", last)
            shown.advance(last - first)
    return rows
