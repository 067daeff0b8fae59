"""What a batch costs: eq:stage1 and eq:stage2_loss, with our unit-aware interaction beside them.

states -> global means, projected tokens, importance, units -> a score matrix per head ->
contrastive and distillation losses -> one weighted sum
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from hplus.errors import InputError
from hplus.heads.lexical import half_weight
from hplus.train.config import BoundariesLoss, Config, HeadLoss, UnitsLoss
from hplus.train.data import Batch, Data, allowed
from hplus.train.distributed import World, gathered
from hplus.train.losses.contrastive import nce
from hplus.train.losses.distillation import min_max, spread, teacher_divergence
from hplus.train.losses.lexical import lexical_matrix, saturated_matrix
from hplus.train.losses.matryoshka import global_scores, over_widths
from hplus.train.losses.segmentation import seg_loss
from hplus.train.losses.states import states_distance
from hplus.train.losses.token_interaction import token_scores, weighted_maxsim
from hplus.train.losses.unit_interaction import merged, padded, pooled_units, ward_groups
from hplus.train.partitions import Partitions
from hplus.train.passes import Encoded
from hplus.train.student import Student
from hplus.train.teacher import Target
from hplus.train.texts import Texts
from hplus.types import I64, Bool, offsets_of, rows_of
from hplus.units.partition import partition, tags_of_begins


@dataclass(frozen=True)
class Side:
    """Queries or documents of a batch: states and inner [T, d] of the texts' own tokens, with
    offsets i64[n + 1]; pooled [n, d] for the global view; importance u(t) [T]; begins bool[T] of
    the units, None where they are still to be found."""

    texts: Texts
    states: Tensor
    inner: Tensor
    pooled: Tensor
    importance: Tensor
    begins: Bool | None = None

    @property
    def offsets(self) -> I64:
        """Tokens of each text."""
        return self.texts.tokens.offsets


@dataclass
class Objective:
    """The loss of a batch; `parts` are the heads' own losses of the last one, for the log, and
    `spreads` by how much the student's scores and the teacher's logits differ in its groups."""

    student: Student
    data: Data
    config: Config
    stage: int
    world: World
    targets: Sequence[Target] = ()
    """A teacher's states of queries and documents, for `loss.states`."""

    def __post_init__(self) -> None:
        self.parts: dict[str, float] = {}
        self.spreads: dict[str, list[tuple[float, float]]] = {}
        loss, dev = self.config.loss, self.config.dev
        units = loss.units.widths if self.stage == 2 and loss.units.weight else ()
        wide = max([0, *loss.global_.widths, *units, *(dev.widths if dev.sets else ())])
        if wide > self.student.dim:
            raise InputError(f"expected widths of at most {self.student.dim}, got {wide}")
        self.partitions = [
            Partitions(self.student, texts, self.data.folder)
            for texts in (self.data.queries, self.data.documents)
        ]

    def __call__(self, batch: Batch, encoded: list[Encoded]) -> Tensor:
        """eq:stage1 or eq:stage2_loss of encoded queries and documents."""
        self.spreads = {}
        if not all(bool(torch.isfinite(states).all()) for states, _ in encoded):
            return encoded[0][0].sum() * torch.nan  # units of such states cannot be merged
        queries, documents = (
            side_of(self.student, texts.take(rows), *states)
            for texts, rows, states in (
                (self.data.queries, batch.queries, encoded[0]),
                (self.data.documents, batch.documents, encoded[1]),
            )
        )
        if self.stage == 1:
            loss = self.global_loss(batch, queries, documents, distil=False)
            self.parts = {"global": float(loss.detach())}
            return loss
        losses = {}
        if self.config.loss.global_.weight:
            losses["global"] = self.global_loss(batch, queries, documents)
        if self.config.loss.token.weight:
            losses["token"] = self.token_loss(batch, queries, documents)
        if self.config.loss.lexical.weight:
            losses["lexical"] = self.lexical_loss(batch, queries, documents)
        if self.config.loss.units.weight:
            losses["units"] = self.units_loss(batch, queries, documents)
        if self.config.loss.segmentation.weight:
            losses["segmentation"] = self.segmentation_loss(batch, queries, documents)
        if self.config.loss.boundaries.weight:
            losses["boundaries"] = self.boundaries_loss(batch, queries, documents)
        if self.config.loss.states.weight:
            losses["states"] = self.states_loss(batch, encoded, (queries, documents))
        self.parts = {name: float(loss.detach()) for name, loss in losses.items()}
        weights = self.config.loss
        weighted = [
            getattr(weights, f"{name}_" if name == "global" else name).weight * loss
            for name, loss in losses.items()
        ]
        return torch.stack(weighted).sum()

    def global_loss(
        self, batch: Batch, queries: Side, documents: Side, *, distil: bool = True
    ) -> Tensor:
        """L_G: the mean over the widths, with the documents of all processes as negatives."""
        settings = self.config.loss.global_
        numbers = torch.from_numpy(batch.documents).to(documents.pooled.device)
        everyone = gathered(documents.pooled, self.world)
        rows = gathered(numbers, self.world).cpu().numpy()
        # Where this process's documents begin among all.
        ahead = _ahead(len(batch.documents), self.world, numbers.device)
        may = allowed(self.data, batch, rows, batch.positive + ahead)

        def at(width: int) -> Tensor:
            scores = global_scores(queries.pooled, everyone, width)
            return self._loss("global", scores, batch, settings, may, ahead=ahead, distil=distil)

        return over_widths(at, settings.widths or [self.student.dim])

    def token_loss(self, batch: Batch, queries: Side, documents: Side) -> Tensor:
        """L_T: eq:token_training_score on projected tokens."""
        sides = [
            padded(self.student.projected(side.states), side.offsets)
            for side in (queries, documents)
        ]
        scores = token_scores(*sides[0], *sides[1])
        return self._loss("token", scores, batch, self.config.loss.token)

    def lexical_loss(self, batch: Batch, queries: Side, documents: Side) -> Tensor:
        """L_L: eq:lexical_training_score on the importance of the tokens, or a head's own score."""
        settings = self.config.loss.lexical
        sides = (queries, documents)
        ids = [torch.from_numpy(side.texts.tokens.ids.astype(np.int64)) for side in sides]
        ids = [own.to(queries.states.device) for own in ids]
        weights = [side.importance for side in sides]
        head = self.student.lexical if settings.head else None
        if head is not None:
            weights = [head.worth(ids[0]), head.counted(documents.inner)]
        query, query_ids, document, document_ids = (
            padded(values, side.offsets)[0]
            for side, own, weight in zip(sides, ids, weights, strict=True)
            for values in (weight * (own != side.texts.unknown), own)
        )
        parts = (query, query_ids, document, document_ids)
        if head is not None:
            halves = torch.from_numpy(half_weight(np.diff(documents.offsets)))
            scores = saturated_matrix(*parts, halves.to(document))
        else:
            scores = lexical_matrix(*parts, repeats=settings.repeats)
            scores = torch.log1p(scores) if settings.log else scores
        return self._loss("lexical", scores, batch, settings)

    def units_loss(self, batch: Batch, queries: Side, documents: Side) -> Tensor:
        """The score of the phrase view at budgets and widths drawn for this batch."""
        settings = self.config.loss.units
        if self.student.divides_once():
            queries, documents = (
                replace(side, begins=own.of(rows, side.texts, side.inner))
                for own, rows, side in zip(
                    self.partitions,
                    (batch.queries, batch.documents),
                    (queries, documents),
                    strict=True,
                )
            )
        random = np.random.default_rng(batch.draw)
        losses = []
        for _ in range(settings.draws):
            budget = int(random.choice(settings.budgets)) or None
            width = int(random.choice(settings.widths)) or self.student.dim
            scores = unit_scores(self.student, queries, documents, budget, width, settings.query)
            losses.append(self._loss("units", scores, batch, settings))
        return torch.stack(losses).mean()

    def segmentation_loss(self, batch: Batch, queries: Side, documents: Side) -> Tensor:
        """L_seg of the labelled queries and positives, over the number of pairs."""
        crf, data = self.student.crf, self.data
        assert crf is not None
        positives = np.unique(batch.positive)
        total = queries.inner.new_zeros(())
        for side, rows, own, tags, labelled in (
            (queries, batch.queries, np.arange(len(batch.queries)), data.query_tags,
             data.query_labelled),
            (documents, batch.documents, positives, data.document_tags, data.document_labelled),
        ):  # fmt: skip
            texts = own[labelled[rows[own]]]
            if not len(texts):
                continue
            places, offsets = rows_of(side.offsets, texts)
            whole = (data.queries if side is queries else data.documents).tokens.offsets
            gold = torch.from_numpy(tags[rows_of(whole, rows[texts])[0]].astype(np.int64))
            states, mask = padded(side.inner[torch.from_numpy(places)], offsets)
            golden, _ = padded(gold.to(states.device), offsets)
            total = total + seg_loss(crf, states, golden, mask).sum()
        return total / len(batch.queries)

    def boundaries_loss(self, batch: Batch, queries: Side, documents: Side) -> Tensor:
        """-log p of the partition, among some likely ones, that serves retrieval best.

        The paper's boundaries have no signal from retrieval and name this as future work. Best is
        the least squared distance, over the queries of the batch, between the scores of merged
        units and those of all tokens.
        """
        settings, crf = self.config.loss.boundaries, self.student.crf
        assert crf is not None
        found = likely_partitions(self.student, documents, settings, batch.draw)
        with torch.no_grad():
            aim = token_targets(queries, documents)
            errors = torch.stack(
                [
                    (
                        unit_scores(
                            self.student,
                            queries,
                            documents,
                            settings.budget or None,
                            self.student.dim,
                            begins=begins,
                        )
                        - aim
                    )
                    .square()
                    .mean(dim=0)
                    for begins in found
                ]
            )  # [candidates, D]
        # Ties go to the first, the CRF's own: nothing to learn where nothing is better.
        best = errors.argmin(dim=0).cpu().numpy()
        tags = np.stack([tags_of_begins(begins) for begins in found])
        owner = np.repeat(np.arange(len(best)), np.diff(documents.offsets))
        gold = tags[best[owner], np.arange(len(owner))].astype(np.int64)
        states, mask = padded(documents.inner.detach(), documents.offsets)
        golden, _ = padded(torch.from_numpy(gold).to(states.device), documents.offsets)
        # Per token, since documents are of any length.
        return seg_loss(crf, states, golden, mask).sum() / mask.sum()

    def states_loss(self, batch: Batch, encoded: list[Encoded], sides: tuple[Side, Side]) -> Tensor:
        """Queries and documents alike, the tokens around them too: the global view reads those."""
        rows = (batch.queries, batch.documents)
        own = [states for states, _ in encoded]
        target = [t.states(r) for t, r in zip(self.targets, rows, strict=True)]
        loss = states_distance(torch.cat(own), torch.cat(target))
        settings = self.config.loss.states
        if settings.heads:
            made = torch.cat([readings(self.student, s.inner, s.offsets) for s in sides])
            aim = torch.cat(
                [
                    readings(t.teacher, t.read(r)[torch.from_numpy(s.texts.inside())], s.offsets)
                    for t, r, s in zip(self.targets, rows, sides, strict=True)
                ]
            )
            columns = zip(made.T, aim.T, strict=True)
            parts = [states_distance(own[:, None], its[:, None]) for own, its in columns]
            loss = loss + settings.heads * torch.stack(parts).mean()
        if not settings.texts:
            return loss
        texts = [t.texts.take(r) for t, r in zip(self.targets, rows, strict=True)]
        views = [
            torch.cat([pooled_of(self.student, t, s) for t, s in zip(texts, side, strict=True)])
            for side in (own, target)
        ]
        distance = states_distance(normalize(views[0], dim=1), normalize(views[1], dim=1))
        return loss + settings.texts * distance

    def _loss(
        self,
        name: str,
        scores: Tensor,
        batch: Batch,
        settings: HeadLoss,
        may: Bool | None = None,
        *,
        ahead: int = 0,
        distil: bool = True,
    ) -> Tensor:
        if may is None:
            may = allowed(self.data, batch, batch.documents, batch.positive)
        group = group_of(scores, batch, ahead)
        if distil:
            self.spreads.setdefault(name, []).append(_spreads(group, batch, settings))
        return head_loss(scores, group, batch, settings, may, ahead=ahead, distil=distil)


