"""Two-stage training on a tiny encoder: what moves, what stays, what resumes, what is saved."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import toy  # noqa: E402
from hplus import HPlus, checkpoint  # noqa: E402
from hplus.errors import InputError  # noqa: E402
from hplus.evaluate.data import RetrievalSet  # noqa: E402
from hplus.heads.crf import emissions  # noqa: E402
from hplus.heads.crf_torch import LinearChainCRF  # noqa: E402
from hplus.heads.importance import ImportanceHead  # noqa: E402
from hplus.heads.lexical import half_weight  # noqa: E402
from hplus.teach.groups import Group  # noqa: E402
from hplus.train import run, state, validation  # noqa: E402
from hplus.train.config import Config, read_config  # noqa: E402
from hplus.train.data import Batches, allowed, part_of  # noqa: E402
from hplus.train.distributed import World  # noqa: E402
from hplus.train.losses.lexical import saturated_matrix  # noqa: E402
from hplus.train.losses.unit_interaction import padded  # noqa: E402
from hplus.train.objective import (  # noqa: E402
    Objective,
    likely_partitions,
    side_of,
    token_targets,
    unit_scores,
)
from hplus.train.passes import Reader, backward, cached_backward, encode  # noqa: E402
from hplus.train.run import precision, train  # noqa: E402
from hplus.train.saving import save_student  # noqa: E402
from hplus.train.student import Student, make_student  # noqa: E402
from hplus.train.teacher import make_teacher  # noqa: E402

ALL_HEADS = """
[student]
mode = "full"
[data]
documents = 3
[batch]
queries = 4
chunk = 64
[schedule]
steps = 6
learning_rate = 2e-3
head_learning_rate = 1e-2
validate_every = 3
save_every = 2
warmup = 0.2
precision = "float32"
[loss.global]
weight = 1.0
widths = [8, 32]
[loss.token]
weight = 0.5
[loss.lexical]
weight = 0.1
log = true
[loss.units]
weight = 1.0
budgets = [2, 0]
widths = [16, 0]
[loss.segmentation]
weight = 0.1
"""


CACHED = ("student.mode=top", "student.layers=1", "student.cached=true")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return toy.encoder(tmp_path_factory.mktemp("toy") / "encoder")


def config(path: Path, *changes: str) -> Config:
    (path / "config.toml").write_text(ALL_HEADS)
    return read_config(path / "config.toml", changes)


def begin(
    folder: Path, settings: Config, groups: Any = None, stage: int = 2
) -> tuple[Student, Any]:
    torch.manual_seed(0)
    base = toy.base(folder)
    student = make_student(base, settings, stage)
    return student, toy.data(groups or toy.groups(), base, settings, folder.parent)


def uneven() -> list[Group]:
    """Texts of many lengths, so that passes of similar length are not in the batch's order."""
    rows = toy.groups()
    longer = [" of the heart" * (i * 7 % 5) for i in range(4 * len(rows))]
    return [
        replace(
            row,
            query=row.query + longer[4 * i],
            documents=tuple(d + longer[4 * i + j] for j, d in enumerate(row.documents)),
        )
        for i, row in enumerate(rows)
    ]


def gradients(folder: Path, settings: Config, how: Any) -> dict[str, Any]:
    student, data = begin(folder, settings, uneven())
    batch = Batches(data, settings).at(0)
    readers = [
        Reader(student, texts, None, settings.batch.chunk, precision(settings, torch.device("cpu")))
        for texts in (data.queries, data.documents)
    ]
    objective = Objective(student, data, settings, 2, World())
    how(readers, [batch.queries, batch.documents], lambda encoded: objective(batch, encoded))
    return {name: p.grad.clone() for name, p in student.learning().items() if p.grad is not None}


def test_bfloat16_points_where_float32_does(folder: Path, tmp_path: Path) -> None:
    exact = gradients(folder, config(tmp_path), backward)
    rough = gradients(folder, config(tmp_path, "schedule.precision=bfloat16"), backward)
    assert rough.keys() == exact.keys()
    flat = [torch.cat([part.flatten() for part in own.values()]) for own in (exact, rough)]
    assert not torch.equal(*flat)
    assert torch.cosine_similarity(*flat, dim=0) > 0.98


