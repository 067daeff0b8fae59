"""The fast part of search: importance-weighted MaxSim over ragged documents and lexical lists, in C
or numpy."""

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
    "weighted_maxsim",
]
