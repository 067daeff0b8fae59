"""Which setting to take: the efficient ones by brute force, the figures against the bench."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist

from hplus import HPlus
from hplus.evaluate import rescore
from hplus.evaluate.bench import Bench
from hplus.evaluate.budget import Setting, efficient, recommend, settings
from hplus.evaluate.budget_report import LINES, advice, facts, markdown
from hplus.evaluate.data import demo_folder, read_beir, sample
from hplus.units.select import Budget
from hplus.units.vectors import normalise

POINTS = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=12, unique=True
)


def made_up(size: int, quality: float) -> Setting:
    values = np.array([quality])
    return Setting(size, 8, "int8", size, float(size), values, values, values)


@given(POINTS)
def test_efficient_by_brute_force(points: list[tuple[int, int]]) -> None:
    """A setting is efficient if none that is as small or smaller is as good, but for itself."""
    found = efficient([made_up(size, quality / 10) for size, quality in points])
    assert [s.bytes for s in found] == sorted(s.bytes for s in found)
    for setting in found:
        own = (setting.bytes, setting.hybrid.mean())
        better = [
            s
            for s in found
            if (s.bytes, s.hybrid.mean()) != own and s.bytes <= own[0] and s.hybrid.mean() >= own[1]
        ]
        assert setting.efficient == (not better)


@given(POINTS)
def test_the_smallest_within_a_point_is_recommended(points: list[tuple[int, int]]) -> None:
    found = [made_up(size, quality * 0.0075) for size, quality in points]  # 0.75 points apart
    best = max(quality for _, quality in points)
    near = [size for size, quality in points if best - quality <= 1]
    assert recommend(found).bytes == min(near)


def test_settings_on_the_demo_corpus(tiny_folder: Path, tmp_path: Path) -> None:
    data = sample(read_beir(demo_folder("en")), 5, 13)
    model = HPlus(tiny_folder, long="cut")
    bench = Bench(model, data, tmp_path)
    seen: list[int] = []
    found = list(settings(bench, budgets=(4,), advance=seen.append))
    assert len(seen) == len(found) == 2 * 1 * 4  # 4 units and all; 32 columns; four formats
    assert {(s.budget, s.width, s.format) for s in found} == {
        (budget, 32, format) for budget in (4, None) for format in ("int4", "int8", "f16", "f32")
    }
    recipe = model.recipe
    units = [
        bench.units(side, recipe.units, recipe.importance, 32, budget)
        for side, budget in (
            (bench.queries, Budget()),
            (bench.documents, Budget(4, policy="merge")),
        )
    ]
    expected = bench.ndcg10(bench.pooled(rescore.maxsim(*units)))
    exact = next(s for s in found if (s.budget, s.format) == (4, "f32"))
    np.testing.assert_allclose(exact.phrase, expected)
    assert exact.bytes == pytest.approx(exact.vectors * 32 * 4)
    small = next(s for s in found if (s.budget, s.format) == (4, "int8"))
    assert small.bytes == pytest.approx(small.vectors * (32 + 2))
    smaller = next(s for s in found if (s.budget, s.format) == (4, "int4"))
    assert smaller.bytes == pytest.approx(smaller.vectors * (16 + 2))
    assert str(small) == "4 units of width 32, int8"


def test_token_pooling_beside_every_setting(tiny_folder: Path, tmp_path: Path) -> None:
    """The tokens of each document clustered to as many vectors as its units, all at full width."""
    data = sample(read_beir(demo_folder("en")), 5, 13)
    bench = Bench(HPlus(tiny_folder, long="cut", units="words"), data, tmp_path)
    tokens, every = (
        bench.units(side, "tokens", "uniform", 32, Budget())
        for side in (bench.queries, bench.documents)
    )
    natural = np.diff(bench.units(bench.documents, "words", "uniform", 32, Budget()).offsets)
    assert (natural < np.diff(every.offsets)).any()  # "all units" are fewer than all tokens
    for setting in settings(bench, budgets=(4,), formats=("f32",)):
        counts = natural if setting.budget is None else np.minimum(natural, setting.budget)
        vectors = []
        for text, count in enumerate(counts):
            own = every.vectors[every.offsets[text] : every.offsets[text + 1]]
            if count == len(own):
                vectors.append(own)
                continue
            labels = fcluster(
                linkage(np.nan_to_num(pdist(own, "cosine"), nan=1), "ward"), count, "maxclust"
            )
            means = np.stack([own[labels == label].mean(axis=0) for label in np.unique(labels)])
            vectors.append(normalise(means))
        assert setting.vectors == pytest.approx(sum(map(len, vectors)) / len(vectors))
        scores = np.zeros((len(data.queries), len(vectors)))
        for query in range(len(data.queries)):
            asked = tokens.vectors[tokens.offsets[query] : tokens.offsets[query + 1]]
            scores[query] = [(asked @ own.T).max(axis=1).mean() for own in vectors]
        expected = bench.ndcg10(bench.pooled(scores.astype(np.float32)))
        np.testing.assert_allclose(setting.pooled, expected, atol=1e-6)


def test_the_page_of_a_set(tiny_folder: Path, tmp_path: Path) -> None:
    """Intervals hold their means; the advice names the setting to take."""
    data = sample(read_beir(demo_folder("en")), 5, 13)
    bench = Bench(HPlus(tiny_folder, long="cut"), data, tmp_path)
    found = efficient(list(settings(bench, budgets=(4, 8))))
    measured = facts(found)
    for setting, own in zip(found, measured, strict=True):
        for view in LINES:
            assert own[view]["mean"] == pytest.approx(getattr(setting, view).mean())
            assert own[view]["low"] <= own[view]["mean"] <= own[view]["high"]
    assert str(recommend(found)) in advice(found)
    about = {"set": "demo", "split": "test", "queries": 5, "model": "tiny", "fingerprint": "0" * 64,
             "units": "runs", "importance": "idf"}  # fmt: skip
    text = markdown(about, found)
    assert text.startswith("# demo test: ")
    assert advice(found) in text
    assert text.count("units of width") == 1 + sum(setting.efficient for setting in found)