@pytest.mark.parametrize(
    ("how", "change"),
    [(cached_backward, ()), (backward, ("student.checkpointing=true",))],
    ids=["cached", "checkpointing"],
)
def test_less_memory_gives_the_plain_gradient(
    folder: Path, tmp_path: Path, how: Any, change: tuple[str, ...]
) -> None:
    """Gradient caching, and gradient checkpointing."""
    plain = gradients(folder, config(tmp_path), backward)
    found = gradients(folder, config(tmp_path, *change), how)
    assert plain.keys() == found.keys()
    for name, gradient in plain.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize(
    ("changes", "moving"),
    [
        ((), {"encoder", "crf", "importance", "projection"}),
        (
            (*CACHED, 'student.heads=["crf"]'),
            {"encoder.encoder.layer.2", "crf", "projection"},
        ),
        (("student.mode=heads", "student.cached=true"), {"crf", "importance", "projection"}),
        (
            ("student.mode=lora", "student.layers=2", "student.rank=2"),
            {"lora", "crf", "importance", "projection"},
        ),
    ],
)
def test_a_run_moves_what_should_move_and_nothing_else(
    folder: Path, tmp_path: Path, changes: tuple[str, ...], moving: set[str]
) -> None:
    if "student.mode=lora" in changes:
        pytest.importorskip("peft")
    settings = config(tmp_path, "schedule.steps=3", *changes)
    student, data = begin(folder, settings)
    before = {name: p.detach().clone() for name, p in student.named_parameters()}
    train(student, data, settings, stage=2, folder=tmp_path / "run", cache=tmp_path / "cache")
    moved = {n for n, p in student.named_parameters() if not torch.equal(p.detach(), before[n])}
    assert moved == set(student.learning())
    for name in moved:
        assert any(part in name for part in moving), name
    for part in moving:
        assert any(part in name for name in moved), part
    assert not any("pooler" in name for name in moved)
    if "student.layers=2" in changes:
        assert not any(".layer.0." in name for name in student.learning())


@pytest.mark.parametrize("mode", ["full", "lora"])
def test_new_heads_begin_the_same_for_the_same_seed(
    folder: Path, tmp_path: Path, mode: str
) -> None:
    """Or each process would train a model of its own with averaged gradients."""
    if mode == "lora":
        pytest.importorskip("peft")
    found = []
    for seed, schedule in ((1, 13), (2, 13), (2, 14)):
        torch.manual_seed(seed)
        settings = config(tmp_path, f"student.mode={mode}", f"schedule.seed={schedule}")
        student = make_student(toy.base(folder), settings, 2)
        found.append(torch.cat([p.detach().flatten() for p in student.learning().values()]))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


STATES = (
    "loss.states.weight=1",
    "loss.global.weight=0",
    "loss.token.weight=0",
    "loss.lexical.weight=0",
    "loss.units.weight=0",
    "loss.segmentation.weight=0",
    "student.heads=[]",
)


