"""The fast part of search: importance-weighted MaxSim over ragged documents, in C or numpy."""

from hplus.kernels.maxsim import implementation, maxima, weighted_maxsim

__all__ = ["implementation", "maxima", "weighted_maxsim"]
