"""Every protocol on a part of the demo corpus with a tiny model, against plainer ways to count."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from hplus import Budget, HPlus, InputError
from hplus.backbones.files import sha256
from hplus.checkpoint import read_projection
from hplus.errors import CheckpointError
from hplus.evaluate import exact, rescore
from hplus.evaluate.audit import units_of
from hplus.evaluate.beir import Bench
from hplus.evaluate.controlled import maxsim_of_prefixes
from hplus.evaluate.cost import Cost
from hplus.evaluate.data import RetrievalSet, demo_folder, read_beir
from hplus.evaluate.exact import begins, seeded
from hplus.evaluate.experiments import combinations_of_views, run, tune
from hplus.evaluate.lab import Lab, Line
from hplus.evaluate.metrics import ndcg
from hplus.evaluate.others import Other
from hplus.evaluate.pools import best, describe, pool_hash, union
from hplus.evaluate.protocol import Protocol, load, names
from hplus.evaluate.workload import workloads
from hplus.states_file import StoredStates
from hplus.types import F32, I64, Bool
from hplus.units.select import Kept
from hplus.units.terms import Terms

ALPHAS = {
    "G+P": {"global": 0.5, "phrase": 1.0},
    "G+L": {"global": 1.0, "lexical": 0.5},
    "P+L": {"phrase": 1.0, "lexical": 0.2},
    "G+P+L": {"global": 0.5, "phrase": 1.0, "lexical": 0.2},
}


@pytest.fixture(scope="module")
def data() -> RetrievalSet:
    whole = read_beir(demo_folder("en"))
    return replace(
        whole,
        document_ids=whole.document_ids[:120],
        documents=whole.documents[:120],
        query_ids=whole.query_ids[:8],
        queries=whole.queries[:8],
    )


@pytest.fixture(scope="module")
def bench(data: RetrievalSet, tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    model = HPlus(tiny_folder, long="cut").fit_idf(data.documents)
    terms = Terms(["type 2 diabetes", "blood pressure"])
    return Bench(model, data, tmp_path_factory.mktemp("states"), terms)


def small(name: str) -> Protocol:
    """A protocol with candidates and widths that a corpus of 120 and 32 columns can be short of."""
    protocol = load(name)
    pools = tuple(max(5, k // 50) for k in protocol.pools)
    widths = tuple(max(2, w // 16) for w in protocol.widths)
    return replace(protocol, pools=pools, widths=widths, gate_width=8, seeds=protocol.seeds[:2])


def lines_of(bench: Bench, name: str) -> dict[str, Line]:
    return {line.name: line for line in run(Lab(bench, small(name)), ALPHAS)}


# Shared pools need other systems, projections a checkpoint that has one: below.
LOCAL = sorted(set(names()) - {"shared-pool", "projection"})


@pytest.mark.parametrize("name", LOCAL)
def test_lines_have_a_value_a_query(bench: Bench, name: str) -> None:
    lines = lines_of(bench, name)
    assert lines
    for line in lines.values():
        assert line.values.shape == (8,)
        assert ((line.values >= 0) & (line.values <= 1)).all()
        assert line.cost is not None  # every line says what it costs
        assert line.cost.bytes > 0
        assert line.cost.query_units > 0
        assert line.cost.multiplications > 0


@pytest.mark.parametrize("name", LOCAL)
def test_every_planned_contrast_has_its_lines(bench: Bench, name: str) -> None:
    lines = lines_of(bench, name)
    for contrast in load(name).families():
        sides = {contrast.ours, contrast.theirs}
        if name == "pool-sensitivity":
            sides = {side.replace("2000", "40").replace("1000", "20").replace(" 100", " 5")
                     for side in sides}  # fmt: skip
        if name == "dimensional":
            sides = {side.replace("128", "8") for side in sides}
        assert sides <= set(lines)


def test_broad_deployed_by_hand(bench: Bench) -> None:
    """Phrase with terms over the global top K, scored pair by pair with `HPlus.score`."""
    protocol = small("broad-deployed")
    found = lines_of(bench, "broad-deployed")["phrase"].values
    model = bench.model
    same = HPlus(
        model.checkpoint.source, long="cut", terms=bench.terms, phrase_width=protocol.widths[0]
    ).fit_idf(bench.data.documents)
    documents = bench.data.documents
    whole = same.encode_document(documents).global_[:, : protocol.gate_width]
    for row, (query, name) in enumerate(zip(bench.data.queries, bench.data.query_ids, strict=True)):
        own = same.encode_query(query).global_[0, : protocol.gate_width]
        cosine = whole @ own / np.linalg.norm(whole, axis=1)
        order = sorted(range(120), key=lambda i: (-cosine[i], bench.ids[i]))[: protocol.pools[0]]
        scores = same.score(query, [documents[i] for i in order], alphas={"phrase": 1.0}).phrase
        assert scores is not None
        ranking = sorted(zip(-scores, bench.ids[order], strict=True))
        expected = ndcg([str(i) for _, i in ranking][:10], bench.data.judgements[name])
        assert found[row] == pytest.approx(expected, abs=1e-6)


def test_broad_deployed_is_refused_without_terms(bench: Bench) -> None:
    without = Bench.__new__(Bench)
    without.__dict__ = {**bench.__dict__, "terms": None}
    with pytest.raises(InputError, match=r"CRF with terminology: give --terms FILE"):
        list(run(Lab(without, small("broad-deployed")), {}))


def units_by_hand(side: StoredStates, cut: Bool, importance: F32, width: int) -> list[Any]:
    """Of each text: (vector, weight) of its units, most important first."""
    found: list[Any] = []
    states = side.states[:, :width].astype(np.float64)
    for first, last in pairwise(side.tokens.offsets.tolist()):
        starts = [row for row in range(first, last) if cut[row]]
        own = []
        for start, end in pairwise([*starts, last]):
            mean = states[start:end].mean(axis=0)
            own.append((mean / np.linalg.norm(mean), float(importance[start:end].sum())))
        found.append(sorted(own, key=lambda unit: -unit[1]))
    return found


def chunks_by_hand(side: StoredStates, counts: I64, importance: F32, width: int) -> list[Any]:
    """Exactly so many equal parts of each whole text."""
    cut = np.zeros(len(side.tokens.ids), np.bool_)
    for (first, last), count in zip(pairwise(side.tokens.offsets.tolist()), counts, strict=True):
        for part in range(count):
            cut[first + part * (last - first) // count] = True
    return units_by_hand(side, cut, importance, width)


def pooled_by_hand(side: StoredStates, counts: I64, importance: F32, width: int) -> list[Any]:
    """Tokens in exactly so many of scipy's clusters, each the mean of its members."""
    found: list[Any] = []
    for (first, last), count in zip(pairwise(side.tokens.offsets.tolist()), counts, strict=True):
        vectors = side.states[first:last, :width].astype(np.float64)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        if count < last - first:
            distances = squareform(1 - vectors @ vectors.T, checks=False)
            groups = fcluster(linkage(distances, "ward"), count, "maxclust")
        else:
            groups = np.arange(last - first)
        own = []
        for group in np.unique(groups):
            mean = vectors[groups == group].mean(axis=0)
            weight = float(importance[first:last][groups == group].sum())
            own.append((mean / np.linalg.norm(mean), weight))
        found.append(own)
    return found