def group_of(scores: Tensor, batch: Batch, ahead: int = 0) -> Tensor:
    """The scores of each query's explicit group, [b, g], minus infinity where it has fewer.

    ahead: how many columns of other processes stand before this one's.
    """
    there = torch.from_numpy(batch.group >= 0).to(scores.device)
    columns = torch.from_numpy(np.maximum(batch.group, 0) + ahead).to(scores.device)
    return scores.gather(1, columns).masked_fill(~there, -torch.inf)


def _spreads(group: Tensor, batch: Batch, settings: HeadLoss) -> tuple[float, float]:
    """Mean spread in the groups that have a teacher: of the student's scores, of the logits."""
    taught = torch.from_numpy(np.isfinite(batch.teacher[:, 0]) & (batch.group[:, 1:] >= 0).any(1))
    if not taught.any():
        return 0.0, 0.0
    own = group.detach()[taught.to(group.device)]
    own = min_max(own) if settings.min_max else own
    return float(spread(own).mean()), float(spread(torch.from_numpy(batch.teacher)[taught]).mean())


def head_loss(
    scores: Tensor,
    group: Tensor,
    batch: Batch,
    settings: HeadLoss,
    may: Bool,
    *,
    ahead: int = 0,
    distil: bool = True,
) -> Tensor:
    """eq:retrieval_head_loss of one head: scores [b, D], of the groups [b, g], may bool[b, D].

    ahead: how many columns of other processes stand before this one's.
    """
    device = scores.device
    loss = scores.new_zeros(())
    if settings.nce:
        if settings.in_batch:
            positive = torch.from_numpy(batch.positive + ahead).to(device)
            masked = scores.masked_fill(~torch.from_numpy(may).to(device), -torch.inf)
            loss = loss + settings.nce * nce(masked, settings.tau, positive)
        else:
            loss = loss + settings.nce * nce(group, settings.tau)
    if settings.distillation and distil:
        taught = np.isfinite(batch.teacher[:, 0])
        if taught.any():
            rows = torch.from_numpy(taught).to(device)
            teacher = torch.from_numpy(batch.teacher).to(device)[rows].to(scores.dtype)
            own = min_max(group[rows]) if settings.min_max else group[rows]
            share = float(taught.mean())
            loss = loss + settings.distillation * share * teacher_divergence(
                teacher, own, settings.tau
            )
    return loss


