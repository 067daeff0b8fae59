"""Every line of every kind of protocol, worked out by hand in a tiny world; and what a clock runs
gives the very ranking that the table shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from hplus.backbones.files import sha256
from hplus.errors import CheckpointError, InputError
from hplus.storage.segment import Format
from hplus.types import F32, I64
from hplus.units import rules
from hplus_lab import equal_counts, rankers
from hplus_lab.baselines import MultiVectors
from hplus_lab.cost import Cost
from hplus_lab.experiment import Experiment, Inputs
from hplus_lab.kinds import KINDS, fusion
from hplus_lab.kinds.projection import DATA, read_projection
from hplus_lab.length_histogram import histogram_random, length_histogram
from hplus_lab.line import Line
from hplus_lab.protocol import METRICS, Protocol
from hplus_lab.protocols import load, names
from hplus_lab.rankers import Ranker
from tiny_world import DIM, DOCUMENTS, QUERIES, Unit, World, by_importance, clustered, maxsim

K, WIDTH, GATE = 12, 4, 5
SEEDS = (13, 42)
Scores = list[list[float]]
ALL = [list(range(DOCUMENTS))] * QUERIES


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


def small(name: str, **changes: Any) -> Protocol:
    """Few candidates, narrow vectors, other columns in the gate, two seeds."""
    usual = {"pools": (K,), "widths": (WIDTH,), "gate_width": GATE, "seeds": SEEDS}
    return replace(load(name), **{**usual, **changes})


def lines_of(world: World, protocol: Protocol, inputs: Inputs | None = None) -> dict[str, Line]:
    experiment = Experiment(world.bench, protocol, inputs)
    return {line.name: line for line in KINDS[protocol.kind].lines(experiment)}


class ByHand:
    """What lines are made of, at one width."""

    def __init__(self, world: World, width: int = WIDTH) -> None:
        self.world, self.width = world, width
        self.gate = world.best(world.global_scores(GATE), K)

    def units(self, rule: str, weigh: str = "sum") -> list[list[list[Unit]]]:
        return [
            by_importance(self.world.units(side, self.world.cuts(side, rule), self.width, weigh))
            for side in (0, 1)
        ]

    def phrase(self, rule: str, weigh: str = "sum") -> Scores:
        return self.local(*self.units(rule, weigh))

    def local(self, queries: list[list[Unit]], documents: list[list[Unit]]) -> Scores:
        return [[maxsim(q, d) for d in documents] for q in queries]

    def values(self, scores: Scores, pools: Sequence[Sequence[int]]) -> list[float]:
        return self.world.ndcg(
            [{d: row[d] for d in own} for row, own in zip(scores, pools, strict=True)]
        )


def add(*parts: tuple[float, Scores]) -> Scores:
    return [
        [sum(alpha * scores[q][d] for alpha, scores in parts) for d in range(DOCUMENTS)]
        for q in range(QUERIES)
    ]


def assert_same(found: dict[str, Line], expected: dict[str, list[float]]) -> None:
    assert list(found) == list(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name].values, values, atol=1e-6, err_msg=name)
    assert_all_differ(expected)


def assert_all_differ(expected: dict[str, list[float]]) -> None:
    """A line that took another's place would show."""
    values = [tuple(np.round(own, 6)) for own in expected.values()]
    assert len(set(values)) == len(values)


def beside(hand: ByHand, rule: str = "ngrams-3", budget: int = 99) -> dict[str, Scores]:
    """The tokens of the same encoder. Pooled: each document's tokens clustered to as many vectors
    as it has phrases; a query keeps its tokens, weighted."""
    (tokens, _), (once, every) = hand.units("tokens"), hand.units("tokens", "uniform")
    counts = [min(budget, len(own)) for own in hand.units(rule)[1]]
    pooled = [clustered(own, n, weighted=False) for own, n in zip(every, counts, strict=True)]
    return {
        "weighted token": hand.local(tokens, every),
        "unweighted token": hand.local(once, every),
        "pooled token": hand.local(tokens, pooled),
    }


def hybrid(world: World, phrase: Scores) -> Scores:
    return add((0.7, world.global_scores(GATE)), (1.0, phrase), (0.4, world.lexical_scores()))


def test_views(world: World) -> None:
    hand = ByHand(world)
    gate, phrase = hand.gate, hand.phrase("ngrams-3+terms")
    found = lines_of(world, small("broad-deployed"))
    assert_same(
        found,
        {
            "global": hand.values(world.global_scores(GATE), gate),
            "phrase": hand.values(phrase, gate),
            "hybrid": hand.values(hybrid(world, phrase), gate),
            "lexical": hand.values(world.lexical_scores(), gate),
            "phrase, model alone": hand.values(hand.phrase("ngrams-3"), gate),
            **{
                view: hand.values(scores, gate)
                for view, scores in beside(hand, "ngrams-3+terms").items()
            },
            "dense": hand.values(world.global_scores(DIM), ALL),
        },
    )
    assert found["dense"].cost == Cost(1.0, 4 * DIM, 1.0, DOCUMENTS * DIM)
    phrases = found["phrase"].cost.vectors
    assert found["pooled token"].cost.vectors == pytest.approx(phrases)
    assert found["weighted token"].cost.vectors > phrases