def test_exact_counts_by_brute_force(bench: Bench) -> None:
    """eq:exact_count line by line: C_x(B), the least over all rules and seeds, of every rule."""
    budgets = (2, 7)
    lab = Lab(bench, replace(small("exact-count"), budgets=budgets, contrasts=()))
    lines = {line.name: line.values for line in run(lab)}
    width, sides = lab.width, (bench.queries, bench.documents)
    importance = [bench.importance(side, lab.importance) for side in sides]
    names_of = {rule: seeded(lab, rule) for rule in lab.protocol.groupings}
    assert sum(map(len, names_of.values())) == 7 + 3 * 2
    cut = {
        name: [units_by_hand(side, begins(lab, side, name), weights, width)
               for side, weights in zip(sides, importance, strict=True)]
        for several in names_of.values() for name in several if name not in ("chunks", "pooled")
    }  # fmt: skip
    least = [
        np.array([min(len(own[i][text]) for own in cut.values()) for text in range(len(side))])
        for i, side in enumerate((bench.data.queries, bench.data.documents))
    ]
    assert (least[1] < 7).any()  # texts too short for the budget, and others
    assert (least[1] > 7).any()
    # The least is no matter of the first seed alone.
    assert any(len(cut[name][1][text]) == least[1][text] < len(cut[name[:-2] + "13"][1][text])
               for name in cut if name.endswith("42") for text in range(120))  # fmt: skip
    for rule, several in names_of.items():
        for (at, budget), side in product(enumerate(budgets), ("joint", "document")):
            values = []
            for name in several:
                counts = [np.minimum(own, budget) for own in least]
                if name in ("chunks", "pooled"):
                    make = chunks_by_hand if name == "chunks" else pooled_by_hand
                    natural = [
                        len(own) for own in cut["model" if name == "chunks" else "tokens"][0]
                    ]
                    wanted = (counts[0] if side == "joint" else np.array(natural), counts[1])
                    asked, held = (
                        make(one, count, weights, width)
                        for one, count, weights in zip(sides, wanted, importance, strict=True)
                    )
                    assert [len(own) for own in held] == counts[1].tolist()
                else:
                    asked = [own[: counts[0][text]] if side == "joint" else own
                             for text, own in enumerate(cut[name][0])]  # fmt: skip
                    held = [own[: counts[1][text]] for text, own in enumerate(cut[name][1])]
                values.append([ndcg_by_hand(bench, lab, row, own, held)
                               for row, own in enumerate(asked)])  # fmt: skip
            expected = np.mean(values, axis=0)
            found = lines[f"{rule}, {side} {budget}"]
            np.testing.assert_allclose(found, expected, atol=1e-6, err_msg=f"{rule} {side} {at}")