def test_states_of_a_teacher_are_learned(folder: Path, tmp_path: Path) -> None:
    """A student with other upper layers comes nearer to its teacher's states; the teacher itself
    is at distance 0 from them."""
    teacher = f"loss.states.teacher={folder}"
    settings = config(tmp_path, *STATES, *CACHED, teacher, "schedule.steps=8")
    student, data = begin(folder, settings)
    with torch.no_grad():
        for parameter in student.learning().values():
            parameter.add_(0.1 * torch.randn_like(parameter))
    train(student, data, settings, stage=2, folder=tmp_path / "run", cache=tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    distances = [row["states"] for row in rows if "states" in row]
    assert distances[-1] < 0.7 * distances[0]
    same, _ = begin(folder, settings)
    targets = run.make_targets(same, data, settings, tmp_path, World())
    objective = Objective(same, data, settings, 2, World(), targets)
    batch = Batches(data, settings).at(0)
    plain = precision(settings, torch.device("cpu"))
    readers = [Reader(same, texts, None, 64, plain) for texts in (data.queries, data.documents)]
    rows_of = (batch.queries, batch.documents)
    encoded = [encode(reader, own) for reader, own in zip(readers, rows_of, strict=True)]
    assert float(objective(batch, encoded).detach()) < 1e-6  # the teacher's are kept as float16


def test_the_global_vectors_of_a_teacher_are_learned_beside_its_states(
    folder: Path, tmp_path: Path
) -> None:
    """Both parts are the share of the teacher's variance that is left, here taken by numpy."""
    teacher = f"loss.states.teacher={folder}"
    settings = config(tmp_path, *STATES, teacher, "loss.states.texts=0.5")
    student, data = begin(folder, settings, uneven())
    targets = run.make_targets(student, data, settings, tmp_path, World())
    objective = Objective(student, data, settings, 2, World(), targets)
    batch = Batches(data, settings).at(0)
    sides = (data.queries, batch.queries), (data.documents, batch.documents)
    aims = [target.states(rows) for target, (_, rows) in zip(targets, sides, strict=True)]
    torch.manual_seed(1)
    noisy = [aim + torch.randn_like(aim) * aim.std() for aim in aims]
    found = float(objective(batch, [(states, states) for states in noisy]))

    def share(own: Any, aim: Any) -> float:
        own, aim = np.concatenate(own), np.concatenate(aim)
        return float(((own - aim) ** 2).sum() / ((aim - aim.mean(axis=0)) ** 2).sum())

    def means(states: Any, lengths: Any) -> Any:
        whole = [part.mean(axis=0) for part in np.split(states, np.cumsum(lengths)[:-1])]
        return whole / np.linalg.norm(whole, axis=1, keepdims=True)

    lengths = [texts.take(rows).lengths for texts, rows in sides]
    own, aim = ([side.numpy().astype(np.float64) for side in both] for both in (noisy, aims))
    texts = share(*([means(s, n) for s, n in zip(x, lengths, strict=True)] for x in (own, aim)))
    assert found == pytest.approx(share(own, aim) + 0.5 * texts, rel=1e-5)
    assert texts > 0.1


def headed(folder: Path) -> Any:
    """The toy model with both heads, of random weights."""
    base = toy.base(folder)
    torch.manual_seed(3)
    weight = torch.randn(base.backbone.dim).numpy()
    crf = LinearChainCRF(base.backbone.dim, 4).to_numpy()
    return replace(base, crf=crf, head=ImportanceHead(weight, 0.5))


def test_what_the_heads_make_of_their_layer_is_learned_too(folder: Path, tmp_path: Path) -> None:
    """The third part is the share left of importance before its softplus and of the CRF's scores,
    each by itself, and the teacher itself leaves nothing of it."""
    checkpoint.save(tmp_path / "teacher", headed(folder))
    teacher = f"loss.states.teacher={tmp_path / 'teacher'}"
    settings = config(tmp_path, *STATES, teacher, "loss.states.heads=0.5")
    student = make_student(headed(folder), settings, 2)
    data = toy.data(uneven(), student.checkpoint, settings, folder.parent)
    assert student.layer < student.depth
    targets = run.make_targets(student, data, settings, tmp_path, World())
    objective = Objective(student, data, settings, 2, World(), targets)
    batch = Batches(data, settings).at(0)
    plain = precision(settings, torch.device("cpu"))
    readers = [Reader(student, texts, None, 64, plain) for texts in (data.queries, data.documents)]
    rows_of = (batch.queries, batch.documents)
    encoded = [encode(reader, own) for reader, own in zip(readers, rows_of, strict=True)]
    assert float(objective(batch, encoded).detach()) < 1e-6
    torch.manual_seed(1)
    noisy = [(states, inner + torch.randn_like(inner)) for states, inner in encoded]
    found = float(objective(batch, noisy).detach())
    own, aim = (np.concatenate(made_by_heads(student, data, batch, s)) for s in (noisy, encoded))
    left = ((own - aim) ** 2).sum(axis=0) / ((aim - aim.mean(axis=0)) ** 2).sum(axis=0)
    assert left.shape == (4,)
    assert found == pytest.approx(0.5 * left.mean(), rel=1e-3)  # the teacher's are kept as float16


def made_by_heads(student: Student, data: Any, batch: Any, encoded: Any) -> list[Any]:
    """Importance before softplus and the CRF's scores of each token, by the heads of inference."""
    assert student.crf is not None
    head, crf, found = student.importance_head(), student.crf.to_numpy(), []
    assert head is not None
    for texts, rows, (_, inner) in zip(
        (data.queries, data.documents), (batch.queries, batch.documents), encoded, strict=True
    ):
        some = texts.take(rows)
        own = inner.detach().numpy()[some.inside()]
        raw = own.astype(np.float64) @ head.weight + head.bias
        found.append(np.column_stack([raw, emissions(crf, own, some.tokens.offsets)]))
    return found


def test_heads_that_differ_are_no_target(folder: Path, tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "teacher", replace(headed(folder), crf=None))
    teacher = f"loss.states.teacher={tmp_path / 'teacher'}"
    settings = config(tmp_path, *STATES, teacher, "loss.states.heads=1")
    student = make_student(headed(folder), settings, 2)
    data = toy.data(toy.groups(), student.checkpoint, settings, folder.parent)
    with pytest.raises(InputError, match=r"loss\.states\.heads: .* need the same heads"):
        run.make_targets(student, data, settings, tmp_path, World())


def test_a_teacher_of_states_has_to_fit(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"loss\.states needs a teacher"):
        config(tmp_path, *STATES)
    other = toy.encoder(tmp_path / "other", dim=16)
    settings = config(tmp_path, *STATES, f"loss.states.teacher={other}")
    student, data = begin(folder, settings)
    with pytest.raises(InputError, match="states of 16 numbers, the student of 32"):
        run.make_targets(student, data, settings, tmp_path, World())


def weights_after(folder: Path, settings: Config, out: Path, stage: int = 2) -> dict[str, bytes]:
    student, data = begin(folder, settings)
    train(student, data, settings, stage=stage, folder=out, cache=out.parent / "cache")
    return {n: p.detach().numpy().tobytes() for n, p in student.learning().items()}


@pytest.mark.parametrize("more", [(), ("loss.units.tau=0", "loss.global.tau=0")])
def test_a_killed_and_resumed_run_gives_equal_bytes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    """Measured temperatures are kept, too: those of the weights so far would be others."""
    settings = config(tmp_path, *CACHED, *more)
    whole = weights_after(folder, settings, tmp_path / "whole")
    kept = run.Log.write

    def stop_at_five(self: Any, row: dict[str, float]) -> None:
        kept(self, row)
        if row["step"] == 5:  # the last state is that of step 4
            with self.path.open("ab") as file:
                file.write(b'{"step": 6, "lo\x00\xff')  # what a crash may leave
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(run.Log, "write", stop_at_five)
        with pytest.raises(KeyboardInterrupt):
            weights_after(folder, settings, tmp_path / "killed")
    assert weights_after(folder, settings, tmp_path / "killed") == whole
    logs = [(tmp_path / name / "log.jsonl").read_text() for name in ("whole", "killed")]
    rows = [[{**json.loads(r), "seconds": 0} for r in log.splitlines()] for log in logs]
    assert rows[0] == rows[1]


def test_partitions_remembered_are_those_found_anew(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With frozen heads on stored states a text is divided once, and the weights are the same."""
    frozen = ('student.heads=["importance"]', "loss.segmentation.weight=0", "schedule.steps=9")
    settings = config(tmp_path, *CACHED, *frozen)
    found: list[int] = []
    kept = Student.begins

    def counted(self: Student, inner: Any, tokens: Any, noise: Any = None) -> Any:
        found.append(len(tokens))
        return kept(self, inner, tokens, noise)

    def with_crf() -> tuple[Student, Any]:
        torch.manual_seed(0)
        base = toy.base(folder)
        crf = LinearChainCRF(base.backbone.dim, 4).to_numpy()
        base = replace(base, crf=crf, recipe=replace(base.recipe, units="crf"))
        data = toy.data(toy.groups(), base, settings, tmp_path)
        return make_student(base, settings, 2), data

    monkeypatch.setattr(Student, "begins", counted)
    counts, weights = [], []
    for name in ("once", "anew"):
        if name == "anew":
            monkeypatch.setattr(Student, "divides_once", lambda _: False)
        found.clear()
        student, data = with_crf()
        train(student, data, settings, stage=2, folder=tmp_path / name, cache=tmp_path / "cache")
        counts.append(sum(found))
        weights.append({n: p.detach().numpy().tobytes() for n, p in student.learning().items()})
    assert weights[0] == weights[1]
    assert counts[0] <= len(data.queries) + len(data.documents) < counts[1]


def test_a_state_of_another_run_is_refused(folder: Path, tmp_path: Path) -> None:
    settings = config(tmp_path, "schedule.steps=2")
    weights_after(folder, settings, tmp_path / "run")
    with pytest.raises(InputError, match=r"other settings \(schedule\.steps was 2, is 3\)"):
        weights_after(folder, config(tmp_path, "schedule.steps=3"), tmp_path / "run")
    (tmp_path / "run" / state.STATE).write_bytes(b"rubbish")
    with pytest.raises(InputError, match="damaged"):
        weights_after(folder, settings, tmp_path / "run")


@pytest.mark.parametrize("mode", ["full", "lora"])
def test_a_saved_model_scores_as_torch_did(folder: Path, tmp_path: Path, mode: str) -> None:
    """Saved, loaded without torch and asked: every view within 1e-4 (LoRA merged = applied)."""
    if mode == "lora":
        pytest.importorskip("peft")
    settings = config(tmp_path, f"student.mode={mode}")
    student, data = begin(folder, settings)
    train(student, data, settings, stage=2, folder=tmp_path / "run", cache=tmp_path / "cache")
    rows = np.arange(6)
    with torch.no_grad():
        queries, documents = (
            side_of(student, texts.take(rows), *student(texts.take(rows)))
            for texts in (data.queries, data.documents)
        )
        expected = unit_scores(student, queries, documents, 4, 32).numpy()
        cosines = torch.cosine_similarity(queries.pooled[:, None], documents.pooled[None], dim=2)
    save_student(student, tmp_path / "out", name="toy")
    model = HPlus(tmp_path / "out")
    assert model.recipe.trained == ("crf", "importance", "encoder")
    assert "onnxruntime" in str(model.checkpoint.backbone.device)
    texts = list(data.documents.strings(rows))
    for row, query in enumerate(data.queries.strings(rows)):
        found = model.score(query, texts)
        np.testing.assert_allclose(found.phrase, expected[row], atol=1e-4)
        np.testing.assert_allclose(found.global_, cosines[row], atol=1e-4)


def test_boundaries_learn_from_retrieval(folder: Path, tmp_path: Path) -> None:
    """The label is a likely partition that keeps the tokens' scores at least as well as the CRF's
    own; only the CRF gets a gradient."""
    off = [f"loss.{head}.weight=0" for head in ("global", "token", "lexical", "units")]
    settings = config(
        tmp_path, *off, "loss.boundaries.weight=1", "loss.boundaries.noise=3",
        "loss.boundaries.budget=2", 'student.heads=["crf"]', "loss.segmentation.weight=0",
    )  # fmt: skip
    student, data = begin(folder, settings)
    batch = Batches(data, settings).at(0)
    queries, documents = (
        side_of(student, texts.take(rows), *student(texts.take(rows)))
        for texts, rows in ((data.queries, batch.queries), (data.documents, batch.documents))
    )
    found = likely_partitions(student, documents, settings.loss.boundaries, batch.draw)
    assert any((begins != found[0]).any() for begins in found[1:])
    objective = Objective(student, data, settings, 2, World())
    loss = objective.boundaries_loss(batch, queries, documents)
    torch.autograd.backward(loss)
    assert all(p.grad is not None for n, p in student.learning().items() if n.startswith("crf."))
    assert all(p.grad is None for n, p in student.learning().items() if n.startswith("enc"))
    aim = token_targets(queries, documents)
    errors = [
        (unit_scores(student, queries, documents, 2, 32, begins=b) - aim).square().mean(dim=0)
        for b in found
    ]
    assert (torch.stack(errors).amin(dim=0) <= errors[0]).all()


def test_a_lexical_head_of_its_own(folder: Path, tmp_path: Path) -> None:
    """Learned frequencies and idf: trained, saved, and scored as in torch."""
    settings = config(
        tmp_path, "loss.lexical.head=true",
        'student.heads=["crf", "importance", "lexical"]',
    )  # fmt: skip
    student, data = begin(folder, settings)
    head = student.lexical
    assert head is not None
    idf = head.table.detach().clone()
    train(student, data, settings, stage=2, folder=tmp_path / "run", cache=tmp_path / "cache")
    assert not torch.equal(head.table, idf)
    assert head.read.weight.any()
    rows = np.arange(6)
    parts: list[Any] = []
    with torch.no_grad():
        for texts in (data.queries, data.documents):
            side = side_of(student, texts.take(rows), *student(texts.take(rows)))
            ids = torch.from_numpy(side.texts.tokens.ids.astype(np.int64))
            weights = head.worth(ids) if texts is data.queries else head.counted(side.inner)
            parts += [padded(weights, side.offsets)[0], padded(ids, side.offsets)[0]]
        halves = torch.from_numpy(half_weight(np.diff(side.offsets)))
        expected = saturated_matrix(*parts, halves.float())
    save_student(student, tmp_path / "out", name="toy")
    model = HPlus(tmp_path / "out")
    assert model.recipe.lexical == "head"
    texts = list(data.documents.strings(rows))
    for row, query in enumerate(data.queries.strings(rows)):
        np.testing.assert_allclose(model.score(query, texts).lexical, expected[row], atol=1e-4)


def held_out(count: int = 30) -> RetrievalSet:
    rows = toy.groups(count, seed=99)
    texts = dict.fromkeys(text for row in rows for text in row.documents)
    documents = {text: f"d{i}" for i, text in enumerate(texts)}
    return RetrievalSet(
        list(documents.values()),
        list(documents),
        [f"q{i}" for i in range(count)],
        [row.query for row in rows],
        {f"q{i}": {documents[row.documents[0]]: 1} for i, row in enumerate(rows)},
    )


def test_both_stages_learn(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """stage1 then stage2: the loss falls, and held-out queries find their documents better."""
    monkeypatch.setattr(run, "dev_sets", lambda _: [("toy", held_out())])
    dev = ("schedule.validate_every=20", "dev.budgets=[2, 4]", "dev.widths=[16, 0]")
    common = ("batch.queries=12", *dev)
    first = config(tmp_path, "schedule.steps=40", "schedule.average=2", *common)
    student, data = begin(folder, first, toy.groups(96), stage=1)
    history = train(student, data, first, stage=1, folder=tmp_path / "1", cache=tmp_path)
    before, after = history.validations[0], history.validations[-1]
    assert after["global"] > before["global"] + 10
    save_student(student, tmp_path / "adapted", name="adapted")

    second = config(tmp_path, "schedule.steps=40", *common)
    base = toy.base(tmp_path / "adapted")
    learner = make_student(base, second, 2)
    data = toy.data(toy.groups(96), base, second, tmp_path)
    history = train(learner, data, second, stage=2, folder=tmp_path / "2", cache=tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "2" / "log.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in rows if "loss" in row]
    assert np.mean(losses[-5:]) < np.mean(losses[:5])
    assert history.validations[-1]["phrase"] > before["phrase"] + 10


def test_answers_are_never_negatives(folder: Path, tmp_path: Path) -> None:
    """A positive that two queries share is one column; another answer to a query is masked."""
    rows = [
        Group("a", "heart failure", ("acute heart failure",)),
        Group("a", "heart failure", ("chronic heart failure",)),
        Group("a", "kidney disease", ("chronic heart failure",)),
        Group("a", "insulin", ("insulin therapy",)),
    ]
    settings = config(tmp_path)
    _, data = begin(folder, settings, rows)
    batch = Batches(data, settings, stage=1).at(0)
    texts = data.documents.strings(batch.documents)
    assert sorted(texts) == ["acute heart failure", "chronic heart failure", "insulin therapy"]
    may = allowed(data, batch, batch.documents, batch.positive)
    for row, own in zip(batch.queries.tolist(), may, strict=True):
        answers = {g.documents[0] for g in rows if g.query == rows[row].query}
        against = {text for text, free in zip(texts, own, strict=True) if free}
        assert against == (set(texts) - answers) | {rows[row].documents[0]}


def test_two_processes_equal_one_with_the_whole_batch(folder: Path, tmp_path: Path) -> None:
    """Cross-device negatives of the global head, over gloo; and both stop early at the same step,
    though the first alone validates."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    workers = subprocess.Popen(
        [sys.executable, __file__, str(folder), str(tmp_path)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
        },
        start_new_session=True,
    )
    alone = [_one_step(folder, tmp_path, World(), queries=8, stage=stage) for stage in (1, 2)]
    settings = config(tmp_path, "batch.queries=8", "data.documents=4")
    whole = Batches(begin(folder, settings, _shared())[1], settings).at(0)
    one, two = (set(part_of(whole, process, 2).documents.tolist()) for process in (0, 1))
    assert one & two
    assert len(one) < len(two)  # so that what fills the first up would stand before the second
    try:
        assert workers.wait(timeout=120) == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(workers.pid, signal.SIGKILL)  # both
    for stage, own in zip((1, 2), alone, strict=True):
        together = state.read_weights(tmp_path / f"together-{stage}.safetensors")
        assert together.keys() == own.keys()
        for name, gradient in own.items():
            torch.testing.assert_close(together[name], gradient, rtol=1e-4, atol=1e-6, msg=name)
    assert [(tmp_path / f"stopped-{rank}").read_text() for rank in range(2)] == ["2", "2"]


def _shared() -> list[Group]:
    """Eight queries with a negative in common, in groups of two to four."""
    rows = toy.groups(8, seed=1)
    common = toy.groups(1, seed=2)[0].documents[0]
    return [
        replace(
            row,
            documents=(row.documents[0], common, *row.documents[2:])[: 2 + i % 3],
            scores=(row.scores or ())[: 2 + i % 3],
        )
        for i, row in enumerate(rows)
    ]


def _one_step(folder: Path, place: Path, world: World, queries: int, stage: int) -> dict[str, Any]:
    """Gradients of the global head on the first batch, averaged over the processes."""
    from hplus.train import distributed

    path = place / f"{world.process}-{world.processes}"
    path.mkdir(exist_ok=True)
    off = [f"loss.{head}.weight=0" for head in ("token", "lexical", "units", "segmentation")]
    off += ["student.heads=[]", "data.documents=4"]
    settings = config(path, f"batch.queries={queries}", *off)
    student, data = begin(folder, settings, _shared(), stage=stage)
    batches = Batches(data, settings, processes=world.processes, stage=stage)
    batch = part_of(batches.at(0), world.process, world.processes)
    readers = [
        Reader(student, texts, None, 64, precision(settings, torch.device("cpu")))
        for texts in (data.queries, data.documents)
    ]
    objective = Objective(student, data, settings, stage, world)
    backward(readers, [batch.queries, batch.documents], lambda encoded: objective(batch, encoded))
    distributed.average_gradients(student.learning().values(), world)
    return {n: p.grad for n, p in student.learning().items() if p.grad is not None}


def _stop_early(folder: Path, place: Path, world: World) -> None:
    """Stage 1 without any gain: over after the first validation, whose texts and their stored
    states the first process alone reads."""
    run.dev_sets = lambda _: [("toy", held_out(5))]
    run.validate = lambda *_: {"phrase": 50.0}
    path = place / f"{world.process}-{world.processes}"
    top = ("student.mode=top", "student.layers=1", "student.cached=true")
    settings = config(path, "schedule.validate_every=2", "schedule.patience=1", *top)
    student, data = begin(folder, settings, stage=1)
    work = place / "work"
    history = train(student, data, settings, stage=1, folder=work, cache=place, world=world)
    (place / f"stopped-{world.process}").write_text(str(history.step))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("student.mode=heads", *STATES), "nothing would learn in stage 2: student.mode is 'heads"),
        ((*STATES, "loss.states.weight=0"), "no loss is on; give one or more"),
        (('student.heads=["importance"]',), r"loss\.segmentation needs a CRF: name crf under"),
        (
            (
                'student.heads=["importance"]',
                "loss.segmentation.weight=0",
                "loss.boundaries.weight=1",
            ),
            r"loss\.boundaries needs a CRF: name crf under",
        ),
    ],
)
def test_a_run_without_a_purpose_is_one_sentence(
    folder: Path, tmp_path: Path, changes: tuple[str, ...], message: str
) -> None:
    settings = config(tmp_path, f"loss.states.teacher={folder}", *changes)
    student, data = begin(folder, settings)
    with pytest.raises(InputError, match=message):
        train(student, data, settings, stage=2, folder=tmp_path / "run", cache=tmp_path)


