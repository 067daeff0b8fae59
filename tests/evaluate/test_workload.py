"""What the clock runs is what the tables score, line by line; files are as long as counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hplus import HPlus, Index
from hplus.evaluate import workload
from hplus.evaluate.audit import units_of
from hplus.evaluate.beir import Bench
from hplus.evaluate.cost import Cost, lexical_file, units_file
from hplus.evaluate.data import demo_folder, read_beir
from hplus.evaluate.exact import begins, counted, seeded
from hplus.evaluate.experiments import VIEWS, combinations_of_views, run, shared_candidates
from hplus.evaluate.lab import Lab
from hplus.evaluate.others import Other
from hplus.evaluate.protocol import Protocol, load
from hplus.evaluate.run import sample
from hplus.evaluate.workload import workloads
from hplus.index.segment import Format
from hplus.types import F32, I64
from hplus.units import controls
from hplus.units.select import Budget, Policy
from hplus.units.terms import Terms
from hplus.views.fusion import fuse

QUERIES = 3


@pytest.fixture(scope="module")
def bench(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    data = sample(read_beir(demo_folder("en")), QUERIES, 13)
    model = HPlus(tiny_folder, long="cut", units="words").fit_idf(data.documents)
    terms = Terms(["heart failure", "type 2 diabetes", "blood pressure"])
    return Bench(model, data, tmp_path_factory.mktemp("states"), terms)


def small(name: str, **changes: Any) -> Protocol:
    return replace(load(name), **{"pools": (20,), "widths": (16,), "gate_width": 8, **changes})


@pytest.mark.parametrize("format", ["f32", "int8"])
def test_every_scorer_gives_the_table_s_scores(bench: Bench, format: Format) -> None:
    lab = Lab(bench, small("full-corpus", format=format))
    n = len(bench.ids)
    every = np.tile(np.arange(n), (QUERIES, 1))
    scores = {
        "global": lab.global_,
        "lexical": lab.lexical()[0],
        "phrase": lab.local(lab.units, 16, pools=every)[0],
        "token": lab.token(16, every)[0],
    }
    alphas = bench.model.recipe.fusion
    for line, work in workloads(lab):
        for row in range(QUERIES):
            pool = np.sort(lab.gate[row]) if "global pool" in line else np.arange(n)
            of = {view: own[row, pool].astype(np.float64) for view, own in scores.items()}
            view = line.split(",")[0]
            expected = fuse(of, alphas) if view == "hybrid" else of[view]
            np.testing.assert_allclose(work.score(row), expected, atol=2e-5, err_msg=line)


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """Query units, document units and columns of every call of the kernel."""
    calls: list[tuple[int, int, int]] = []
    kernel = workload.weighted_maxsim

    def counting(
        queries: F32, weights: F32, codes: F32, scales: F32 | None, starts: I64, ends: I64
    ) -> F32:
        calls.append((len(queries), int((ends - starts).sum()), codes.shape[1]))
        return kernel(queries, weights, codes, scales, starts, ends)

    monkeypatch.setattr(workload, "weighted_maxsim", counting)
    return calls


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("broad-deployed", {}),
        ("dimensional", {"widths": (8, 16)}),
        ("pool-sensitivity", {"pools": (5, 1_000)}),
        ("full-corpus", {}),
        ("fusion", {}),
        ("ablations", {"budgets": (6,)}),
        ("budgets", {"budgets": (4, 16), "shares": (0.5,)}),
        ("exact-count", {"budgets": (4, 16), "seeds": (13,)}),
    ],
)
def test_every_line_does_the_work_it_is_counted_for(
    bench: Bench, met: list[tuple[int, int, int]], name: str, changes: dict[str, Any]
) -> None:
    """With all documents as candidates, means of what the kernel meets are the line's costs."""
    changes = {"pools": (1_000,), **changes}
    lab, n = Lab(bench, small(name, **changes)), len(bench.ids)
    alphas = {
        name: {VIEWS[view]: 1.0 for view in name.split("+")} for name in combinations_of_views()
    }
    lines = {line.name: line for line in run(lab, alphas)}
    works = dict(workloads(lab))
    assert works.keys() == lines.keys()
    checked = 0
    for line, work in works.items():
        cost = lines[line].cost
        assert cost is not None
        assert work.file > cost.bytes or "global" in line or line == "G"
        if line.startswith(("hybrid", "lexical")) or "L" in line or "+" in line:
            continue  # postings, and sums of views
        met.clear()
        for row in range(QUERIES):
            work.score(row)
        units, vectors, columns = np.array(met).T
        assert (columns == columns[0]).all()
        assert units.mean() == pytest.approx(cost.query_units), line
        if line.split()[-1] != "5":  # five candidates are not the whole corpus
            assert vectors.mean() / n == pytest.approx(cost.vectors), line
            multiplications = units.mean() * vectors.mean() * columns[0]
            assert multiplications == pytest.approx(cost.multiplications), line
        checked += 1
    assert checked >= 2


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("ablations", {"budgets": (6,)}),
        ("budgets", {"budgets": (4, 16), "shares": (0.5,)}),
        ("exact-count", {"budgets": (4, 16), "seeds": (13,)}),
    ],
)
@pytest.mark.parametrize("format", ["f32", "int8"])
def test_files_hold_what_a_line_keeps_and_drops(
    bench: Bench, name: str, changes: dict[str, Any], format: Format
) -> None:
    """Vectors of what is kept, importance and places of what is dropped too; merged units have
    the places of all."""
    lab, n = Lab(bench, small(name, format=format, **changes)), len(bench.ids)
    lines = {line.name: line for line in run(lab)}
    for line, work in workloads(lab):
        cost = lines[line].cost
        assert cost is not None
        kept = round(cost.vectors * n)
        rule = line.split(",")[0]
        tokens = bench.documents.tokens
        if rule == "chunks":  # a text has no others than those it keeps
            at = lab.protocol.budgets.index(int(line.split()[-1]))
            counts = counted(lab, lab.protocol.groupings).held[:, at]
            cut = controls.equal_chunks(tokens, counts)
        else:
            cut = begins(lab, bench.documents, seeded(lab, rule.replace("pooled", "tokens"))[0])
        spans = [(unit.start, unit.end) for own in units_of(tokens, cut) for unit in own]
        whole = rule == "pooled" or " ward " in line or " merge " in line
        dropped = 0 if whole else len(spans) - kept
        expected = units_file(n, kept, dropped, np.array(spans, np.int32), lab.width, format)
        assert work.file == pytest.approx(expected), line