# fmt: off
WORDS = ["type", "2", "diabetes", ",", "HbA1c", "and", "5", "mg/kg", "of", "metformin", "in",
         "急性肾损伤", "患者", "(", "n", "=", "12", ")", "."]
# fmt: on
texts = st.lists(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join),
    min_size=2,
    max_size=4,
    unique=True,
)  # fmt: skip


@settings(deadline=None, max_examples=20)
@given(queries=texts, documents=texts)
def test_every_rule_keeps_the_exact_count_in_every_text(
    tiny_folder: Path, queries: list[str], documents: list[str]
) -> None:
    """eq:exact_count: what is scored has C_x(B) units of every text, by every rule and seed."""
    sides = [[f"{kind}{i}" for i in range(len(own))]
             for kind, own in (("q", queries), ("d", documents))]  # fmt: skip
    judged = {name: {"d0": 1} for name in sides[0]}
    data = RetrievalSet(sides[1], documents, sides[0], queries, judged)
    protocol = replace(small("exact-count"), budgets=(1, 3, 7), contrasts=())
    scored: tuple[Counter[tuple[int, ...]], ...] = (Counter(), Counter())
    plain = Lab.scores

    def note(own: Kept, theirs: Kept, most: Sequence[I64 | int] = (99, 99)) -> None:
        for counter, kept, at_most in zip(scored, (own, theirs), most, strict=True):
            counter[tuple(np.minimum(np.diff(kept.offsets), at_most).tolist())] += 1

    def prefixes(
        own: Kept, theirs: Kept, held: I64, ways: list[I64], *rest: Any, **named: Any
    ) -> list[list[F32]]:
        for way, b in product(ways, range(held.shape[1])):
            note(own, theirs, (way[:, b], held[:, b]))
        return maxsim_of_prefixes(own, theirs, held, ways, *rest, **named)

    def scores(self: Lab, own: Kept, theirs: Kept) -> F32:
        note(own, theirs)
        return plain(self, own, theirs)

    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        lab = Lab(Bench(HPlus(tiny_folder, long="cut"), data, Path(folder)), protocol)
        patch.setattr(exact, "maxsim_of_prefixes", prefixes)
        patch.setattr(Lab, "scores", scores)
        list(run(lab))
        rules = [name for rule in protocol.groupings for name in seeded(lab, rule)]
        cut = [name for name in rules if name not in ("chunks", "pooled")]
        least = [
            np.min([[len(own) for own in units_of(side.tokens, begins(lab, side, name))]
                    for name in cut], axis=0)
            for side in lab.sides
        ]  # fmt: skip
    asked, held = (
        Counter(tuple(np.minimum(own, b).tolist()) for b in protocol.budgets for _ in rules)
        for own in least
    )
    assert not asked - scored[0]  # queries, where the budget is joint
    assert scored[1] == held + held  # documents, under joint budgets and under their own