def unit_scores(
    student: Student,
    queries: Side,
    documents: Side,
    budget: int | None,
    width: int,
    query: str = UnitsLoss.query,
    *,
    begins: Bool | None = None,
) -> Tensor:
    """eq:phrase_score over the query's weight, [b, D], documents merged to `budget` units.

    begins: where the documents' units begin, if not where the student says.
    """
    vectors, weights, offsets = _units(student, documents, width, begins)
    fixed, masses = (tensor.detach().cpu().numpy() for tensor in (vectors, weights))
    groups, bounds = ward_groups(fixed, masses, offsets, budget)
    own = torch.from_numpy(groups).to(vectors.device)
    vectors, _ = merged(vectors, weights, own, int(bounds[-1]))
    if query == "tokens":
        asked = normalize(queries.states[:, :width], dim=1, eps=1e-9)
        amount, asked_offsets = queries.importance, queries.offsets
    else:
        asked, amount, asked_offsets = _units(student, queries, width)
    return weighted_maxsim(
        padded(asked, asked_offsets)[0], padded(amount, asked_offsets)[0], *padded(vectors, bounds)
    )


def likely_partitions(
    student: Student, side: Side, settings: BoundariesLoss, draw: int
) -> list[Bool]:
    """The CRF's partition of each text, and others by noise on its scores (perturb and map)."""
    inner = side.inner.detach().cpu().numpy().astype(np.float32)
    random = np.random.default_rng(draw)
    found = [student.begins(inner, side.texts.tokens)]
    for _ in range(settings.candidates - 1):
        noise = settings.noise * random.gumbel(size=(len(inner), 3)).astype(np.float32)
        found.append(student.begins(inner, side.texts.tokens, noise))
    return found


