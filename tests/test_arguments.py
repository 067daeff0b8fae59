"""Wrong types and impossible values, method by method: nothing but our own errors comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hplus import Budget, HPlus, Index, InputError, Search, Terms
from hplus.arguments import whole
from hplus.errors import BudgetError, HPlusError
from tiny import write_tiny

ODD: dict[str, Any] = {
    "none": None,
    "five": 5,
    "minus": -1,
    "huge": 10**30,
    "float": 1.5,
    "nan": float("nan"),
    "text": "x",
    "empty text": "",
    "bytes": b"x",
    "empty list": [],
    "list of none": [None],
    "list of numbers": [5, 6],
    "mixed list": ["a", None],
    "empty dict": {},
    "dict": {"a": 1},
    "dict of none": {None: None},
    "weights": {"global": None},
    "object": object(),
    "function": lambda *_: 1,
    "array": np.array([1, 2]),
    "class": Search,
    "half a character": "\ud800",
    "nul": "a\0b",
    "path": Path("nowhere") / "x",
}


class World:
    """A model, an index and an encoding; every index made here is a new one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number = folder, count()
        self.encoder = write_tiny(folder / "encoder")
        self.model = HPlus(self.encoder, units="words")
        self.index = self.new()
        self.index.add([("a", "kidney failure"), {"id": "b", "text": "heart", "year": 3}])
        self.encoded = self.model.encode_document(["kidney"])

    def place(self) -> Path:
        return self.folder / f"{next(self.number)}.hplus"

    def new(self) -> Index:
        return Index.create(self.place(), self.model)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("world"))
    yield made
    made.index.close()


# Method, and the arguments that are replaced one after another.
CALLS: dict[str, tuple[Callable[..., Any], str]] = {
    "HPlus": (
        lambda w, **k: HPlus(**{"source": w.encoder, **k}),
        "source terms units window fusion query_budget phrase_width long query_prompt nonsense",
    ),
    "segment": (lambda w, **k: w.model.segment(**{"texts": "x", **k}), "texts side"),
    "encode_query": (
        lambda w, **k: w.model.encode_query(**{"texts": "x", **k}),
        "texts budget width",
    ),
    "encode_document": (
        lambda w, **k: w.model.encode_document(**{"texts": "x", **k}),
        "texts budget width devices",
    ),
    "stream_documents": (
        lambda w, **k: list(w.model.stream_documents(**{"texts": ["x"], **k})),
        "texts budget width devices",
    ),
    "states": (lambda w, **k: w.model.states(**{"texts": "x", **k}), "texts side"),
    "score": (
        lambda w, **k: w.model.score(**{"query": "x", "documents": ["y"], **k}),
        "query documents alphas query_budget budget width",
    ),
    "fit_idf": (lambda w, **k: w.model.fit_idf(**k), "texts"),
    "save": (lambda w, **k: w.model.save(**{"folder": w.place(), **k}), "folder card"),
    "create": (
        lambda w, **k: Index.create(**{"path": w.place(), "model": w.model, **k}).close(),
        "path model budget width global_width format fusion",
    ),
    "create without a model": (
        lambda w, **k: Index.create(
            **{"path": w.place(), "width": 8, "global_width": 8, "fingerprint": "x", **k}
        ).close(),
        "budget width global_width fingerprint",
    ),
    "open": (lambda w, **k: Index.open(**{"path": w.index.path, **k}).close(), "path model"),
    "add": (lambda w, **k: w.new().add(**{"source": ["x"], **k}), "source on_error"),
    "update": (lambda w, **k: w.new().update(**{"source": ["x"], **k}), "source"),
    "add_encoded": (
        lambda w, **k: w.new().add_encoded(**{"ids": ["x"], "encoded": w.encoded, **k}),
        "ids encoded texts metadata",
    ),
    "delete": (lambda w, **k: w.index.delete(**k), "ids"),
    "compact": (lambda w, **k: w.new().compact(**k), "budget width global_width"),
    "delete where": (lambda w, where: w.new().delete(where=where), "where"),
    "get": (lambda w, ids: w.index.get(ids), "ids"),
    "getitem": (lambda w, id_: w.index[id_], "id_"),
    "count": (lambda w, where: w.index.count(where), "where"),
    "export": (lambda w, target: w.index.export(target), "target"),
    "update_metadata": (lambda w, fields: w.index.update_metadata(fields), "fields"),
    "passages": (
        lambda w, passages: Index.create(w.place(), w.model, passages=passages).close(),
        "passages",
    ),
    "contains": (lambda w, id_: id_ in w.index, "id_"),
    "more_like": (lambda w, id_: w.index.more_like(id_), "id_"),
    "search": (
        lambda w, **k: w.index.search(**{"query": "x", **k}),
        "query view k where budget query_budget width alphas pool from_ min_score threads group_by "
        "nonsense",
    ),
    "rerank": (
        lambda w, **k: w.index.rerank(**{"query": "x", "ids": ["a"], **k}),
        "query ids alphas budget",
    ),
    "Search": (
        lambda w, **k: Search(**{"query": "x", **k}),  # noqa: ARG005
        "query view k where budget query_budget width alphas pool from_ min_score threads group_by",
    ),
    "Budget": (lambda w, **k: Budget(**k), "count share policy"),  # noqa: ARG005
    "Terms": (lambda w, **k: Terms(**k), "terms"),  # noqa: ARG005
    "Terms.read": (lambda w, **k: Terms.read(**k), "path"),  # noqa: ARG005
    "Terms.find": (lambda w, **k: Terms(["a"]).find(**k), "text"),  # noqa: ARG005
    "Encoded.at": (lambda w, **k: w.encoded.at(**k), "budget width"),
}


@pytest.mark.parametrize(
    ("method", "argument"),
    [(method, argument) for method, (_, names) in CALLS.items() for argument in names.split()],
)
def test_whatever_is_given(
    world: World, monkeypatch: pytest.MonkeyPatch, method: str, argument: str
) -> None:
    monkeypatch.chdir(world.folder)
    call = CALLS[method][0]
    for name, value in ODD.items():
        try:
            call(world, **{argument: value})
        except HPlusError:
            pass
        except Exception as error:
            pytest.fail(f"{method}({argument}={name}): {type(error).__name__}: {error}")


def test_numbers_of_numpy_are_numbers(world: World) -> None:
    assert len(world.index.search("kidney", k=np.int64(1), from_=np.int32(0))) == 1
    assert Budget(np.int64(3)) == Budget(3)
    assert world.model.encode_query("kidney", budget=np.int8(1), width=np.int64(8)).units.width == 8
    made = Index.create(world.place(), world.model, width=np.int64(8), budget=np.int64(2))
    assert (made.settings.width, made.settings.budget.count) == (8, 2)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda i: i.search("x", alphas=5), InputError, "weights by view, got int"),
        (lambda i: i.search("x", budget=10**30), BudgetError, "1 to 2,147,483,647"),
        (lambda i: i.delete(None), InputError, "give the ids of the documents to delete"),
        (lambda i: i.search("x", where={}), InputError, "got dict"),
        (lambda i: i.delete(["a", 5]), InputError, r"ids\[1\] is int, expected str"),
        (lambda i: i.search("x", k=True), InputError, "whole number"),
    ],
)
def test_what_is_said(
    world: World, call: Callable[[Index], Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        call(world.index)


def test_whole_says_the_limits() -> None:
    with pytest.raises(InputError, match="k to be a whole number of 1 or more, got 0"):
        whole("k", 0)
    with pytest.raises(InputError, match="k to be a whole number of 1 to 5, got 6"):
        whole("k", 6, most=5)