def test_a_shared_pool_is_timed_over_its_union(bench: Bench) -> None:
    lab = Lab(bench, small("shared-pool", sources=("global", "one"), rankers=("two",)))
    n = len(bench.ids)
    ranked: dict[str, list[I64]] = {"one": [], "two": []}
    random = np.random.default_rng(0)

    def stranger(name: str) -> Other:
        scores = random.normal(size=(QUERIES, n)).astype(np.float32)

        def rank(row: int, own: I64) -> F32:
            ranked[name].append(own)
            return scores[row, own]

        return Other(scores, lambda pool: Cost(1, 1, 1, pool), rank, 7.0, len)

    others = {name: stranger(name) for name in ranked}
    union = shared_candidates(lab, others)
    works = dict(workloads(lab, others))
    assert list(works) == [line.name for line in run(lab, others=others)]
    local = lab.local(lab.units, lab.width, pools=union)[0]
    np.testing.assert_allclose(works["phrase"].score(1), local[1, union[1]], atol=1e-5)
    works["one"].score(1)
    works["two"].score(1)
    np.testing.assert_array_equal(ranked["one"][0], np.arange(n))
    np.testing.assert_array_equal(ranked["two"][0], union[1])
    assert works["one"].file == 7.0


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
    (file,) = (tmp_path / "index").rglob("*.safetensors")
    content = file.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    every = bench.units(bench.documents, units, "idf", width, Budget())
    kept = len(every.weights)
    if count is not None:
        kept = int(np.minimum(np.diff(every.offsets), count).sum())
    dropped = len(every.weights) - kept if policy == "drop" else 0
    terms = bench.terms_of(bench.documents, "idf")
    vector = {"f32": 4 * 8, "f16": 2 * 8, "int8": 8 + 2}[format]
    expected = vector + lexical_file(terms)
    expected += units_file(n, kept, dropped, every.spans, width, format)
    assert len(content) - header - 28 * n == pytest.approx(n * expected, abs=0.01)
