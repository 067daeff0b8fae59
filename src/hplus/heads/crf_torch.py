"""The CRF of `heads/crf.py` for training (eq:seg_loss), in torch.

Every method first moves a row's unmasked positions to its front, in order. So any mask works:
padding on either side, or holes such as special tokens and continuation subwords, across which
the chain links the neighbours. Illegal transitions are minus infinity exactly; since O and B can
always be reached, no sum runs over minus infinities alone and no gradient is NaN.

Cost: one step of [b, 3, 3] per token of the longest row. Sums run in float64, whatever the
emissions are: a likelihood is the small difference of two scores that grow with the text, and in
float32 the marginals of a long text drift from 1. Decoding is the numpy Viterbi, so that training
and inference cannot disagree.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from hplus.errors import InputError
from hplus.heads.crf import CRF, LEGAL, LEGAL_START, I, O, viterbi
from hplus.types import F32, offsets_of


class LinearChainCRF(nn.Module):
    """BIO tags of token states of width d.

    Emissions are [b, n, 3], masks bool [b, n], True where a token counts; masked positions are
    never read.

    >>> crf = LinearChainCRF(384, hidden=64)
    >>> states, mask = torch.zeros(2, 5, 384), torch.ones(2, 5, dtype=torch.bool)
    >>> tags = torch.ones(2, 5, dtype=torch.long)
    >>> loss = -crf.log_likelihood(crf.emissions(states, mask), tags, mask).mean()

    hidden: units of a layer that reads a token with its neighbours; 0 reads the state alone.
    """

    def __init__(self, d: int, hidden: int = 0) -> None:
        super().__init__()
        self.neighbours = nn.Conv1d(d, hidden, kernel_size=3, padding=1) if hidden else None
        self.emit = nn.Linear(hidden or d, 3)
        self.transitions = nn.Parameter(torch.zeros(3, 3))  # (from, to)
        self.start = nn.Parameter(torch.zeros(3))
        self.end = nn.Parameter(torch.zeros(3))

    def emissions(self, states: Tensor, mask: Tensor) -> Tensor:
        """Scores of the tags, [b, n, 3], for states [b, n, d]; masked neighbours count as zero."""
        if self.neighbours is not None:
            seen = states.masked_fill(~mask[:, :, None], 0.0).transpose(1, 2)
            states = torch.relu(self.neighbours(seen)).transpose(1, 2)
        scores: Tensor = self.emit(states)
        return scores

    def log_likelihood(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """log p(tags | text) per row, [b]; 0 for a row that is all masked (eq:seg_loss)."""
        order, within = _front(mask)
        emissions = _reorder(emissions, order)
        tags = tags.long().gather(1, order).masked_fill(~within, O)
        _require_legal(tags, order, within)
        arrive = self.transitions[tags.roll(1, dims=1), tags]  # [b, n]
        arrive[:, :1] = self.start[tags[:, :1]]
        leave = self.end[tags].masked_fill(~_last(within), 0.0)
        score = emissions.gather(2, tags[:, :, None])[:, :, 0] + arrive + leave
        gold = score.masked_fill(~within, 0.0).sum(dim=1)
        return (gold - self._log_partition(emissions, within)).to(self.end.dtype)

    def log_partition(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """log of the summed exp(score) of all legal tag sequences per row, [b]."""
        order, within = _front(mask)
        return self._log_partition(_reorder(emissions, order), within).to(self.end.dtype)

    def _log_partition(self, emissions: Tensor, within: Tensor) -> Tensor:
        transitions = self.transitions.masked_fill(
            ~torch.from_numpy(LEGAL).to(emissions.device), -torch.inf
        )
        start = self.start.masked_fill(
            ~torch.from_numpy(LEGAL_START).to(emissions.device), -torch.inf
        )
        lengths = within.sum(dim=1)
        alpha = emissions.new_zeros(len(emissions), 3)
        for step in range(int(lengths.max()) if len(lengths) else 0):
            if step == 0:
                grown = start + emissions[:, 0]
            else:
                grown = torch.logsumexp(alpha[:, :, None] + transitions, dim=1) + emissions[:, step]
            alpha = torch.where(within[:, step, None], grown, alpha)  # [b, 3]
        return torch.logsumexp(alpha + self.end, dim=1).masked_fill(lengths == 0, 0.0)

    def marginals(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """p(tag at a position | text), [b, n, 3]; 0 at masked positions.

        They are the gradient of `log_partition` by the emissions, and carry no gradient themselves.
        """
        with torch.inference_mode(False), torch.enable_grad():
            scores = emissions.detach().clone().requires_grad_()
            total = self.log_partition(scores, mask.clone()).sum()
            (gradient,) = torch.autograd.grad(total, scores, materialize_grads=True)
        return gradient

    def decode(self, emissions: Tensor, mask: Tensor) -> list[list[int]]:
        """Best legal tags of each row's unmasked positions; ties as in `viterbi`."""
        rows: F32 = emissions[mask].detach().float().cpu().numpy()  # [T, 3]
        offsets = offsets_of(mask.sum(dim=1).cpu().numpy())
        tags, _ = viterbi(self.to_numpy(), rows, offsets)
        return [tags[first:last].tolist() for first, last in pairwise(offsets)]

    def to_numpy(self) -> CRF:
        """The parameters for inference, as float32 copies."""

        def array(parameter: Tensor) -> F32:
            copy: F32 = np.ascontiguousarray(parameter.detach().cpu().numpy(), np.float32).copy()
            return copy

        layer = self.neighbours
        return CRF(
            weight=array(self.emit.weight),
            bias=array(self.emit.bias),
            transitions=array(self.transitions),
            start=array(self.start),
            end=array(self.end),
            # Conv1d keeps [h, d, 3]; its three taps are the token before, itself, and after.
            hidden=None if layer is None else array(layer.weight.permute(2, 1, 0)),
            hidden_bias=None if layer is None or layer.bias is None else array(layer.bias),
        )

    @classmethod
    def from_numpy(cls, crf: CRF) -> LinearChainCRF:
        """A module with a copy of these parameters."""
        module = cls(crf.dim, 0 if crf.hidden is None else crf.hidden.shape[2])
        with torch.no_grad():
            layer = module.neighbours
            if layer is not None and layer.bias is not None:
                layer.weight.copy_(torch.tensor(crf.hidden).permute(2, 1, 0))
                layer.bias.copy_(torch.tensor(crf.hidden_bias))
            module.emit.weight.copy_(torch.tensor(crf.weight))
            module.emit.bias.copy_(torch.tensor(crf.bias))
            module.transitions.copy_(torch.tensor(crf.transitions))
            module.start.copy_(torch.tensor(crf.start))
            module.end.copy_(torch.tensor(crf.end))
        return module


