"""Where units begin and end: a linear-chain CRF over BIO tags, for inference, in numpy.

The score of a tag at a token is read off its state, linearly; or, with a hidden layer, off its
state and those of its two neighbours. On a frozen encoder the hidden layer is worth a lot (noun
phrases of CRAFT, F1: 0.80 linear, 0.87 with 64 hidden units) for under a hundredth of the pass.

An I may follow only a B or an I. A mask over the transitions enforces that, so the stored
parameters stay finite and no emission, however large, makes an illegal path win.

`viterbi` runs over all texts of a batch at once, one step per token position: its Python cost
depends on the longest text, not on the batch. It keeps the two best scores per tag, because the
distance between the best and the second-best path (the margin) is how much rounding a partition
tolerates: two machines agree on it unless their scores differ by more than the margin.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hplus.errors import InputError
from hplus.types import F32, I64, U8

O, B, I = 0, 1, 2  # noqa: E741 - the names of the tags
LEGAL = np.ones((3, 3), np.bool_)  # (from, to)
LEGAL[O, I] = False
LEGAL_START = np.array([True, True, False])


@dataclass(frozen=True)
class CRF:
    """Parameters: weight f32[3, d], bias f32[3], transitions f32[3, 3] (from, to),
    start f32[3], end f32[3]; all finite, entries of illegal transitions are never read.
    With a hidden layer of h units, hidden f32[3, d, h] reads the token before, the token and the
    one after, hidden_bias is f32[h] and weight f32[3, h].
    """

    weight: F32
    bias: F32
    transitions: F32
    start: F32
    end: F32
    hidden: F32 | None = None
    hidden_bias: F32 | None = None

    @property
    def dim(self) -> int:
        """Width of the states it reads."""
        return int(self.weight.shape[1] if self.hidden is None else self.hidden.shape[1])

    def __post_init__(self) -> None:
        wanted = {
            "weight": (3, *self.weight.shape[1:2]),
            "bias": (3,),
            "transitions": (3, 3),
            "start": (3,),
            "end": (3,),
        }
        if self.hidden is not None and self.hidden_bias is not None:
            width = self.weight.shape[1]
            wanted |= {"hidden": (3, *self.hidden.shape[1:2], width), "hidden_bias": (width,)}
        elif self.hidden is not None or self.hidden_bias is not None:
            raise InputError("a CRF has both hidden and hidden_bias, or neither")
        for name, shape in wanted.items():
            array = getattr(self, name)
            if array.shape != shape or array.dtype != np.float32 or not np.isfinite(array).all():
                raise InputError(
                    f"CRF {name} must be finite float32 of shape {shape}, "
                    f"got {array.dtype} of shape {array.shape}; was it saved by `to_numpy`?"
                )


def emissions(crf: CRF, states: F32, offsets: I64) -> F32:
    """Score of each tag at each token: states f32[T, d], offsets i64[n + 1] -> f32[T, 3]."""
    if states.shape[1:] != (crf.dim,):
        raise InputError(
            f"this CRF reads states of width {crf.dim}, got shape {states.shape}; "
            "use the backbone it was trained on"
        )
    if crf.hidden is not None and crf.hidden_bias is not None:
        states = _with_neighbours(crf.hidden, crf.hidden_bias, states, offsets)
    scores: F32 = states @ crf.weight.T + crf.bias
    return scores


def _with_neighbours(hidden: F32, bias: F32, states: F32, offsets: I64) -> F32:
    """The hidden layer over the token before, the token itself and the one after: f32[T, h]."""
    # One product: the states are read once. Sums are shifted afterwards, which are narrower.
    before, own, after = np.split(states @ np.concatenate(list(hidden), axis=1), 3, axis=1)
    total: F32 = own + bias
    follows = np.ones(len(states), np.bool_)  # another token of the same text
    follows[offsets[:-1][np.diff(offsets) > 0]] = False
    rows = np.flatnonzero(follows)
    total[rows] += before[rows - 1]
    total[rows - 1] += after[rows]
    return np.maximum(total, 0, out=total)


def viterbi(crf: CRF, emissions: F32, offsets: I64) -> tuple[U8, F32]:
    """Best tags of every text, and by how much they beat the second-best tags.

    emissions f32[T, 3], offsets i64[n + 1] -> tags u8[T], margin f32[n]. The margin is the score
    of the best legal path minus that of the second-best, 0 at a tie, inf for an empty text (its
    one path is the empty one). Of tied paths the one with the lowest last tag wins, then the
    lowest last but one, and so on. Scores are summed in float64, each text by itself: its tags
    and margin do not depend on the rest of the batch.

    >>> zeros = np.zeros(3, np.float32)
    >>> crf = CRF(np.zeros((3, 8), np.float32), zeros, np.zeros((3, 3), np.float32), zeros, zeros)
    >>> viterbi(crf, np.array([[0, 2, 9], [0, 1, 3]], np.float32), np.array([0, 2]))
    (array([1, 2], dtype=uint8), array([2.], dtype=float32))
    """
    if emissions.shape != (offsets[-1], 3):
        raise InputError(
            f"offsets end at {offsets[-1]}: expected emissions of shape ({offsets[-1]}, 3), "
            f"got {emissions.shape}"
        )
    arrive = np.where(LEGAL, crf.transitions.astype(np.float64), -np.inf).T  # (to, from)
    start = np.where(LEGAL_START, crf.start.astype(np.float64), -np.inf)

    # Longest first, so that the texts still active at a step are the first `active[step]`.
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")
    first_row = offsets[:-1][order]
    steps = np.arange(lengths.max(initial=0))
    active = len(lengths) - np.searchsorted(np.sort(lengths), steps, side="right")

    best = np.zeros((len(lengths), 3))  # of all paths that end in a tag here, the best score
    second = np.full((len(lengths), 3), -np.inf)  # and the second-best
    came_from = np.zeros((len(emissions), 3), np.uint8)
    into = np.arange(best.size)
    for n, step in zip(active, steps, strict=True):
        rows = first_row[:n] + step
        if step == 0:
            best[:n] = start + emissions[rows]
            continue
        scores = (best[:n, None, :] + arrive).reshape(-1, 3)  # (text and tag to, from)
        top = into[: 3 * n], scores.argmax(axis=1)
        came_from[rows] = top[1].reshape(-1, 3)
        best[:n] = scores[top].reshape(-1, 3) + emissions[rows]
        # The second-best path into a tag comes from another tag, or is second-best into the same.
        scores[top] = (second[:n, None, :] + arrive).reshape(-1, 3)[top]
        second[:n] = scores.max(axis=1).reshape(-1, 3) + emissions[rows]

    finals = best + crf.end
    tag = finals.argmax(axis=1)
    ends = np.sort(np.concatenate([finals, second + crf.end], axis=1), axis=1)
    margin = np.full(len(lengths), np.inf, np.float32)
    some = lengths[order] > 0
    margin[order[some]] = (ends[:, -1] - ends[:, -2])[some]

    tags = np.zeros(len(emissions), np.uint8)
    for n, step in zip(active[::-1], steps[::-1], strict=True):
        rows = first_row[:n] + step
        tags[rows] = tag[:n]
        tag[:n] = came_from[rows, tag[:n]]
    return tags, margin
