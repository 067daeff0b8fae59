"""One short vector a document, by which its phrase score is estimated without reading its units.

The phrase score of a query is nearly a linear function of a few numbers of the document: its
maxima (eq:phrase_score) for some hundred units of other documents, the landmarks, in their
principal directions. So a sketch is these numbers in int8, and a query needs no model of its own:
it is scored exactly with some sampled documents, the anchors, and the least-squares fit of those
scores to the anchors' sketches is a vector, whose product with any sketch is the estimate (a CUR
decomposition of the matrix of scores). Whatever a query asks for, a smaller budget or width, its
own scores tell.

A segment has sketches of its own, learned from itself: writing costs a MaxSim of every document
with the landmarks, and nothing of it is carried over.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from hplus.kernels import Mean, maxima
from hplus.kernels.threads import each_of
from hplus.storage.segment import F16, Array, dequantise, to_meet
from hplus.storage.segment_file import Stream
from hplus.types import F32, I64, offsets_of

# From this many documents on, a segment has sketches.
SKETCHED = 4_096
WIDTH = 128
LANDMARKS = 1_024
# Documents from which the principal directions are learned; up to a quarter of a segment are
# anchors, and of a large one as many as cost a search a millisecond.
SAMPLE = 4_096
ANCHORS = 2_048
# The largest number of a sketch, in standard deviations of its column.
LARGEST = 5.0
# Of the mean variance of a column: keeps columns of little worth from following single anchors.
RIDGE = 1e-4
BLOCK = 2_048
CORES = os.cpu_count() or 1

Units = tuple[Array, F16 | None, I64, I64, F32 | None]
"""Documents of one segment: the vectors and scales of its units, the units of each document,
starts i64[n] and ends i64[n], and the mean that was taken off the vectors."""


def sketches_of(arrays: Mapping[str, Array], mean: F32 | None = None) -> dict[str, Array | Stream]:
    """The sketches of a new segment, if it is large enough to have any."""
    offsets = arrays["offsets"]
    return sketches([(arrays["vectors"], arrays.get("scales"), offsets[:-1], offsets[1:], mean)])


def sketches(segments: Iterable[Units]) -> dict[str, Array | Stream]:
    """sketches i8[n, r] of the documents of these segments, anchors i64[A] among them, ascending,
    and anchor_map f32[r, A], which turns the anchors' scores into the vector of a query."""
    parts = list(segments)
    firsts = offsets_of([len(starts) for _, _, starts, _, _ in parts])
    count = int(firsts[-1])
    units = sum(int((ends - starts).sum()) for _, _, starts, ends, _ in parts)
    if count < SKETCHED or not units:
        return {}
    random = np.random.default_rng(13)
    landmarks = _landmarks(parts, units, random)
    sample = np.sort(random.permutation(count)[:SAMPLE])
    met = np.concatenate([*_maxima(parts, firsts, sample, landmarks)])
    mean = met.mean(axis=0)
    centred = met - mean
    values, directions = np.linalg.eigh(centred.T @ centred / len(sample))
    anchors = np.sort(random.permutation(len(sample))[: min(ANCHORS, -(-count // 4))])
    width = max(1, min(WIDTH, len(landmarks), len(anchors) // 8))
    values, directions = values[::-1][:width], directions[:, ::-1][:, :width]
    # Columns of equal variance use the codes best; what each is worth is up to the query.
    spread = np.sqrt(np.maximum(values, 1e-12))
    onto = (directions * (127 / LARGEST / spread)).astype(np.float32)

    def coded(met: F32) -> Array:
        codes: Array = np.clip(np.rint((met - mean) @ onto), -127, 127).astype(np.int8)
        return codes

    known = coded(met[anchors]).astype(np.float64)
    known -= known.mean(axis=0)
    squares = known.T @ known
    squares += max(1.0, RIDGE * np.trace(squares) / width) * np.eye(width)  # 1: if all are equal
    every = np.arange(count)
    return {
        "sketches": Stream(
            np.dtype(np.int8),
            (count, width),
            lambda: (coded(met) for met in _maxima(parts, firsts, every, landmarks)),
        ),
        "anchors": sample[anchors],
        "anchor_map": np.linalg.solve(squares, known.T).astype(np.float32),
    }


def fit(anchor_map: F32, scores: F32) -> F32:
    """The vector of a query, f32[r], from its scores with the anchors, f32[A]."""
    vector: F32 = anchor_map @ (scores - scores.mean())
    return vector


def _landmarks(parts: Sequence[Units], units: int, random: np.random.Generator) -> F32:
    """Unit vectors drawn from all parts, f32[L, r]."""
    drawn = np.sort(random.choice(units, min(units, LANDMARKS), replace=False))
    found = []
    before = 0
    for vectors, scales, starts, ends, mean in parts:
        own = offsets_of(ends - starts)
        mine = drawn[(drawn >= before) & (drawn < before + own[-1])] - before
        document = np.searchsorted(own, mine, side="right") - 1
        rows = starts[document] + mine - own[document]
        found.append(dequantise(vectors[rows], None if scales is None else scales[rows], mean))
        before += int(own[-1])
    return np.concatenate(found)


def _maxima(parts: Sequence[Units], firsts: I64, documents: I64, landmarks: F32) -> Iterator[F32]:
    """The maxima of every landmark over these documents, ascending, f32[., L], some at a time."""
    bounds = np.searchsorted(documents, firsts)
    for part, first, a, b in zip(
        parts, firsts.tolist(), bounds.tolist(), bounds[1:].tolist(), strict=False
    ):
        blocks = [documents[i : min(i + BLOCK, b)] - first for i in range(a, b, BLOCK)]
        for i in range(0, len(blocks), CORES):
            yield from each_of(partial(_met, part, landmarks), blocks[i : i + CORES])


def _met(part: Units, landmarks: F32, documents: I64) -> F32:
    vectors, scales, starts, ends, mean = part
    taken_off = None if mean is None else Mean(to_meet(mean, vectors))
    met = to_meet(landmarks, vectors)
    return maxima(met, vectors, scales, starts[documents], ends[documents], taken_off)
