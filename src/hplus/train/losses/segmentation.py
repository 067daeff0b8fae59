"""eq:seg_loss: the CRF's likelihood of the teacher's labels, of a query and of its positive."""

from __future__ import annotations

from torch import Tensor

from hplus.heads.crf_torch import LinearChainCRF


def seg_loss(crf: LinearChainCRF, states: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
    """-log p(y | x) of each labelled text, [n]: states [n, m, d], tags i64[n, m], mask bool[n, m].

    The loss of a pair is that of its query plus that of its positive.
    """
    return -crf.log_likelihood(crf.emissions(states, mask), tags, mask)
