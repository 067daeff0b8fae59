"""eq:stage2_loss of a whole batch against numpy, written from the paper: weights, masks, groups.

The batch has what real data have: groups of unequal size, a row without a teacher, a query with two
answers, a positive that two queries share, an unknown token, labels on some texts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import toy  # noqa: E402
from hplus.teach.groups import Group  # noqa: E402
from hplus.train.config import read_config  # noqa: E402
from hplus.train.data import Batches  # noqa: E402
from hplus.train.distributed import World  # noqa: E402
from hplus.train.objective import Objective  # noqa: E402
from hplus.train.student import make_student  # noqa: E402
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

    def head(self, score: Any, tau: float, nce: float, kl: float, *, in_batch: bool) -> float:
        """eq:retrieval_head_loss, a mean over the queries."""
        total = 0.0
        for query, row in zip(self.queries, self.rows, strict=True):
            scores = {d["text"]: score(query, d) / tau for d in self.documents}
            positive = row.documents[0]
            answers = {other.documents[0] for other in ROWS if other.query == row.query}
            rivals = [t for t in scores if t not in answers] if in_batch else row.documents[1:]
            against = np.array([scores[positive], *(scores[text] for text in rivals)])
            total -= nce * log_softmax(against)[0]
            if row.scores is not None:
                own = log_softmax(np.array([scores[text] for text in row.documents]))
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
        "lexical": made.head(lexical, 2.0, 1.0, 1.5, in_batch=True),
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
