"""eq:stage2_loss of a whole batch against numpy, written from the paper: weights, masks, groups.

The batch has what real data have: groups of unequal size, a row without a teacher, a query with two
answers, a positive that two queries share, an unknown token, labels on some texts.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import toy  # noqa: E402
from hplus.teach.groups import Group  # noqa: E402
from hplus.train import objective as objectives  # noqa: E402
from hplus.train.config import UnitsLoss, read_config  # noqa: E402
from hplus.train.data import Batches  # noqa: E402
from hplus.train.distributed import World  # noqa: E402
from hplus.train.objective import Objective, Side, unit_scores  # noqa: E402
from hplus.train.student import make_student  # noqa: E402
from hplus.train.texts import read_texts  # noqa: E402
from hplus.types import Span  # noqa: E402

SETTINGS = """
[data]
documents = 4
[batch]
queries = 5
[schedule]
precision = "float32"
[loss.global]
weight = 0.7
tau = 0.2
nce = 0.8
distillation = 0.6
widths = [8, 32]
[loss.token]
weight = 0.5
tau = 0.3
nce = 0.4
in_batch = false
[loss.lexical]
weight = 0.3
tau = 2.0
distillation = 1.5
min_max = true
[loss.segmentation]
weight = 0.2
"""

ROWS = [
    Group(
        "a",
        "heart failure",
        ("acute heart failure", "insulin therapy", "kidney disease", "cancer"),
        (3.0, 1.0, 0.5, -1.0),
        (Span(0, 13),),
        (Span(0, 5), Span(6, 19)),
    ),
    Group("a", "heart failure", ("chronic heart failure", "cancer"), (2.0, -1.0)),
    Group("a", "kidney disease", ("chronic heart failure", "cancer", "kidney disease")),
    Group("a", "insulin insulin qqq", ("insulin therapy qqq", "cancer"), (1.5, 1.0)),
    Group("a", "heart disease", ("kidney disease", "acute heart failure"), (0.5, 0.0)),
]


def unit(x: Any) -> Any:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def log_softmax(x: Any) -> Any:
    return x - x.max() - np.log(np.exp(x - x.max()).sum())


class Batch:
    """The batch in numpy: states, importance and ids of each text, and who stands against whom."""

    def __init__(self, path: Path) -> None:
        (path / "config.toml").write_text(SETTINGS)
        self.config = read_config(path / "config.toml")
        torch.manual_seed(0)
        base = toy.base(toy.encoder(path / "encoder"))
        self.student = make_student(base, self.config, 2)
        assert self.student.importance is not None
        with torch.no_grad():  # not uniform
            self.student.importance.weight.normal_()
        self.data = toy.data(ROWS, base, self.config, path)
        self.batch = Batches(self.data, self.config).at(0)
        sides = (
            (self.data.queries, self.batch.queries),
            (self.data.documents, self.batch.documents),
        )
        with torch.no_grad():
            self.encoded = [self.student(texts.take(rows)) for texts, rows in sides]
        self.queries, self.documents = (
            [self.read(texts, row) for row in rows.tolist()] for texts, rows in sides
        )
        self.rows = [ROWS[row] for row in self.batch.queries.tolist()]
        self.columns = {text["text"]: i for i, text in enumerate(self.documents)}

    def read(self, texts: Any, row: int) -> dict[str, Any]:
        alone = texts.take(np.array([row]))
        with torch.no_grad():
            every, inner = self.student(alone)
            inside = torch.from_numpy(alone.inside())
            states, inner = every[inside], inner[inside]
            importance = self.student.weights(inner).numpy()
            projected = self.student.projected(states).numpy()
        ids = alone.tokens.ids
        return {
            "text": alone.tokens.texts[0],
            "mean": every.numpy().mean(axis=0),  # this recipe's mean has the special tokens in it
            "z": projected,
            "u": importance * (ids != alone.unknown),
            "ids": ids,
            "inner": inner,
        }

    def head(
        self, score: Any, tau: float, nce: float, kl: float, *, in_batch: bool, spread: bool = False
    ) -> float:
        """eq:retrieval_head_loss, a mean over the queries; spread: the scores of a group are
        brought to [0, 1] before the divergence."""
        total = 0.0
        for query, row in zip(self.queries, self.rows, strict=True):
            scores = {d["text"]: score(query, d) / tau for d in self.documents}
            positive = row.documents[0]
            answers = {other.documents[0] for other in ROWS if other.query == row.query}
            rivals = [t for t in scores if t not in answers] if in_batch else row.documents[1:]
            against = np.array([scores[positive], *(scores[text] for text in rivals)])
            total -= nce * log_softmax(against)[0]
            if row.scores is not None:
                group = np.array([scores[text] for text in row.documents])
                if spread:
                    group = (group - group.min()) / (group.max() - group.min()) / tau
                own = log_softmax(group)
                target = log_softmax(np.array(row.scores))
                total += kl * (np.exp(target) * (target - own)).sum()
        return float(total / len(self.rows))


def lexical(query: Any, document: Any) -> float:
    """eq:lexical_training_score."""
    weigh = [
        {t: own["u"][own["ids"] == t].sum() for t in set(own["ids"].tolist())}
        for own in (query, document)
    ]
    return float(sum(w * weigh[1].get(t, 0.0) for t, w in weigh[0].items()))


def test_stage2_is_the_weighted_sum_of_the_papers_losses(tmp_path: Path) -> None:
    made = Batch(tmp_path)
    assert {text["text"] for text in made.queries} == {row.query for row in ROWS}

    def cosine(r: int) -> Any:
        return lambda q, d: float(unit(q["mean"][:r]) @ unit(d["mean"][:r]))

    expected: dict[str, float] = {
        "global": sum(made.head(cosine(r), 0.2, 0.8, 0.6, in_batch=True) for r in (8, 32)) / 2,
        "token": made.head(
            lambda q, d: (q["z"] @ d["z"].T).max(axis=1).mean(), 0.3, 0.4, 1.0, in_batch=False
        ),
        "lexical": made.head(lexical, 2.0, 1.0, 1.5, in_batch=True, spread=True),
    }
    # eq:seg_loss: of the labelled pair alone, each text by itself, over the number of pairs.
    crf, loss = made.student.crf, 0.0
    assert crf is not None
    labels = {"heart failure": [1, 2], "acute heart failure": [1, 1, 2]}
    asked = [q for q in made.queries if q["text"] == "heart failure"]
    for text in (*asked, made.documents[made.columns["acute heart failure"]]):
        tags = torch.tensor([labels[text["text"]]])
        mask = torch.ones_like(tags, dtype=torch.bool)
        emitted = crf.emissions(text["inner"][None], mask)
        loss -= float(crf.log_likelihood(emitted, tags, mask).detach())
    expected["segmentation"] = loss / len(ROWS)

    objective = Objective(made.student, made.data, made.config, 2, World())
    found = objective(made.batch, made.encoded)
    assert objective.parts == {k: pytest.approx(v, abs=1e-5) for k, v in expected.items()}
    weights = {"global": 0.7, "token": 0.5, "lexical": 0.3, "segmentation": 0.2}
    total = sum(weights[name] * value for name, value in expected.items())
    assert float(found.detach()) == pytest.approx(total, abs=1e-5)


def test_gradients_of_the_whole_batch_by_finite_differences(tmp_path: Path) -> None:
    """Queries and documents, last layer and heads' layer: all of them get the loss's gradient."""
    made = Batch(tmp_path)
    made.student.double()
    objective = Objective(made.student, made.data, made.config, 2, World())
    leaves = [part.double().requires_grad_() for pair in made.encoded for part in pair]

    def loss(*parts: Any) -> Any:
        return objective(made.batch, [(parts[0], parts[1]), (parts[2], parts[3])])

    assert torch.autograd.gradcheck(loss, leaves, fast_mode=True)


def test_budget_and_width_are_drawn_for_each_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the batch's own number, so that a resumed run and other processes draw the same."""
    made = Batch(tmp_path)
    units = UnitsLoss(weight=1.0, budgets=(2, 3, 0), widths=(16, 0))
    config = replace(made.config, loss=replace(made.config.loss, units=units))
    objective = Objective(made.student, made.data, config, 2, World())
    drawn: list[tuple[int | None, int]] = []

    def scores(student: Any, queries: Side, documents: Side, *how: Any) -> Any:
        drawn.append(how[:2])
        return unit_scores(student, queries, documents, *how)

    monkeypatch.setattr(objectives, "unit_scores", scores)
    for draw in [*range(24), *range(24)]:
        objective(replace(made.batch, draw=draw), made.encoded)
    assert drawn[:24] == drawn[24:]
    assert set(drawn) == {(budget, width) for budget in (2, 3, None) for width in (16, 32)}


