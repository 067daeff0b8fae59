"""The public face: exported names, what an import pulls in, and that nothing goes online."""

from __future__ import annotations

import subprocess
import sys

import pytest

import hplus
from hplus import HPlus

NAMES = [
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
HEAVY = "{'torch', 'transformers', 'numba', 'scipy', 'sentence_transformers'}"


def test_the_exported_names() -> None:
    assert hplus.__all__ == NAMES
    for name in NAMES:
        assert getattr(hplus, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = hplus.nonsense


@pytest.mark.parametrize(
    "program",
    [
        "import hplus",
        "import hplus.cli",
        "from hplus import HPlus; HPlus().score('type 2 diabetes', ['heart failure', 'type 2'])",
        "from hplus import HPlus; HPlus().encode_document(['heart failure'] * 40)",
    ],
)
def test_nothing_heavy_is_imported(program: str) -> None:
    check = f"{program}\nimport sys\nassert not {HEAVY} & set(sys.modules), sys.modules.keys()"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_importing_hplus_imports_not_even_numpy() -> None:
    check = "import hplus, sys; assert 'numpy' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0


@pytest.mark.usefixtures("no_network")
def test_load_encode_and_score_offline() -> None:
    model = HPlus()
    assert len(model.encode_document(["type 2 diabetes"])) == 1
    assert len(model.score("type 2 diabetes", ["heart failure"])) == 1
