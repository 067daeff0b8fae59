"""What the clock runs is what the tables score."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hplus import HPlus
from hplus.evaluate import timing
from hplus.evaluate.beir import Bench
from hplus.evaluate.cost import Cost
from hplus.evaluate.data import demo_folder, read_beir
from hplus.evaluate.experiments import shared_candidates
from hplus.evaluate.lab import Lab
from hplus.evaluate.others import Other
from hplus.evaluate.protocol import load
from hplus.evaluate.run import sample
from hplus.index.segment import Format
from hplus.types import F32, I64
from hplus.views.fusion import fuse


@pytest.fixture(scope="module")
def bench(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    data = sample(read_beir(demo_folder("en")), 3, 13)
    model = HPlus(tiny_folder, long="cut").fit_idf(data.documents)
    return Bench(model, data, tmp_path_factory.mktemp("states"))


@pytest.mark.parametrize("format", ["f32", "int8"])
def test_every_scorer_gives_the_table_s_scores(bench: Bench, format: Format) -> None:
    protocol = replace(load("full-corpus"), pools=(20,), widths=(16,), gate_width=8, format=format)
    lab = Lab(bench, protocol)
    n = len(bench.ids)
    every = np.tile(np.arange(n), (3, 1))
    scores = {
        "global": lab.global_,
        "lexical": lab.lexical()[0],
        "phrase": lab.local(lab.units, 16, pools=every)[0],
        "token": lab.token(16, every)[0],
    }
    timed = dict(timing._timed(lab, {}))
    assert list(timed) == [
        "global, 8 wide, all documents",
        "lexical, all documents",
        "hybrid, 16 wide, top 20, all units",
        "phrase, 16 wide, top 20, all units",
        "phrase, 16 wide, all documents, all units",
        "token, 16 wide, top 20, all units",
        "token, 16 wide, all documents, all units",
    ]
    alphas = bench.model.recipe.fusion
    for name, score in timed.items():
        for row in range(3):
            pool = np.sort(lab.gate[row]) if "top 20" in name else np.arange(n)
            of = {view: own[row, pool].astype(np.float64) for view, own in scores.items()}
            view = name.split(",")[0]
            expected = fuse(of, alphas) if view == "hybrid" else of[view]
            np.testing.assert_allclose(score(row), expected, atol=2e-5, err_msg=name)


def test_a_shared_pool_is_timed_over_its_union(bench: Bench) -> None:
    protocol = load("shared-pool")
    protocol = replace(protocol, pools=(20,), sources=("global", "one"), rankers=("two",))
    lab = Lab(bench, protocol)
    n = len(bench.ids)
    met: dict[str, list[I64]] = {"one": [], "two": []}
    random = np.random.default_rng(0)

    def stranger(name: str) -> Other:
        scores = random.normal(size=(3, n)).astype(np.float32)

        def rank(row: int, own: I64) -> F32:
            met[name].append(own)
            return scores[row, own]

        return Other(scores, lambda pool: Cost(1, 1, 1, pool), rank)

    others = {name: stranger(name) for name in met}
    union = shared_candidates(lab, others)
    timed = dict(timing._timed(lab, others))
    assert [name.split(",")[0] for name in timed] == ["global", "phrase", "token", "one", "two"]
    local = lab.local(lab.units, lab.width, pools=union)[0]
    for name, score in timed.items():
        found = score(1)
        if name.startswith("phrase"):
            np.testing.assert_allclose(found, local[1, union[1]], atol=1e-5)
    np.testing.assert_array_equal(met["one"][0], np.arange(n))
    np.testing.assert_array_equal(met["two"][0], union[1])


def test_percentiles_are_of_the_queries_asked() -> None:
    asked: list[int] = []

    def score(row: int) -> F32:
        asked.append(row)
        return np.zeros(1, np.float32)

    found = timing.latency(score, 1_000)
    assert set(found) == {"p50_ms", "p95_ms"}
    assert 0 <= found["p50_ms"] <= found["p95_ms"]
    assert asked[0] == asked[1] == 0  # the first one warms
    assert len(asked) == timing.QUERIES + 1
    assert asked[-1] == 999