def test_several_draws_of_a_batch_count_alike(tmp_path: Path) -> None:
    """The loss of two draws is the mean of both; the first is the one of a single draw."""
    made = Batch(tmp_path)

    def units_part(draws: int, budgets: tuple[int, ...], draw: int = 3) -> float:
        units = UnitsLoss(weight=1.0, budgets=budgets, widths=(16,), draws=draws)
        config = replace(made.config, loss=replace(made.config.loss, units=units))
        objective = Objective(made.student, made.data, config, 2, World())
        objective(replace(made.batch, draw=draw), made.encoded)
        return objective.parts["units"]

    apart = {budget: units_part(1, (budget,)) for budget in (1, 2)}
    assert apart[1] != pytest.approx(apart[2], abs=1e-4)
    of_two = {draw: units_part(2, (1, 2), draw) for draw in range(8)}
    means = {(apart[a] + apart[b]) / 2 for a in apart for b in apart}
    assert all(any(v == pytest.approx(m, abs=1e-6) for m in means) for v in of_two.values())
    assert any(v == pytest.approx(sum(apart.values()) / 2, abs=1e-6) for v in of_two.values())
    assert units_part(1, (1, 2)) in [pytest.approx(v, abs=1e-6) for v in apart.values()]


def test_gradients_of_merged_units_by_finite_differences(tmp_path: Path) -> None:
    """They flow through the means of what was merged, and through the importance of both sides;
    which units merge is not theirs to change."""
    made = Batch(tmp_path)
    backbone, recipe = made.student.backbone, made.student.checkpoint.recipe
    random = np.random.default_rng(0)
    sides = []
    for written, side in (
        (["heart failure of the kidney", "insulin"], "query"),
        (["acute heart failure and chronic kidney disease", "cancer of the heart"], "document"),
    ):
        texts = read_texts(written, backbone, recipe, side, 32)  # type: ignore[arg-type]
        count = len(texts.tokens.ids)
        begins = random.random(count) < 0.7
        begins[texts.tokens.offsets[:-1]] = True
        empty = torch.empty(0)
        states = torch.from_numpy(random.normal(size=(count, 6))).requires_grad_()
        weights = torch.from_numpy(random.uniform(0.5, 2, count)).requires_grad_()
        sides.append(Side(texts, states, empty, empty, weights, begins))
    leaves = [leaf for side in sides for leaf in (side.states, side.importance)]

    def scores(*values: Any) -> Any:
        own = [
            replace(side, states=values[2 * i], importance=values[2 * i + 1])
            for i, side in enumerate(sides)
        ]
        return unit_scores(made.student, own[0], own[1], 2, 5)

    assert torch.autograd.gradcheck(scores, leaves)
    found = torch.autograd.grad(scores(*leaves).sum(), leaves)
    # A document's importance weighs the units inside a group, a query's the maxima.
    assert all(gradient.any() for gradient in found)
