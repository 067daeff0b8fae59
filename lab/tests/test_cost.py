"""Bytes of an index are counted as its files hold them, for every format and budget."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hplus import HPlus, Index
from hplus.evaluate.bench import Bench
from hplus.evaluate.data import demo_folder, read_beir, sample
from hplus.storage.segment import Format
from hplus.units.select import Budget, Policy, bring_to
from hplus_lab.cost import Cost, lexical_file, mean_cost, units_file


@pytest.fixture(scope="module")
def bench(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    data = sample(read_beir(demo_folder("en")), 3, 13)
    model = HPlus(tiny_folder, long="cut", units="words").fit_idf(data.documents)
    return Bench(model, data, tmp_path_factory.mktemp("states"))


@pytest.mark.parametrize("format", ["f32", "f16", "int8"])
@pytest.mark.parametrize(
    ("units", "count", "policy"),
    [
        ("tokens", None, "drop"),
        ("words", None, "drop"),
        ("words", 4, "drop"),
        ("words", 4, "merge"),
        ("tokens", 4, "ward"),
    ],
)
def test_files_are_as_long_as_counted(
    bench: Bench, tmp_path: Path, format: Format, units: str, count: int | None, policy: Policy
) -> None:
    """An index of the same documents: its file without header, numbers and coverage."""
    data, n, width = bench.data, len(bench.ids), 16
    model = HPlus(bench.model.checkpoint.source, long="cut", units=units).fit_idf(data.documents)
    budget = Budget(count, policy=policy)
    index = Index.create(
        tmp_path / "index", model, budget=budget, width=width, global_width=8, format=format
    )
    index.add(
        {"id": name, "text": text}
        for name, text in zip(data.document_ids, data.documents, strict=True)
    )
    index.compact()  # on a busy machine it was written in more than one part
    (file,) = (tmp_path / "index").rglob("*.safetensors")
    content = file.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    every = bench.units(bench.documents, units, "idf", width, Budget())
    natural = np.diff(every.offsets)
    held = natural if count is None else np.minimum(natural, count)
    kept = every if policy == "drop" else bring_to(held, policy, every)
    vector = {"f32": 4 * 8, "f16": 2 * 8, "int8": 8 + 2}[format]
    expected = vector + lexical_file(bench.lexical_view(bench.documents, "idf"))
    expected += units_file(kept, held, format)
    assert len(content) - header - 28 * n == pytest.approx(n * expected, abs=0.01)


def test_costs_add_up_and_average() -> None:
    one, two = Cost(1, 2, 3, 4), Cost(10, 20, 30, 40)
    assert one + two == Cost(11, 22, 33, 44)
    assert mean_cost([one, two]) == Cost(5.5, 11, 16.5, 22)
