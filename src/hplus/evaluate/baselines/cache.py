"""What was encoded, kept on disk by the hash of what it was made from (as `states_file.py` does).

    CACHE/<key>/   rows.npy, done.json

Encoding that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hplus.evaluate.baselines.baseline import Baseline
from hplus.progress import Progress, show_progress
from hplus.states_file import mapped, read_done, write_done
from hplus.types import I64

# Texts between two notes of what is done: what an interrupt can cost.
STEP = 64
# Facts that change no vector.
_ASIDE = ("name", "weights", "licence", "note")


def key_of(baseline: Baseline, files: Mapping[str, str], what: str, texts: Iterable[str]) -> str:
    """A hash over the facts, the weights, `what` ("query", "document", "pairs") and the texts."""
    of_side = asdict(_of_side(baseline, what))
    facts = {name: fact for name, fact in of_side.items() if name not in _ASIDE}
    digest = hashlib.sha256(json.dumps([facts, dict(files), what], sort_keys=True).encode())
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:24]


def _of_side(baseline: Baseline, side: str) -> Baseline:
    """The row without what concerns the other side alone, so that its vectors are found again."""
    late = baseline.late
    if side == "query":
        late = replace(late, skip_punctuation=False, pool_factor=1)
        return replace(baseline, document_prompt="", document_marker="", late=late)
    if side == "document":
        late = replace(late, query_tokens=0, expand=False, attend=False)
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
    """Rows [offsets[-1], width]: `run(first, last)` gives those of some texts not yet stored.

    cache=None keeps them in memory. progress: what to call the work; nothing shows no bar.
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
    bar = show_progress(progress, texts) if progress and done < texts else None
    with bar or nullcontext(Progress()) as shown:
        shown.advance(done)
        for first in range(done, texts, STEP):
            last = min(first + STEP, texts)
            rows[offsets[first] : offsets[last]] = run(first, last)
            if isinstance(rows, np.memmap):
                rows.flush()
                write_done(folder / "done.json", last)
            shown.advance(last - first)
    return rows