def ndcg_by_hand(bench: Bench, lab: Lab, row: int, asked: Any, held: Any) -> float:
    scores = {}
    for document in lab.gate[row]:
        best = [(w, max(float(v @ u) for u, _ in held[document])) for v, w in asked]
        scores[bench.ids[document]] = sum(w * s for w, s in best) / sum(w for w, _ in best)
    ranking = sorted(scores, key=lambda name: (-scores[name], name))[:10]
    return ndcg([str(name) for name in ranking], bench.data.judgements[bench.data.query_ids[row]])


def test_averages_over_seeds_are_by_query(bench: Bench) -> None:
    """With one unit a text the count is the same under every seed."""
    protocol = replace(small("exact-count"), groupings=("random",), budgets=(1,), contrasts=())
    both = next(iter(run(Lab(bench, protocol), {}))).values
    alone = [
        next(iter(run(Lab(bench, replace(protocol, seeds=(seed,))), {}))).values
        for seed in protocol.seeds
    ]
    assert not np.array_equal(alone[0], alone[1])
    np.testing.assert_allclose(both, np.mean(alone, axis=0))


def test_an_exact_count_above_every_text_is_natural_for_the_scarcest_rule(bench: Bench) -> None:
    """With one rule alone and a budget that no text reaches, nothing is left out."""
    protocol = replace(small("exact-count"), groupings=("model",), budgets=(500,), contrasts=())
    lines = {line.name: line for line in run(Lab(bench, protocol), {})}
    lab = Lab(bench, protocol)
    scores, _ = lab.local(lab.units, protocol.widths[0])
    expected = lab.values(scores, lab.gate)
    np.testing.assert_allclose(lines["model, joint 500"].values, expected)
    np.testing.assert_allclose(lines["model, document 500"].values, expected)


def test_full_corpus_ranks_everything(bench: Bench) -> None:
    lines = lines_of(bench, "full-corpus")
    lab = Lab(bench, small("full-corpus"))
    scores = rescore.maxsim(*(lab.kept(side, lab.units, lab.width) for side in lab.sides))
    for row, name in enumerate(bench.data.query_ids):
        order = sorted(range(120), key=lambda i: (-scores[row, i], bench.ids[i]))[:10]
        expected = ndcg([str(bench.ids[i]) for i in order], bench.data.judgements[name])
        assert lines["phrase, full corpus"].values[row] == pytest.approx(expected)
    wider = lines["hybrid, union"].facts["candidates"]
    assert lab.gate.shape[1] <= wider <= 2 * lab.gate.shape[1]


def test_a_single_view_needs_no_tuning_and_others_do(bench: Bench) -> None:
    assert combinations_of_views() == ["G", "P", "L", "G+P", "G+L", "P+L", "G+P+L"]
    with pytest.raises(InputError, match=r"tuned on dev data, give --dev"):
        list(run(Lab(bench, small("fusion")), {}))
    lines = lines_of(bench, "fusion")
    broad = lines_of(bench, "broad-deployed")
    np.testing.assert_allclose(lines["G"].values, broad["global"].values)
    np.testing.assert_allclose(lines["P"].values, broad["phrase"].values)