def _front(mask: Tensor) -> tuple[Tensor, Tensor]:
    """The order that moves unmasked positions to the front, and the mask in that order."""
    order = torch.argsort((~mask).to(torch.uint8), dim=1, stable=True)
    return order, mask.gather(1, order)


def _reorder(emissions: Tensor, order: Tensor) -> Tensor:
    """Emissions in that order, as float64."""
    return emissions.double().gather(1, order[:, :, None].expand(-1, -1, 3))


def _last(within: Tensor) -> Tensor:
    """True at the last position of each row of a mask that is all at the front."""
    following = torch.zeros_like(within)
    following[:, :-1] = within[:, 1:]
    return within & ~following


def _require_legal(tags: Tensor, order: Tensor, within: Tensor) -> None:
    """Raise unless the gold tags are 0, 1, 2 and no I follows an O or begins a text."""
    previous = torch.full_like(tags, O)
    previous[:, 1:] = tags[:, :-1]
    unknown = within & ((tags < 0) | (tags > I))
    illegal = within & (tags == I) & (previous == O)
    wrong = (unknown | illegal).nonzero()
    if len(wrong):
        row, place = wrong[0].tolist()
        where = f"row {row}, position {int(order[row, place])}"
        if unknown[row, place]:
            raise InputError(
                f"gold tag {int(tags[row, place])} at {where}: expected 0 (O), 1 (B) or 2 (I)"
            )
        raise InputError(
            f"gold tag I at {where} {'follows O' if place else 'begins the text'}: I may follow "
            "only B or I; make it B, or mask the position"
        )