def test_views_of_an_index_as_shipped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents merged to the budget, tokens pooled to as many; other systems over all of them."""
    _, systems = shared(world, monkeypatch)
    hand = ByHand(world)
    gate, (queries, documents) = hand.gate, hand.units("ngrams-3")
    phrase = hand.local(queries, [clustered(own, 3, weighted=True) for own in documents])
    found = lines_of(world, small("as-shipped", budgets=(3,), rankers=("one", "two"), format="f32"))
    assert_same(
        found,
        {
            "global": hand.values(world.global_scores(GATE), gate),
            "phrase": hand.values(phrase, gate),
            "hybrid": hand.values(hybrid(world, phrase), gate),
            "lexical": hand.values(world.lexical_scores(), gate),
            **{view: hand.values(scores, gate) for view, scores in beside(hand, budget=3).items()},
            "dense": hand.values(world.global_scores(DIM), ALL),
            "one": hand.values(systems["one"].scores.tolist(), ALL),
            "two": hand.values(systems["two"].scores.tolist(), ALL),
        },
    )
    assert found["one"].cost == Cost(2, 8, 3, DOCUMENTS)
    counts = [min(3, len(own)) for own in documents]
    for line in ("phrase", "pooled token"):
        assert found[line].cost.vectors == pytest.approx(np.mean(counts))


@pytest.mark.parametrize("name", ["own-dense", "own-dense-100", "own-dense-recall"])
def test_own_dense(world: World, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Each system over its own candidates, by every measure; at a depth of 4 here, where a depth of
    100 would see all candidates."""
    x, systems = shared(world, monkeypatch)
    metric = load(name).metric
    depth = 10 if metric == "ndcg@10" else 4
    kind = metric.split("@")[0]
    monkeypatch.setitem(METRICS, f"{kind}@{depth}", "made up")
    x = Experiment(world.bench, small(name, rankers=("one", "two"), metric=f"{kind}@{depth}"))
    hand = ByHand(world)
    phrase, gate = hand.phrase("ngrams-3"), hand.gate
    scored = {
        "global": (world.global_scores(GATE), gate),
        "phrase": (phrase, gate),
        "hybrid": (hybrid(world, phrase), gate),
        "lexical": (world.lexical_scores(), gate),
        **{view: (scores, gate) for view, scores in beside(hand).items()},
        "one": (one := systems["one"].scores.tolist(), world.best(one, K)),
        # Two has single vectors beside those it ranks by.
        "two": (
            systems["two"].scores.tolist(),
            world.best(gate_of_two := systems["two"].gate.tolist(), K),  # type: ignore[union-attr]
        ),
    }
    assert world.best(gate_of_two, K) != world.best(systems["two"].scores.tolist(), K)
    by_hand = world.recall_top if kind == "recall-top" else world.ndcg
    expected = {
        view: by_hand(
            [{d: row[d] for d in own} for row, own in zip(scores, pools, strict=True)], depth
        )
        for view, (scores, pools) in scored.items()
    }
    found = {line.name: line for line in KINDS["own-dense"].lines(x)}
    assert list(found) == list(expected)
    for view, values in expected.items():
        np.testing.assert_allclose(found[view].values, values, atol=1e-6, err_msg=view)
    if kind != "recall-top":  # of few documents; lines may have the same
        assert_all_differ(expected)
    assert found["one"].cost == Cost(2, 8, 3, DOCUMENTS)  # it has met every document
    assert found["two"].cost == Cost(2, 8, 3, K)
    grades = world.judged[world.query_ids[0]]
    own = {world.ids[d] for d in scored["two"][1][0]}
    assert len(own & set(grades)) < len(grades)


def test_means_of_token_vectors_choose_candidates() -> None:
    """Worked out text by text; a text without vectors meets nobody."""
    random = np.random.default_rng(1)
    sides = [
        MultiVectors(random.normal(size=(n[-1], 3)).astype(np.float16), np.array(n))
        for n in ([0, 2, 5], [0, 1, 1, 4, 6])
    ]
    found = rankers._mean_scores(*sides)
    assert found is not None
    for q, d in product(range(2), range(4)):
        a, b = (
            side.vectors[side.offsets[i] : side.offsets[i + 1]].astype(np.float64).sum(axis=0)
            for side, i in zip(sides, (q, d), strict=True)
        )
        expected = 0.0 if not b.any() else a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        assert found[q, d] == pytest.approx(expected, abs=1e-5)
    dense = np.ones((2, 3), np.float32)
    assert rankers._mean_scores(dense, dense) is None