def test_tuning_takes_the_best_of_its_grid(bench: Bench) -> None:
    tuned = tune([bench], small("fusion"))
    assert set(tuned) == {"G+P", "G+L", "P+L", "G+P+L"}
    best = {line.name: line.values.mean() for line in run(Lab(bench, small("fusion")), tuned)}
    other = {line.name: line.values.mean() for line in run(Lab(bench, small("fusion")), ALPHAS)}
    for name in tuned:
        assert best[name] >= other[name] - 1e-12


def test_budgets_of_the_same_mean_cost_as_much(bench: Bench) -> None:
    lines = lines_of(bench, "budgets")
    for share in ("30%", "50%", "70%", "90%"):
        adaptive = lines[f"model, merge to {share} of importance"].cost
        fixed = lines[f"model, merge fixed, as {share} of importance"].cost
        assert adaptive is not None
        assert fixed is not None
        assert fixed.vectors == pytest.approx(adaptive.vectors)
    assert lines["model, merge to 4"].cost is not None
    assert lines["model, merge to 4"].cost.bytes == lines["model, merge to 4"].cost.vectors * 8 * 4


def test_costs_of_views_by_hand(bench: Bench) -> None:
    """Counted text by text; what is combined costs the sum of its parts."""
    lines = lines_of(bench, "fusion")
    costs = {name: line.cost for name, line in lines.items()}
    kinds = [set(bench.queries.tokens.ids[a:b]) for a, b in pairwise(bench.queries.tokens.offsets)]
    held = [
        set(bench.documents.tokens.ids[a:b]) for a, b in pairwise(bench.documents.tokens.offsets)
    ]
    unknown = bench.model.checkpoint.backbone.tokenizer.unknown
    for texts in (kinds, held):
        for own in texts:
            own.discard(unknown)
    lexical, phrase, global_ = costs["L"], costs["P"], costs["G"]
    assert lexical is not None
    assert phrase is not None
    assert global_ is not None
    assert lexical.query_units == np.mean([len(own) for own in kinds])
    assert lexical.bytes == pytest.approx(3 * np.mean([len(own) for own in held]))  # 120 < 256
    met = [sum(len(own & other) for other in held) for own in kinds]
    assert lexical.multiplications == pytest.approx(np.mean(met))
    assert global_ == Cost(1.0, 8 * 4, 1.0, 120 * 8)
    assert costs["G+P+L"] == global_ + phrase + lexical
    assert costs["P+L"] == phrase + lexical


def test_only_joint_budgets_bind_queries(bench: Bench) -> None:
    lines = lines_of(bench, "exact-count")
    side = bench.queries
    tokens = float(np.diff(side.tokens.offsets).mean())
    for budget in (4, 128):
        joint, alone = (lines[f"tokens, {on} {budget}"].cost for on in ("joint", "document"))
        assert joint is not None
        assert alone is not None
        assert joint.query_units <= budget
        assert alone.query_units == pytest.approx(tokens)
        assert joint.vectors == alone.vectors
        assert alone.multiplications == pytest.approx(tokens * alone.vectors * 8 * 20)


def test_pools_are_kept_by_what_they_are_made_from(tmp_path: Path) -> None:
    scores = np.array([[0.1, 0.9, 0.9], [0.3, 0.2, 0.1]], np.float32)
    ids = np.array(["b", "c", "a"])
    assert best(scores, ids, 2, tmp_path).tolist() == [[2, 1], [0, 1]]  # ties by id
    (file,) = tmp_path.iterdir()
    written = file.stat().st_mtime_ns
    assert best(scores, ids, 2, tmp_path).tolist() == [[2, 1], [0, 1]]
    assert file.stat().st_mtime_ns == written
    assert best(scores, ids, 1, tmp_path).tolist() == [[2], [0]]
    assert best(-scores, ids, 2, tmp_path).tolist() == [[0, 2], [2, 1]]
    assert best(scores, ids[[0, 2, 1]], 2, tmp_path).tolist() == [[1, 2], [0, 1]]
    assert len(list(tmp_path.iterdir())) == 4
    content = bytearray(file.read_bytes())
    content[-8] ^= 1
    file.write_bytes(content)
    with pytest.raises(InputError, match="is damaged"):
        best(scores, ids, 2, tmp_path)
    file.write_bytes(b"")
    with pytest.raises(InputError, match="is damaged"):
        best(scores, ids, 2, tmp_path)