def token_targets(queries: Side, documents: Side) -> Tensor:
    """Weighted late interaction of all tokens, [b, D]: what merged units should keep."""
    asked, given = (normalize(side.states, dim=1, eps=1e-9) for side in (queries, documents))
    weights = padded(queries.importance, queries.offsets)[0]
    return weighted_maxsim(
        padded(asked, queries.offsets)[0], weights, *padded(given, documents.offsets)
    )


def _units(
    student: Student, side: Side, width: int, begins: Bool | None = None
) -> tuple[Tensor, Tensor, I64]:
    """Pooled units of a side: vectors [U, r], importance [U], offsets i64[n + 1]."""
    begins = side.begins if begins is None else begins
    if begins is None:
        inner = side.inner.detach().cpu().numpy().astype(np.float32)
        begins = student.begins(inner, side.texts.tokens)
    unit = torch.from_numpy(np.cumsum(begins, dtype=np.int64) - 1).to(side.states.device)
    offsets = partition(begins, side.offsets).offsets
    vectors, weights = pooled_units(side.states, side.importance, unit, int(offsets[-1]), width)
    return vectors, weights, offsets


def readings(student: Student, inner: Tensor, offsets: I64) -> Tensor:
    """What the heads make of each token, a column each: importance before softplus, the CRF's
    scores; a model without a head has no such column."""
    columns = []
    if student.importance is not None:
        columns.append(student.importance(inner))
    if student.crf is not None:
        states, mask = padded(inner, offsets)
        columns.append(student.crf.emissions(states, mask)[mask])
    return torch.cat(columns, dim=1)


