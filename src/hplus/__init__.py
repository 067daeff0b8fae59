"""hplus: retrieval by phrases. One encoder, three views, explained.

Names are imported when first used, so that `import hplus` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hplus.client import AsyncClient, Client
    from hplus.errors import (
        BackboneError,
        BudgetError,
        CheckpointError,
        FilterError,
        HPlusError,
        IndexBusyError,
        IndexDamagedError,
        InputError,
        MissingDocumentError,
        MissingExtraError,
        ModelMismatchError,
        ServiceError,
        StorageError,
        TeacherError,
        TermsError,
    )
    from hplus.index import Index
    from hplus.model import HPlus
    from hplus.search.results import Results
    from hplus.sources.columns import Columns
    from hplus.sources.document import Document
    from hplus.types import Encoded, Explanation, Hit, Lexical, Scores, Search, Span, Unit, Units
    from hplus.units.select import Budget
    from hplus.units.terms import Terms

__version__ = "0.1.0"
DEFAULT_MODEL = "small"
"""The built-in checkpoint that is taken when none is named."""

_HOMES = {
    "HPlus": "hplus.model",
    "Client": "hplus.client",
    "AsyncClient": "hplus.client",
    "Index": "hplus.index",
    "Results": "hplus.search.results",
    "Budget": "hplus.units.select",
    "Columns": "hplus.sources.columns",
    "Document": "hplus.sources.document",
    "Terms": "hplus.units.terms",
    "Encoded": "hplus.types",
    "Explanation": "hplus.types",
    "Hit": "hplus.types",
    "Lexical": "hplus.types",
    "Scores": "hplus.types",
    "Search": "hplus.types",
    "Span": "hplus.types",
    "Unit": "hplus.types",
    "Units": "hplus.types",
    "HPlusError": "hplus.errors",
    "InputError": "hplus.errors",
    "BudgetError": "hplus.errors",
    "CheckpointError": "hplus.errors",
    "BackboneError": "hplus.errors",
    "TermsError": "hplus.errors",
    "FilterError": "hplus.errors",
    "MissingDocumentError": "hplus.errors",
    "ModelMismatchError": "hplus.errors",
    "ServiceError": "hplus.errors",
    "StorageError": "hplus.errors",
    "TeacherError": "hplus.errors",
    "IndexBusyError": "hplus.errors",
    "IndexDamagedError": "hplus.errors",
    "MissingExtraError": "hplus.errors",
}

__all__ = [
    "AsyncClient",
    "BackboneError",
    "Budget",
    "BudgetError",
    "CheckpointError",
    "Client",
    "Columns",
    "Document",
    "Encoded",
    "Explanation",
    "FilterError",
    "HPlus",
    "HPlusError",
    "Hit",
    "Index",
    "IndexBusyError",
    "IndexDamagedError",
    "InputError",
    "Lexical",
    "MissingDocumentError",
    "MissingExtraError",
    "ModelMismatchError",
    "Results",
    "Scores",
    "Search",
    "ServiceError",
    "Span",
    "StorageError",
    "TeacherError",
    "Terms",
    "TermsError",
    "Unit",
    "Units",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hplus' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