def test_widths(world: World) -> None:
    expected = {}
    for label, width in (("3", 3), ("4", 4), ("full", DIM)):
        hand = ByHand(world, width)
        own = world.best(world.global_scores(width), K)
        expected[f"global {label}"] = hand.values(world.global_scores(width), own)
        for view, scores in {**beside(hand), "phrase": hand.phrase("ngrams-3")}.items():
            expected[f"{view} {label}, own gate"] = hand.values(scores, own)
            expected[f"{view} {label}, frozen gate"] = hand.values(scores, hand.gate)
    found = lines_of(world, small("dimensional", widths=(3, 4, 99)))
    assert_same(found, expected)
    assert found["phrase full, own gate"].at == {"view": "phrase", "width": 8, "gate": "own gate"}


def test_pool_sizes(world: World) -> None:
    hand = ByHand(world)
    views = {**beside(hand), "phrase": hand.phrase("ngrams-3")}
    expected = {}
    for count in (6, 9, 12):
        own = [row[:count] for row in hand.gate]
        for view, scores in views.items():
            expected[f"{view} {count}"] = hand.values(scores, own)
    found = lines_of(world, small("pool-sensitivity", pools=(6, 9, 12)))
    assert_same(found, expected)
    for line in found.values():
        count = int(line.name.split()[-1])
        recalls = [
            len({world.ids[d] for d in own[:count]} & set(world.judged[query]))
            / len(world.judged[query])
            for own, query in zip(hand.gate, world.query_ids, strict=True)
        ]
        assert line.facts["candidates"] == count
        assert line.facts["recall"] == pytest.approx(np.mean(recalls))
        assert line.facts["degenerate"] == (count > DOCUMENTS / 2)


def test_full_corpus(world: World) -> None:
    hand = ByHand(world)
    gate, phrase = hand.gate, hand.phrase("ngrams-3")
    branch = world.best(phrase, K)
    union = [sorted({*a, *b}) for a, b in zip(gate, branch, strict=True)]
    found = lines_of(world, small("full-corpus"))
    assert_same(
        found,
        {
            "global": hand.values(world.global_scores(GATE), gate),
            "phrase, global pool": hand.values(phrase, gate),
            "phrase, full corpus": hand.values(phrase, ALL),
            **{
                f"{view}, full corpus": hand.values(scores, ALL)
                for view, scores in beside(hand).items()
            },
            "lexical, full corpus": hand.values(world.lexical_scores(), ALL),
            "hybrid, global pool": hand.values(hybrid(world, phrase), gate),
            "hybrid, union": hand.values(hybrid(world, phrase), union),
        },
    )
    assert found["hybrid, union"].facts["candidates"] == np.mean([len(own) for own in union])
    # Both branches have met every document, whatever their union holds.
    views = {name: found[name].cost for name in ("global", "lexical, full corpus")}
    whole = views["global"] + found["phrase, full corpus"].cost + views["lexical, full corpus"]
    assert vars(found["hybrid, union"].cost) == pytest.approx(vars(whole))


def stranger(seed: int) -> Ranker:
    """A system that nobody made; those of an even seed have single vectors beside."""
    gate = None
    if seed % 2 == 0:
        random = np.random.default_rng(100 + seed)
        gate = random.normal(size=(QUERIES, DOCUMENTS)).astype(np.float32)
    scores = np.random.default_rng(seed).normal(size=(QUERIES, DOCUMENTS)).astype(np.float32)
    return Ranker(
        scores, lambda row, own: scores[row, own], lambda pool: Cost(2, 8, 3, pool), 7.0, list, gate
    )


def shared(world: World, monkeypatch: pytest.MonkeyPatch) -> tuple[Experiment, dict[str, Ranker]]:
    systems = {name: stranger(seed) for seed, name in enumerate(("one", "two"), start=3)}
    monkeypatch.setattr(Experiment, "baseline", lambda _, name: systems[name])
    protocol = small("shared-pool", sources=("global", "one"), rankers=("two",))
    return Experiment(world.bench, protocol), systems