def side_of(student: Student, texts: Texts, states: Tensor, inner: Tensor) -> Side:
    """All states of the texts -> those of their own tokens, the global view, the importance."""
    inside = torch.from_numpy(texts.inside()).to(states.device)
    own, pooled = inner[inside], pooled_of(student, texts, states)
    return Side(texts, states[inside], own, pooled, student.weights(own))


def pooled_of(student: Student, texts: Texts, states: Tensor) -> Tensor:
    """All states of the texts -> what the global view is made of, [n, d]."""
    recipe = student.checkpoint.recipe
    if recipe.pooling == "mean" and recipe.mean_over == "text":
        inside = torch.from_numpy(texts.inside()).to(states.device)
        return _means(states[inside], texts.tokens.offsets)
    if recipe.pooling == "mean":
        return _means(states, offsets_of(texts.lengths))
    bounds = offsets_of(texts.lengths)
    edge = bounds[:-1] if recipe.pooling == "cls" else bounds[1:] - 1
    return states[torch.from_numpy(edge).to(states.device)]


def _means(states: Tensor, offsets: I64) -> Tensor:
    lengths = np.diff(offsets)
    text = torch.from_numpy(np.repeat(np.arange(len(lengths)), lengths)).to(states.device)
    sums = states.new_zeros(len(lengths), states.shape[1]).index_add(0, text, states)
    return sums / torch.from_numpy(np.maximum(lengths, 1)).to(states.device)[:, None]


def _ahead(count: int, world: World, device: torch.device) -> int:
    """How many documents the processes before this one have."""
    counts = gathered(torch.tensor([count], device=device), world)
    return int(counts[: world.process].sum())
