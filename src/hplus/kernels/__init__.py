"""The fast parts, in C or numpy: importance-weighted MaxSim over ragged documents, lexical lists,
and the clusters of units."""

from hplus.kernels.clustering import ward
from hplus.kernels.lexical import add_lists
from hplus.kernels.maxsim import implementation, maxima, weighted_maxsim
from hplus.kernels.reference import Mean
from hplus.kernels.scan import Wanted, best_documents, longest

__all__ = [
    "Mean",
    "Wanted",
    "add_lists",
    "best_documents",
    "implementation",
    "longest",
    "maxima",
    "ward",
    "weighted_maxsim",
]