def test_shared_pool(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    x, systems = shared(world, monkeypatch)
    hand, one = ByHand(world), systems["one"].scores.tolist()
    union = [sorted({*a, *b}) for a, b in zip(hand.gate, world.best(one, K), strict=True)]
    found = {line.name: line for line in KINDS["shared-pool"].lines(x)}
    assert_same(
        found,
        {
            "global": hand.values(world.global_scores(GATE), union),
            **{view: hand.values(scores, union) for view, scores in beside(hand).items()},
            "phrase": hand.values(hand.phrase("ngrams-3"), union),
            "one": hand.values(one, union),
            "two": hand.values(systems["two"].scores.tolist(), union),
        },
    )
    size = np.mean([len(own) for own in union])
    # One gives candidates and has met every document; two ranks what it is given.
    assert found["one"].cost == Cost(2, 8, 3, DOCUMENTS)
    assert found["two"].cost == Cost(2, 8, 3, size)
    assert found["one"].encode is list
    for line in found.values():
        assert line.facts["candidates"] == size
    candidates = [np.array(own) for own in union]
    assert x.candidates_hash(KINDS["shared-pool"].candidates(x)) == x.candidates_hash(candidates)
    assert x.candidates_hash(candidates) != x.candidates_hash(x.gate)


ALPHAS = {
    "G": {"global": 1.0},
    "P": {"phrase": 1.0},
    "L": {"lexical": 1.0},
    "G+P": {"phrase": 1.0, "global": 0.5},
    "G+L": {"global": 1.0, "lexical": 2.0},
    "P+L": {"phrase": 1.0, "lexical": 0.2},
    "G+P+L": {"phrase": 1.0, "global": 0.2, "lexical": 2.0},
}


def test_fusion(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    hand = ByHand(world)
    views = {
        "global": world.global_scores(GATE),
        "phrase": hand.phrase("ngrams-3+terms"),
        "lexical": world.lexical_scores(),
    }
    monkeypatch.setattr(fusion, "tune", lambda _: ALPHAS)
    found = lines_of(world, small("fusion"))
    sums = {
        name: add(*((alpha, views[view]) for view, alpha in alphas.items()))
        for name, alphas in ALPHAS.items()
    }
    assert_same(found, {name: hand.values(scores, hand.gate) for name, scores in sums.items()})
    assert found["G+P"].facts == {"alpha phrase": 1.0, "alpha global": 0.5}


def test_tuning_takes_the_best_of_its_grid(world: World) -> None:
    """Over every combination of weights, worked out by hand; of equals the first."""
    hand = ByHand(world)
    views = {
        "global": world.global_scores(GATE),
        "phrase": hand.phrase("ngrams-3+terms"),
        "lexical": world.lexical_scores(),
    }
    found = fusion.tune([Experiment(world.bench, small("fusion", grid=(0.1, 1.0, 3.0)))])
    assert list(found) == list(ALPHAS)
    for name, alphas in found.items():
        first, *rest = ALPHAS[name]
        assert alphas[first] == 1.0
        tried = [
            {first: 1.0, **dict(zip(rest, values, strict=True))}
            for values in product((0.1, 1.0, 3.0), repeat=len(rest))
        ]
        means = [
            np.mean(hand.values(add(*((a, views[v]) for v, a in own.items())), hand.gate))
            for own in tried
        ]
        assert alphas == tried[int(np.argmax(np.round(means, 9)))]


def test_fusion_needs_dev_data(world: World) -> None:
    with pytest.raises(InputError, match=r"tunes its weights on dev data: give --dev DIR:SPLIT"):
        KINDS["fusion"].inputs(load("fusion"), world.bench.model, Inputs())


class EqualCounts:
    """eq:exact_count by hand: units of every rule and seed, and C_x(B)."""

    def __init__(self, world: World, groupings: Sequence[str], width: int = WIDTH) -> None:
        self.world, self.hand = world, ByHand(world, width)
        self.cuts = {
            name: [self.cut(side, name) for side in (0, 1)]
            for rule in groupings
            for name in self.seeded(rule)
        }
        self.least = [
            [min(len(own[side][text]) for own in self.cuts.values()) for text in range(n)]
            for side, n in enumerate((QUERIES, DOCUMENTS))
        ]

    def seeded(self, rule: str) -> list[str]:
        random = rule in ("random", "histogram", "shuffled")
        return [f"{rule}-{seed}" for seed in SEEDS] if random else [rule]

    def cut(self, side: int, name: str) -> list[list[tuple[int, int]]]:
        rule, _, seed = name.partition("-")
        tokens = self.world.sides[side].tokens
        own = [self.world.cuts(i, "ngrams-3") for i in (0, 1)]
        if rule == "random":
            return ranges(rules.random_spans(tokens, int(seed)), tokens.offsets)
        if rule == "shuffled":
            return ranges(rules.shuffled(begins(own[side]), tokens, int(seed)), tokens.offsets)
        if rule == "histogram":
            lengths = [last - first for text in own[1] for first, last in text]
            shares = np.bincount(lengths)[1:] / len(lengths)
            return ranges(histogram_random(tokens, shares, int(seed)), tokens.offsets)
        return self.world.cuts(side, "ngrams-3" if rule == "model" else name)

    def counts(self, side: int, budget: int) -> list[int]:
        return [min(budget, least) for least in self.least[side]]

    def kept(self, side: int, name: str, counts: Sequence[int] | None) -> list[list[Unit]]:
        units = by_importance(self.world.units(side, self.cuts[name][side], self.hand.width))
        if counts is None:
            return units
        return [own[:count] for own, count in zip(units, counts, strict=True)]

    def values(self, queries: list[list[Unit]], documents: list[list[Unit]]) -> list[float]:
        return self.hand.values(self.hand.local(queries, documents), self.hand.gate)


def begins(cuts: Sequence[Sequence[tuple[int, int]]]) -> Any:
    found = [np.zeros(text[-1][1], np.bool_) for text in cuts]
    for own, text in zip(found, cuts, strict=True):
        own[[first for first, _ in text]] = True
    return np.concatenate(found)


def ranges(marks: Any, offsets: I64) -> list[list[tuple[int, int]]]:
    found = []
    for first, last in pairwise(offsets.tolist()):
        starts = [int(i) for i in np.flatnonzero(marks[first:last])]
        found.append(list(zip(starts, [*starts[1:], last - first], strict=True)))
    return found


def equal_parts(n: int, count: int) -> list[tuple[int, int]]:
    edges = [part * n // count for part in range(count)]
    return list(zip(edges, [*edges[1:], n], strict=True))


EXACT = (
    *("model", "tokens", "whitespace", "ngrams-2", "chunks", "pooled"),
    *("random", "histogram", "shuffled"),
)


def test_exact_counts(world: World) -> None:
    budgets = (2, 5)
    exact = EqualCounts(world, [rule for rule in EXACT if rule not in ("chunks", "pooled")])
    assert min(exact.least[1]) < 5 < max(exact.least[1])
    protocol = small("exact-count", groupings=EXACT, budgets=budgets)
    expected = {}
    for rule, side, budget in product(EXACT, ("joint", "document"), budgets):
        asked = exact.counts(0, budget) if side == "joint" else None
        held = exact.counts(1, budget)
        if rule == "chunks":
            natural = [len(own) for own in exact.cuts["model"][0]]
            sides = [
                by_importance(
                    world.units(
                        i,
                        [
                            equal_parts(own[-1][1], count)
                            for own, count in zip(exact.cuts["model"][i], counts, strict=True)
                        ],
                        WIDTH,
                    )
                )
                for i, counts in enumerate((asked or natural, held))
            ]
            values = [exact.values(*sides)]
        elif rule == "pooled":
            queries, documents = (exact.kept(i, "tokens", None) for i in (0, 1))
            if asked:
                queries = [
                    clustered(own, n, weighted=False) for own, n in zip(queries, asked, strict=True)
                ]
            few = [
                clustered(own, n, weighted=False) for own, n in zip(documents, held, strict=True)
            ]
            values = [exact.values(queries, few)]
        else:
            values = [
                exact.values(exact.kept(0, name, asked), exact.kept(1, name, held))
                for name in exact.seeded(rule)
            ]
        expected[f"{rule}, {side} {budget}"] = list(np.mean(values, axis=0))
    found = lines_of(world, protocol)
    assert_same(found, expected)
    assert found["random, joint 5"].at == {"rule": "random", "side": "joint", "budget": 5}
    # Lengths drawn as queries have them would be other lengths.
    tokens = world.sides[1].tokens
    of_queries = length_histogram(begins(world.cuts(0, "ngrams-3")), world.sides[0].tokens)
    drawn = histogram_random(tokens, of_queries, 13)
    assert ranges(drawn, tokens.offsets) != exact.cuts["histogram-13"][1]


def test_ablations(world: World) -> None:
    exact = EqualCounts(world, ("model", "tokens"))
    rows = {
        "model, sum": ("model", "sum", "sum"),
        "tokens, sum": ("tokens", "sum", "sum"),
        "model, query uniform": ("model", "sum", "uniform"),
        "tokens, query uniform": ("tokens", "sum", "uniform"),
        "model, query mean": ("model", "sum", "mean"),
        "model, query max": ("model", "sum", "max"),
        "model, selection mean": ("model", "mean", "sum"),
        "model, selection max": ("model", "max", "sum"),
    }
    expected = {}
    for name, (rule, selection, weighting) in rows.items():
        sides = []
        for side in (0, 1):
            cuts = exact.cuts[rule][side]
            chosen, weights = (
                world.units(side, cuts, WIDTH, way) for way in (selection, weighting)
            )
            sides.append([
                [
                    (vector, weight)
                    for (vector, _), (_, weight) in sorted(
                        zip(own, weighed, strict=True), key=lambda pair: -pair[0][1]
                    )
                ][:count]
                for own, weighed, count in zip(chosen, weights, exact.counts(side, 3), strict=True)
            ])  # fmt: skip
        expected[name] = exact.values(*sides)
    assert_same(lines_of(world, small("ablations", budgets=(3,))), expected)


def projection(folder: Path) -> tuple[Any, Any]:
    random = np.random.default_rng(2)
    matrix, bias = random.normal(size=(DIM, DIM)), random.normal(size=DIM)
    tensors = {"project.weight": matrix.astype(np.float32), "project.bias": bias.astype(np.float32)}
    save_file(tensors, folder / "projection.safetensors")
    digest = sha256(folder / "projection.safetensors")
    (folder / "projection.json").write_text(json.dumps({"sha256": digest}))
    return matrix, bias


def test_projection(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(InputError, match="has no token projection"):
        lines_of(world, small("projection"))
    matrix, bias = projection(tmp_path)
    exact = EqualCounts(world, ("model", "tokens", "ngrams-2"))
    expected = {}
    for space, rule, budget in product(
        ("raw", "projected"), ("model", "tokens", "ngrams-2"), (2, 5)
    ):
        sides = []
        for side in (0, 1):
            stored = world.sides[side]
            states = stored.states.astype(np.float64)
            if space == "projected":
                states = states @ matrix.T + bias
            units = []
            for text, own in enumerate(exact.cuts[rule][side]):
                begin = stored.tokens.offsets[text]
                weights = world.units(side, exact.cuts[rule][side], WIDTH)[text]
                means = [states[begin + a : begin + b, :WIDTH].mean(axis=0) for a, b in own]
                vectors = [list(mean / np.linalg.norm(mean)) for mean in means]
                units.append([(v, w) for v, (_, w) in zip(vectors, weights, strict=True)])
            counts = exact.counts(side, budget)
            sides.append([own[:n] for own, n in zip(by_importance(units), counts, strict=True)])
        expected[f"{rule}, {space} {budget}"] = exact.values(*sides)
    protocol = small("projection", budgets=(2, 5))
    assert_same(lines_of(world, protocol), expected)
    path = tmp_path / "projection.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="has SHA-256"):
        read_projection(tmp_path)


def test_the_projection_of_mini() -> None:
    """In float16, learned from the identity on."""
    weight, bias = read_projection(DATA / "mini")
    assert weight.shape == (384, 384)
    assert bias.shape == (384,)
    assert weight.dtype == bias.dtype == np.float32
    assert 0 < np.abs(weight - np.eye(384)).max() < 0.5


def test_budgets(world: World) -> None:
    hand = ByHand(world)
    (queries, documents), (once, every) = hand.units("ngrams-3"), hand.units("tokens", "uniform")
    asked = {"weighted tokens": hand.units("tokens")[0], "unweighted tokens": once}

    def values(asked: list[list[Unit]], held: list[list[Unit]]) -> list[float]:
        return hand.values(hand.local(asked, held), hand.gate)

    def pooled(rule: str, counts: Sequence[int]) -> list[float]:
        few = [clustered(own, n, weighted=False) for own, n in zip(every, counts, strict=True)]
        return values(asked[rule], few)

    def brought(policy: str, counts: Sequence[int]) -> list[float]:
        if policy == "merge":
            few = [
                clustered(own, n, weighted=True) for own, n in zip(documents, counts, strict=True)
            ]
        else:
            few = [own[:n] for own, n in zip(documents, counts, strict=True)]
        return values(queries, few)

    expected = {"model, all": values(queries, documents)}
    expected |= {f"{rule}, all": values(own, every) for rule, own in asked.items()}
    for count in (2, 4):
        for policy in ("drop", "merge"):
            expected[f"model, {policy} to {count}"] = brought(policy, [count] * DOCUMENTS)
        for rule in asked:
            expected[f"{rule}, ward to {count}"] = pooled(rule, [count] * DOCUMENTS)
    adaptive = []
    for own in documents:
        total, reached, n = sum(w for _, w in own), 0.0, 0
        while reached < 0.5 * total:
            reached += own[n][1]
            n += 1
        adaptive.append(n)
    lengths = [len(own) for own in documents]
    budget = next(b for b in range(99) if sum(min(b, n) for n in lengths) >= sum(adaptive))
    fixed = np.minimum(lengths, budget)
    full = np.flatnonzero(np.array(lengths) >= budget)
    less = np.random.default_rng(13).permutation(full)[: int(fixed.sum()) - sum(adaptive)]
    fixed[less] -= 1
    assert list(fixed) != adaptive
    for policy in ("drop", "merge"):
        expected[f"model, {policy} to 50% of importance"] = brought(policy, adaptive)
        expected[f"model, {policy} fixed, as 50% of importance"] = brought(policy, fixed.tolist())
    for rule in asked:
        expected[f"{rule}, ward as 50% of importance"] = pooled(rule, adaptive)
    found = lines_of(world, small("budgets", budgets=(2, 4), shares=(0.5,)))
    assert_same(found, expected)
    vectors = found["model, merge to 50% of importance"].cost.vectors
    assert vectors == pytest.approx(np.mean(adaptive))
    assert found["model, merge fixed, as 50% of importance"].cost.vectors == pytest.approx(vectors)


def every_line(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    format: Format = "f32",
    pool: int = K,
) -> tuple[Experiment, list[Line]]:
    changes: dict[str, Any] = {"format": format, "pools": (pool,)}
    if load(name).budgets:
        changes["budgets"] = (3,) if load(name).kind in ("ablations", "views") else (2, 5)
    if name == "pool-sensitivity":
        changes["pools"] = (3, pool)
    if name == "shared-pool":
        shared(world, monkeypatch)
        changes |= {"sources": ("global", "one"), "rankers": ("two",)}
    if load(name).rankers and name != "shared-pool":
        shared(world, monkeypatch)
        changes |= {"rankers": ("one", "two")}
    if name == "fusion":
        monkeypatch.setattr(fusion, "tune", lambda _: ALPHAS)
    if name == "projection":
        projection(world.bench.cache)
    x = Experiment(world.bench, small(name, **changes))
    return x, list(KINDS[x.protocol.kind].lines(x))


@pytest.mark.parametrize("format", ["f32", "f16", "int8"])
@pytest.mark.parametrize("name", names())
def test_a_clock_runs_what_the_table_shows(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str, format: Format
) -> None:
    """The scores of one query after another give the line's own values, in every format; those of
    random rules are of the first seed."""
    x, lines = every_line(world, monkeypatch, name, format)
    for line in lines:
        assert line.score is not None
        assert line.file > 0
        if line.at.get("rule") in equal_counts.RANDOM:
            continue
        scores = [np.asarray(line.score(row), np.float64) for row in range(QUERIES)]
        values = x.measured(scores, line.candidates)
        # The kernel rounds queries to 16 bits beside int8 documents: near ties may turn.
        close = 0.02 if format == "int8" else 1e-6
        np.testing.assert_allclose(values, line.values, atol=close, err_msg=line.name)


@pytest.mark.parametrize("name", names())
def test_names_and_coordinates(world: World, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """No two lines share either; every planned contrast has its lines."""
    x, lines = every_line(world, monkeypatch, name)
    assert len({line.name for line in lines}) == len(lines)
    assert len({tuple(sorted(line.at.items())) for line in lines}) == len(lines)
    if name not in ("pool-sensitivity", "dimensional", "exact-count", "exact-count-words"):
        own = replace(x.protocol, contrasts=tuple(
            replace(c, budgets=()) for c in x.protocol.contrasts if "% of" not in c.ours
        ))  # fmt: skip
        others = {*load(name).rankers, *load(name).sources}  # strangers here
        for contrast in own.planned():
            if contrast.theirs in others:
                continue
            assert {contrast.ours, contrast.theirs} <= {line.name for line in lines}


@pytest.mark.parametrize("name", names())
def test_every_line_does_the_work_it_is_counted_for(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """With all documents as candidates, means of what the kernel meets are the line's costs."""
    met: list[tuple[int, int, int]] = []
    kernel = rankers.weighted_maxsim

    def counting(
        queries: F32, weights: F32, codes: F32, scales: F32 | None, starts: I64, ends: I64
    ) -> F32:
        met.append((len(queries), int((ends - starts).sum()), codes.shape[1]))
        return kernel(queries, weights, codes, scales, starts, ends)

    _, lines = every_line(world, monkeypatch, name, pool=DOCUMENTS)
    monkeypatch.setattr(rankers, "weighted_maxsim", counting)
    checked = 0
    for line in lines:
        if line.at.get("rule") in equal_counts.RANDOM or line.name in ("one", "two"):
            continue  # averages over seeds, and other systems
        assert line.score is not None
        met.clear()
        for row in range(QUERIES):
            line.score(row)
        if line.name in ("lexical", "lexical, full corpus", "L"):
            assert not met
        if "hybrid" in line.name or "+" in line.name or not met or line.at.get("pool") == 3:
            continue  # sums of views, postings, and three candidates of unlike lengths
        units, vectors, columns = np.array(met).T
        assert (columns == columns[0]).all()
        assert units.mean() == pytest.approx(line.cost.query_units), line.name
        assert vectors.mean() / DOCUMENTS == pytest.approx(line.cost.vectors), line.name
        multiplications = units.mean() * vectors.mean() * columns[0]
        assert multiplications == pytest.approx(line.cost.multiplications), line.name
        checked += 1
    assert checked >= 2


def test_costs_of_views_by_hand(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted text by text; what is combined costs the sum of its parts."""
    _, lines = every_line(world, monkeypatch, "fusion")
    costs = {line.name: line.cost for line in lines}
    asked, held = (
        [{i for word in text for i in word} - {3} for text in texts]
        for texts in (world.queries, world.documents)
    )
    lexical = costs["L"]
    assert lexical.query_units == np.mean([len(own) for own in asked])
    assert lexical.bytes == pytest.approx(3 * np.mean([len(own) for own in held]))  # 24 < 256
    met = [sum(len(own & other) for other in held) for own in asked]
    assert lexical.multiplications == pytest.approx(np.mean(met))
    assert costs["G"] == Cost(1.0, GATE * 4, 1.0, DOCUMENTS * GATE)
    units = [np.mean([len(own) for own in world.cuts(side, "ngrams-3+terms")]) for side in (0, 1)]
    phrase = Cost(units[1], units[1] * WIDTH * 4, units[0], units[0] * units[1] * WIDTH * K)
    assert vars(costs["P"]) == pytest.approx(vars(phrase))
    assert costs["G+P+L"] == costs["P"] + costs["G"] + lexical
    assert costs["P+L"] == costs["P"] + lexical


def test_only_joint_budgets_bind_queries(world: World) -> None:
    lines = lines_of(world, small("exact-count", budgets=(2, 5)))
    tokens = np.mean([sum(map(len, text)) for text in world.queries])
    for budget in (2, 5):
        joint, alone = (lines[f"tokens, {side} {budget}"].cost for side in ("joint", "document"))
        assert joint.query_units <= budget
        assert alone.query_units == pytest.approx(tokens)
        assert joint.vectors == alone.vectors
        assert alone.multiplications == pytest.approx(tokens * alone.vectors * WIDTH * K)
    # A random rule finds as many units in a query as its seeds on average.
    exact = EqualCounts(world, ("histogram",))
    natural = [len(own) for cuts in exact.cuts.values() for own in cuts[0]]
    assert lines["histogram, document 5"].cost.query_units == pytest.approx(np.mean(natural))
    first = [len(own) for own in exact.cuts["histogram-13"][0]]
    assert np.mean(first) != np.mean(natural)


@pytest.mark.parametrize("name", ["budgets", "exact-count", "ablations", "projection"])
@pytest.mark.parametrize("format", ["f32", "f16", "int8"])
def test_files_hold_what_a_line_keeps_and_drops(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str, format: Format
) -> None:
    """Vectors of the units that are kept; importance, number of spans and places of those that are
    dropped too; merged units have the places of all. The texts are short: a byte a number."""
    vector = {"f32": 4 * WIDTH, "f16": 2 * WIDTH, "int8": WIDTH + 2}[format]
    exact = EqualCounts(world, ("model", "tokens", "whitespace", "ngrams-2", *equal_counts.RANDOM))
    for line in every_line(world, monkeypatch, name, format)[1]:
        rule, kept = str(line.at["rule"]), round(line.cost.vectors * DOCUMENTS)
        rule = {"pooled": "tokens", "words": "whitespace"}.get(rule, rule.split()[-1])
        clustered_ = line.at.get("policy") in ("merge", "ward") or line.at["rule"] == "pooled"
        places = kept  # equal chunks: a text has no other units than those it keeps
        if rule != "chunks":
            places = sum(map(len, exact.cuts[exact.seeded(rule)[0]][1]))
        units = kept if clustered_ else places
        size = kept * vector + units * (4 + 1) + places * (1 + 1) + 4 * 8 * (DOCUMENTS + 1)
        assert line.file == pytest.approx(size / DOCUMENTS), line.name


def test_documents_are_scored_as_their_format_keeps_them(world: World) -> None:
    """int8 by hand: codes of the row's largest number over 127."""
    x = Experiment(world.bench, small("broad-deployed", format="int8"))
    plain = x.units_of(world.bench.documents, x.units, WIDTH).vectors
    scales = (np.abs(plain).max(axis=1, keepdims=True) / 127).astype(np.float16).astype(np.float32)
    expected = np.rint(plain / scales) * scales
    np.testing.assert_allclose(x.as_stored(plain), expected, atol=1e-6)
    assert np.abs(expected - plain).max() > 1e-4


LOCAL = ["broad-deployed", "dimensional", "full-corpus", "exact-count", "ablations", "budgets"]


@pytest.mark.parametrize("name", LOCAL)
def test_no_line_bypasses_the_format(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A format that turned every document round would turn every line that reads its vectors."""
    plain = {line.name: line for line in every_line(world, monkeypatch, name)[1]}

    def turn(x: Experiment, vectors: F32) -> F32:
        return -vectors if hasattr(x, "gate") else vectors  # the candidates stay

    monkeypatch.setattr(Experiment, "as_stored", turn)
    turned = {line.name: line for line in every_line(world, monkeypatch, name)[1]}
    for line, before in plain.items():
        if not line.startswith(("global", "lexical", "dense")):
            assert not np.array_equal(before.values, turned[line].values), line


def test_scores_of_tokens_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the next system, and for no other width, format or candidates."""
    x = Experiment(world.bench, small("broad-deployed"))
    found = {width: x.token_ranker(x.gate, width, weighted=False).scores for width in (3, 4)}
    assert not np.array_equal(found[3], found[4])
    fewer = x.token_ranker(x.gate[:, :3], 4, weighted=False).scores
    assert np.isneginf(fewer).sum() > np.isneginf(found[4]).sum()
    monkeypatch.setattr("hplus.evaluate.rescore.maxsim_of_pools", None)  # nothing is scored again
    for width, scores in found.items():
        again = Experiment(world.bench, small("broad-deployed")).token_ranker(
            x.gate, width, weighted=False
        )
        np.testing.assert_array_equal(again.scores, scores)
    with pytest.raises(TypeError):
        Experiment(world.bench, small("broad-deployed", format="int8")).token_ranker(
            x.gate, weighted=False
        )


def test_terminology_is_refused_without_terms(world: World) -> None:
    without = World(world.bench.cache).bench
    without.terms = None
    with pytest.raises(InputError, match=r"CRF with terminology: give --terms FILE"):
        Experiment(without, small("broad-deployed"))
