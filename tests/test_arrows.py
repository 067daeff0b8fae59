"""The import graph of the product flows one way: text -> states -> units -> views -> storage ->
search -> faces; serving, evaluation, teaching, training and the command line stand beside it.

Every import counts: those inside functions, and those for types alone, since a name in a signature
is knowledge of the other room too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
# A module may import from its own room and from those above it here, never from one below.
ROOMS = {
    "the ground": ["errors", "filters", "types", "texts", "files", "progress", "terminal",
                   "arguments", "installed"],
    "kernels": ["kernels"],  # plain functions on arrays
    "backbones": ["backbones"],
    "heads": ["heads"],
    "units": ["units"],
    "views": ["views"],
    "sources": ["sources"],
    "storage": ["storage"],
    "search": ["search"],
    "the faces": [
        "recipe", "checkpoint", "origins", "workers", "model", "any_index", "index",
        "bulk", "encoded_file", "states_file", "convert", "unknown", "terms_check",
        "calls", "client", "engines", "__init__",
    ],
    "serve": ["serve", "integrations"],
    "evaluate": ["evaluate"],
    "teach": ["teach"],
    "train": ["train"],
    "the command line": ["cli", "__main__"],
}  # fmt: skip
EXCEPTIONS = {
    # `encoded.at(budget=16)` reads better than a function of another room.
    ("hplus.types", "hplus.units.select"),
}


def room_of(module: str) -> str:
    top = [*module.split("."), "__init__"][1]
    for room, names in ROOMS.items():
        if top in names:
            return room
    pytest.fail(f"{module} is in none of the ROOMS: decide where it stands in the flow")


def imports(source: Path) -> Iterator[tuple[str, str]]:
    """(module, module it imports) for every import statement below a folder of packages."""
    modules = {}
    for path in source.rglob("*.py"):
        parts = path.relative_to(source).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    packages = {name.split(".")[0] for name in modules} | {"hplus_lab"}
    for module, path in sorted(modules.items()):
        inside = module if path.stem == "__init__" else module.rpartition(".")[0]
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                above = inside.split(".")[: len(inside.split(".")) + 1 - node.level]
                base = ".".join([*(above if node.level else []), *filter(None, [node.module])])
                # `from hplus.units import select` names a module, `import Budget` something in one.
                whole = [f"{base}.{alias.name}" for alias in node.names]
                found = [name if name in modules else base for name in whole]
            else:
                continue
            for name in found:
                if name.split(".")[0] in packages:
                    yield module, name


def offences(source: Path) -> list[str]:
    """Every arrow against the flow, as a sentence."""
    rooms = list(ROOMS)
    found = []
    for module, imported in sorted(set(imports(source)) - EXCEPTIONS):
        if imported.split(".")[0] == "hplus_lab":
            found.append(f"{module} imports {imported}: the product must not know the laboratory")
            continue
        own, other = room_of(module), room_of(imported)
        if rooms.index(own) < rooms.index(other):
            found.append(
                f"{module} imports {imported}: {own} must not know {other}, which builds on it"
            )
    return found


def test_no_import_goes_against_the_flow() -> None:
    found = offences(SOURCE)
    assert not found, "\n" + "\n".join(found)


def test_every_exception_is_still_needed() -> None:
    assert set(imports(SOURCE)) >= EXCEPTIONS


@pytest.mark.parametrize(
    ("statement", "imported"),
    [
        ("import hplus.search.local", "hplus.search.local"),
        ("from hplus.search.local import LocalEngine", "hplus.search.local"),
        ("from hplus.search import local", "hplus.search.local"),
        ("from ..search import local", "hplus.search.local"),
        ("from ..search.local import LocalEngine as Engine", "hplus.search.local"),
        ("def f():\n    from hplus import search", "hplus.search"),
        ("if TYPE_CHECKING:\n    from hplus.search import local", "hplus.search.local"),
        ("from hplus import index", "hplus.index"),
        ("from hplus import HPlus", "hplus"),
        ("import hplus.cli.index as index", "hplus.cli.index"),
        ("from hplus_lab import protocol", "hplus_lab"),
    ],
)
def test_an_arrow_against_the_flow_is_seen(tmp_path: Path, statement: str, imported: str) -> None:
    for name in ("__init__", "index", "storage/__init__", "storage/verify", "search/__init__",
                 "search/local", "cli/__init__", "cli/index"):  # fmt: skip
        path = tmp_path / "hplus" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert offences(tmp_path) == []
    (tmp_path / "hplus" / "storage" / "verify.py").write_text(statement)
    (sentence,) = offences(tmp_path)
    assert sentence.startswith(f"hplus.storage.verify imports {imported}: ")
    (tmp_path / "hplus" / "storage" / "verify.py").write_text("from hplus.storage import x\n")
    (tmp_path / "hplus" / "cli" / "index.py").write_text(statement.replace("hplus_lab", "hplus"))
    assert offences(tmp_path) == []


def test_a_module_that_stands_nowhere_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "hplus").mkdir()
    (tmp_path / "hplus" / "server.py").write_text("import hplus.server\n")
    with pytest.raises(pytest.fail.Exception, match=r"hplus\.server is in none of the ROOMS"):
        offences(tmp_path)