def test_states_are_stored_for_bert_alone(folder: Path, tmp_path: Path) -> None:
    """The layers of MPNet look the same and would run without their position bias."""
    base = toy.base(folder)
    base.backbone.model.config.model_type = "mpnet"
    with pytest.raises(InputError, match=r"student\.cached serves .* alone, this one is mpnet"):
        make_student(base, config(tmp_path, *CACHED), 2)
    student, _ = begin(folder, config(tmp_path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "load", lambda *_, **__: base)
        with pytest.raises(InputError, match=r"teacher serves .* alone, this one is mpnet"):
            make_teacher("mpnet", student)


def test_an_encoder_that_did_not_learn_is_not_called_trained(folder: Path, tmp_path: Path) -> None:
    student, _ = begin(folder, config(tmp_path, "student.mode=heads"))
    save_student(student, tmp_path / "out", name="toy")
    assert HPlus(tmp_path / "out").recipe.trained == ("crf", "importance")


def test_alarms(folder: Path, tmp_path: Path) -> None:
    settings = config(tmp_path, "schedule.steps=3", "loss.segmentation.weight=0")
    student, data = begin(folder, settings)
    with pytest.raises(InputError, match=r"have not moved, the first is crf\."):
        train(student, data, settings, stage=2, folder=tmp_path / "a", cache=tmp_path)
    settings = config(tmp_path, "schedule.steps=3")
    student, data = begin(folder, settings)
    with torch.no_grad():
        student.encoder.encoder.layer[0].output.dense.weight[0, 0] = torch.nan
    with pytest.raises(InputError, match="not a finite number at step 1"):
        train(student, data, settings, stage=2, folder=tmp_path / "b", cache=tmp_path)
    still = run.fingerprint(student)
    with torch.no_grad():
        next(p for _, p in student.still()).add_(1.0)
    with pytest.raises(InputError, match="a frozen parameter moved"):
        run.require_stillness(student, still)


def test_a_frozen_parameter_that_moves_stops_the_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(tmp_path, "schedule.steps=3", *CACHED)
    student, data = begin(folder, settings)
    _, frozen = next(student.still())
    kept = torch.optim.AdamW.step

    def careless(self: Any) -> None:
        kept(self)
        frozen.data.add_(1e-6)

    monkeypatch.setattr(torch.optim.AdamW, "step", careless)
    with pytest.raises(InputError, match="a frozen parameter moved"):
        train(student, data, settings, stage=2, folder=tmp_path / "run", cache=tmp_path)


def test_gradients_are_clipped(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(tmp_path, "schedule.steps=2", "schedule.clip=0.01")
    student, data = begin(folder, settings)
    norms: list[float] = []
    kept = torch.optim.AdamW.step

    def measured(self: Any) -> None:
        found = [p.grad.norm() for p in student.learning().values() if p.grad is not None]
        norms.append(float(torch.stack(found).norm()))
        kept(self)

    monkeypatch.setattr(torch.optim.AdamW, "step", measured)
    train(student, data, settings, stage=2, folder=tmp_path / "run", cache=tmp_path)
    assert norms == [pytest.approx(0.01, rel=1e-3)] * 2


@pytest.mark.parametrize(
    ("start", "average", "mean", "by"),
    [
        (30.0, 1, 0.0, "phrase"),
        (99.0, 1, 0.0, "phrase"),
        (30.0, 2, 40.0, "phrase"),
        (30.0, 2, 60.0, "phrase"),
        (30.0, 2, 60.0, "lexical"),
    ],
)
def test_the_best_validated_weights_are_kept_or_their_mean(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    start: float,
    average: int,
    mean: float,
    by: str,
) -> None:
    """Validated after 2, 4 and 6 steps at 55, 50 and 45, and at last the mean, if there is one;
    other metrics rise and decide nothing, nor does the start, which is not a result."""
    settings = config(
        tmp_path, "schedule.validate_every=2", f"schedule.average={average}", f"dev.by={by}"
    )
    others = itertools.count(40.0, 5.0)
    values = iter([start, 55.0, 50.0, 45.0, mean])
    monkeypatch.setattr(run, "dev_sets", lambda _: [("toy", held_out(5))])
    monkeypatch.setattr(
        run,
        "validate",
        lambda *_: {"phrase": next(others), "lexical": next(others), by: next(values)},
    )
    student, data = begin(folder, settings)
    train(student, data, settings, stage=2, folder=tmp_path / "run", cache=tmp_path)
    steps = (2, 4) if mean > 55 else (2,)
    kept = [state.read_weights(state.best_file(tmp_path / "run", step)) for step in steps]
    for name, parameter in student.learning().items():
        expected = torch.stack([own[name] for own in kept]).mean(0)
        assert torch.equal(parameter.detach(), expected), name


def test_validation_is_the_metric_of_the_product(folder: Path, tmp_path: Path) -> None:
    """The phrase metric of an untrained student is what its saved model gets."""
    settings = config(tmp_path, "dev.budgets=[3]", "dev.widths=[16]")
    student, _ = begin(folder, settings)
    data = held_out()
    reader = run.make_reader(student, settings, tmp_path, World())
    recipe, backbone = student.checkpoint.recipe, student.backbone
    pool = validation.Pool(
        "toy",
        data,
        *(
            reader(validation_texts(texts, backbone, recipe, side), side)
            for texts, side in ((data.queries, "query"), (data.documents, "document"))
        ),
    )
    found = validation.validate(student, [pool], settings.dev)
    save_student(student, tmp_path / "out", name="toy")
    model = HPlus(tmp_path / "out")
    queries = model.encode_query(data.queries, width=16)
    documents = model.encode_document(data.documents, budget=3, width=16)
    from hplus.evaluate import rescore

    scores = rescore.maxsim(queries.units, documents.units)
    expected = 100 * validation.ndcg10(data, scores).mean()
    assert found["3x16"] == pytest.approx(expected, abs=1e-6)
    assert found["phrase"] == pytest.approx(expected, abs=1e-6)  # the one cell, no other view


def validation_texts(texts: Any, backbone: Any, recipe: Any, side: Any) -> Any:
    from hplus.train.texts import read_texts

    return read_texts(texts, backbone, recipe, side, 32)


if __name__ == "__main__":
    from hplus.train import distributed

    torch.set_num_threads(1)
    # Two processes of one: what is imported, most of the time, is imported once.
    second = os.fork()
    os.environ["RANK"] = "0" if second else "1"
    here = distributed.join()
    for number in (1, 2):
        found = _one_step(Path(sys.argv[1]), Path(sys.argv[2]), here, queries=4, stage=number)
        if here.first:
            state.write_weights(Path(sys.argv[2]) / f"together-{number}.safetensors", found)
    _stop_early(Path(sys.argv[1]), Path(sys.argv[2]), here)
    distributed.leave()
    # The gradients are tested, not torch's exit, at which a thread of gloo may still hold a tensor
    # and abort the process when the interpreter has gone (pytorch/pytorch#190489).
    os._exit(os.waitstatus_to_exitcode(os.waitpid(second, 0)[1]) if second else 0)