def test_uniform_weights_by_hand(bench: Bench) -> None:
    protocol = replace(small("ablations"), budgets=(500,))
    lines = {line.name: line.values for line in run(Lab(bench, protocol), {})}
    lab = Lab(bench, protocol)
    width = protocol.widths[0]
    tokens = [
        bench.units(side, "tokens", "uniform", width, Budget())
        for side in (bench.queries, bench.documents)
    ]
    # All rules keep as many units as the scarcest has: the model's own, so all of them here.
    queries, documents = (
        lab.kept(side, lab.units, width) for side in (bench.queries, bench.documents)
    )
    uniform = rescore.maxsim_by(queries, documents, [np.ones_like(queries.weights)])[0]
    np.testing.assert_allclose(lines["model, query uniform"], lab.values(uniform, lab.gate))
    assert len(tokens[0].weights) >= len(queries.weights)


def test_scores_of_tokens_are_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the next system, and for no other width, format or candidates."""
    lab = Lab(bench, small("broad-deployed"))
    found = {width: lab.token(width)[0] for width in (4, 8)}
    assert not np.array_equal(found[4], found[8])
    fewer = lab.token(8, lab.gate[:, :3])[0]
    assert np.isneginf(fewer).sum() > np.isneginf(found[8]).sum()
    monkeypatch.setattr(rescore, "maxsim_of_pools", None)  # nothing is scored again
    for width, scores in found.items():
        again = Lab(bench, small("broad-deployed")).token(width)[0]
        np.testing.assert_array_equal(again, scores)
    with pytest.raises(TypeError):
        Lab(bench, replace(small("broad-deployed"), format="int8")).token(8)


def test_pools(bench: Bench) -> None:
    lab = Lab(bench, small("pool-sensitivity"))
    found = describe(bench, lab.gate)
    judged = [bench.data.judgements[name] for name in bench.data.query_ids]
    shares = []
    for own, grades in zip(lab.gate, judged, strict=True):
        relevant = {name for name, grade in grades.items() if grade > 0}
        shares.append(len(relevant & set(bench.ids[own].tolist())) / len(relevant))
    assert found["recall"] == pytest.approx(np.mean(shares))
    assert found["degenerate"] == 0
    whole = np.tile(np.arange(120), (8, 1))
    assert describe(bench, whole)["degenerate"] == 1
    both = union([lab.gate[:, :3], lab.gate[:, 2:5]])
    assert [len(own) for own in both] == [5] * 8
    assert pool_hash(bench, both) == pool_hash(bench, [own[::-1] for own in both])
    assert pool_hash(bench, both) != pool_hash(bench, [own[1:] for own in both])


def test_an_orthogonal_projection_changes_nothing(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cosines of rotated states are those of the states, at full width."""
    dim = bench.model.dim
    protocol = replace(small("projection"), widths=(dim,), budgets=(4, 64))
    with pytest.raises(InputError, match="has no token projection"):
        list(run(Lab(bench, protocol)))
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(dim, dim)))[0]
    arrays = {"project.weight": rotation.astype(np.float32),
              "project.bias": np.zeros(dim, np.float32)}  # fmt: skip
    save_file(arrays, tmp_path / "projection.safetensors")
    config = {"projection": sha256(tmp_path / "projection.safetensors")}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_projection(bench.model.checkpoint.source) is None
    monkeypatch.setattr(
        bench.model, "checkpoint", replace(bench.model.checkpoint, source=str(tmp_path))
    )
    lines = {line.name: line for line in run(Lab(bench, protocol))}
    works = dict(workloads(Lab(bench, protocol)))
    assert works.keys() == lines.keys()
    for rule, budget in product(protocol.groupings, protocol.budgets):
        projected, raw = (lines.pop(f"{rule}, {space} {budget}") for space in ("projected", "raw"))
        np.testing.assert_allclose(projected.values, raw.values, atol=1e-6)
        assert projected.cost == raw.cost
    assert not lines
    content = bytearray((tmp_path / "projection.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "projection.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match="was changed or cut"):
        read_projection(tmp_path)


def test_vectors_are_scored_as_their_format_keeps_them(bench: Bench) -> None:
    """int8 by hand: codes of the row's largest number over 127."""
    protocol = replace(small("full-corpus"), format="int8")
    lab = Lab(bench, protocol)
    plain = bench.units(bench.documents, lab.units, lab.importance, lab.width, Budget()).vectors
    scales = (np.abs(plain).max(axis=1, keepdims=True) / 127).astype(np.float16).astype(np.float32)
    expected = np.rint(plain / scales) * scales
    np.testing.assert_allclose(lab.as_stored(plain), expected, atol=1e-6)
    lines = {line.name: line for line in run(lab)}
    whole = {line.name: line for line in run(Lab(bench, small("full-corpus")))}
    for name, line in lines.items():
        if "phrase" in name or "token" in name:
            cost, plainer = line.cost, whole[name].cost
            assert cost is not None
            assert plainer is not None
            assert cost.bytes < plainer.bytes / 3  # of two columns, and a scale
    queries = lab.kept(bench.queries, lab.units, lab.width)
    documents = lab.kept(bench.documents, lab.units, lab.width)
    stored = replace(documents, vectors=expected)
    pools = np.tile(np.arange(120), (8, 1))
    found = lab.scores(queries, documents, pools)
    np.testing.assert_allclose(found, rescore.maxsim(queries, stored), atol=1e-5)
    assert np.abs(found - rescore.maxsim(queries, documents)).max() > 1e-4


@pytest.mark.parametrize("name", ["dimensional", "exact-count", "ablations", "budgets"])
def test_no_line_goes_round_the_format(
    bench: Bench, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A format that turned every document round would turn every line that reads its vectors."""
    plain = lines_of(bench, name)

    def turn(lab: Lab, vectors: F32) -> F32:
        return -vectors if hasattr(lab, "gate") else vectors  # the candidates stay

    monkeypatch.setattr(Lab, "as_stored", turn)
    turned = lines_of(bench, name)
    for line, before in plain.items():
        if line != "global 8":  # the gate itself
            assert not np.array_equal(before.values, turned[line].values), line


def test_a_shared_pool_is_one_for_all(bench: Bench) -> None:
    random = np.random.default_rng(0)
    shape = (8, 120)
    others = {name: random.normal(size=shape).astype(np.float32) for name in ("one", "two")}
    strangers = {
        name: Other(scores, lambda pool: Cost(2.0, 8.0, 3.0, pool), lambda *_: None, 0.0, len)
        for name, scores in others.items()
    }
    protocol = replace(small("shared-pool"), sources=("global", "one"))
    lines = {line.name: line for line in run(Lab(bench, protocol), others=strangers)}
    assert list(lines) == ["global", "token", "phrase", "one", "two"]
    assert all(line.cost is not None for line in lines.values())
    lab = Lab(bench, protocol)
    pools = union([lab.gate, bench.gate(others["one"], protocol.pools[0])])
    expected = describe(bench, pools)
    ranked = Lab(bench, protocol)
    list(run(ranked, others=strangers))
    assert pool_hash(bench, list(ranked.pool)) == pool_hash(bench, pools)
    assert pool_hash(bench, list(lab.pool)) == pool_hash(bench, list(lab.gate))
    assert all(line.facts == expected for line in lines.values())
    # One gives candidates and has met every document; two ranks what it is given.
    assert lines["one"].cost == Cost(2.0, 8.0, 3.0, 120.0)
    assert lines["two"].cost == Cost(2.0, 8.0, 3.0, expected["candidates"])
    for row, own in enumerate(pools):
        order = sorted(own, key=lambda i: (-others["two"][row, i], bench.ids[i]))[:10]
        grades = bench.data.judgements[bench.data.query_ids[row]]
        value = ndcg([str(bench.ids[i]) for i in order], grades)
        assert lines["two"].values[row] == pytest.approx(value)
    with pytest.raises(InputError, match="one is missing: give --baselines DIR"):
        list(run(Lab(bench, protocol), others={"two": strangers["two"]}))
