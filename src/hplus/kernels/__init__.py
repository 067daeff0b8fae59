"""The fast part of search: importance-weighted MaxSim over ragged documents, in C or numpy."""

from hplus.kernels.maxsim import implementation, weighted_maxsim

__all__ = ["implementation", "weighted_maxsim"]
