"""The configuration of a two-stage run: one TOML, every number in it, nothing elsewhere.

    hplus train stage2 small-v2.toml --out small-v2 --set loss.units.weight=0

Paths are relative to where the command is run. What a file leaves out has the value given here;
an unknown name is an error, so that a misspelt one never passes for a setting.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hplus.errors import InputError
from hplus.files import read_bytes

Mode = Literal["full", "lora", "top", "heads"]
Precision = Literal["auto", "float32", "bfloat16"]
MOST_BYTES = 2**20


@dataclass(frozen=True)
class StudentSettings:
    """start: a checkpoint, an encoder folder or a hub id. mode: all weights, adapters, the top
    `layers` alone, or the heads on a frozen encoder. layers: how many of the top layers learn; 0
    all. cached: the states below them are computed once and kept on disk, which is four times as
    fast on a CPU; for BERT alone. heads: which heads learn besides the encoder. rank: of adapters.
    projection: width of the paper's token projection. checkpointing: passes keep less and are
    computed again for the gradient."""

    start: str = "mini"
    mode: Mode = "full"
    layers: int = 0
    cached: bool = False
    rank: int = 16
    heads: tuple[str, ...] = ("crf", "importance")
    projection: int = 128
    checkpointing: bool = False


@dataclass(frozen=True)
class DataSettings:
    """groups: files of `hplus teach scores`. labels: files of `hplus teach labels`, for queries
    and positives. documents: of each query in a batch, the positive included. Lengths are in
    tokens, special ones included. sources: how often a source is read in an epoch; 1 if not named.
    apart_from: folders of evaluation sets whose near duplicates are left out."""

    groups: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    documents: int = 8
    query_length: int = 48
    document_length: int = 160
    sources: dict[str, float] = field(default_factory=dict)
    apart_from: tuple[str, ...] = ()


@dataclass(frozen=True)
class BatchSettings:
    """queries: of a batch, on each process. chunk: tokens of one pass, padding included.
    gradient_cache: encode twice instead of keeping every pass in memory."""

    queries: int = 16
    chunk: int = 4096
    gradient_cache: bool = False


@dataclass(frozen=True)
class ScheduleSettings:
    """steps: batches in all. Rates rise over the first `warmup` of them and fall along a cosine to
    a tenth. patience: validations without a better one before training stops, 0 never. average:
    the final weights are the mean of this many of the best validated ones, if that is better."""

    steps: int = 1000
    learning_rate: float = 2e-5
    head_learning_rate: float = 1e-3
    warmup: float = 0.05
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 13
    precision: Precision = "auto"
    validate_every: int = 200
    save_every: int = 50
    patience: int = 0
    average: int = 1
    tensorboard: bool = False


@dataclass(frozen=True)
class HeadLoss:
    """One retrieval head: weight is the paper's lambda; tau 0 is measured at the start of the run
    (`hplus.train.temperature`); nce and distillation weigh the two parts of
    eq:retrieval_head_loss. in_batch: other queries' documents are negatives, too. min_max: the
    student's scores are brought to [0, 1] in each group before the divergence."""

    weight: float = 0.0
    tau: float = 0.05
    nce: float = 1.0
    distillation: float = 1.0
    in_batch: bool = True
    min_max: bool = False


@dataclass(frozen=True)
class GlobalLoss(HeadLoss):
    """widths: R of eq:stage1; empty: the full width alone."""

    widths: tuple[int, ...] = ()


@dataclass(frozen=True)
class LexicalLoss(HeadLoss):
    """repeats: importances of a token id are summed, as in the paper, or their maximum counts. log:
    scores on a logarithmic scale, for which one tau fits queries of any length. head: BM25 with
    learned frequencies and idf instead of the importance (`hplus.heads.lexical`), for which repeats
    and log do not matter; name "lexical" under student.heads, too."""

    repeats: Literal["sum", "max"] = "sum"
    log: bool = False
    head: bool = False


@dataclass(frozen=True)
class UnitsLoss(HeadLoss):
    """The unit-aware interaction: a budget and a width are drawn for each batch, or several of both
    (draws), since scores cost little beside the states they are made of; 0 is all units, or the
    full width. query: what the query side consists of."""

    budgets: tuple[int, ...] = (8, 16, 32, 0)
    widths: tuple[int, ...] = (64, 128, 0)
    draws: int = 1
    query: Literal["units", "tokens"] = "units"


@dataclass(frozen=True)
class SegmentationLoss:
    """weight: lambda_seg of eq:stage2_loss."""

    weight: float = 0.0


@dataclass(frozen=True)
class BoundariesLoss:
    """Retrieval-driven units: of `candidates` partitions of each document that the CRF finds
    likely, the one whose merged vectors best keep the scores of all tokens is its label."""

    weight: float = 0.0
    candidates: int = 4
    noise: float = 1.0
    budget: int = 16


@dataclass(frozen=True)
class StatesLoss:
    """The squared distance of the student's token states from those of `teacher`, a checkpoint
    with the same tokenizer and dimension. texts: the weight of that of the global vectors beside
    it, since small errors of states add up where they point the same way in all of a text. heads:
    the weight of that of what the heads make of their layer, importance before its softplus and
    the CRF's scores: units and importance stay the teacher's where those layers learn, too."""

    weight: float = 0.0
    teacher: str = ""
    texts: float = 0.0
    heads: float = 0.0


@dataclass(frozen=True)
class LossSettings:
    """Lambda and tau of every head: eq:stage2_loss. Stage 1 reads `global` alone."""

    global_: GlobalLoss = field(default_factory=GlobalLoss)
    token: HeadLoss = field(default_factory=HeadLoss)
    lexical: LexicalLoss = field(default_factory=LexicalLoss)
    units: UnitsLoss = field(default_factory=UnitsLoss)
    segmentation: SegmentationLoss = field(default_factory=SegmentationLoss)
    boundaries: BoundariesLoss = field(default_factory=BoundariesLoss)
    states: StatesLoss = field(default_factory=StatesLoss)


@dataclass(frozen=True)
class DevSettings:
    """sets: BEIR folders with their split, "folder:dev". Of each, `queries` are drawn, and
    documents up to `documents`, the relevant ones among them. budgets and widths: what the phrase
    metric is taken at, as their mean. by: the metric that decides which weights are kept."""

    sets: tuple[str, ...] = ()
    queries: int = 100
    documents: int = 600
    length: int = 160
    budgets: tuple[int, ...] = (16, 32)
    widths: tuple[int, ...] = (128, 0)
    by: Literal["phrase", "tokens", "global", "lexical"] = "phrase"


@dataclass(frozen=True)
class Config:
    """All of a run."""

    student: StudentSettings = field(default_factory=StudentSettings)
    data: DataSettings = field(default_factory=DataSettings)
    batch: BatchSettings = field(default_factory=BatchSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    loss: LossSettings = field(default_factory=LossSettings)
    dev: DevSettings = field(default_factory=DevSettings)


def read_config(path: Path, changes: Sequence[str] = ()) -> Config:
    """A TOML file, with `section.name=value` changes applied to it."""
    try:
        table = tomllib.loads(read_bytes(path, MOST_BYTES, InputError).decode())
    except FileNotFoundError:
        raise InputError(f"{path} is missing; expected a TOML file of settings") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}") from None
    for change in changes:
        _change(table, change)
    config: Config = _build(Config, table, str(path))
    _check(config, path)
    return config


def as_table(config: Config) -> dict[str, Any]:
    """As plain JSON, for logs and checkpoints."""
    return dataclasses.asdict(config)


def _change(table: dict[str, Any], change: str) -> None:
    name, equals, value = change.partition("=")
    *sections, key = name.strip().split(".")
    if not equals or not key:
        raise InputError(f"expected section.name=value, got {change!r}")
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise InputError(f"{change!r}: {section} is not a section")
    try:
        table[key] = tomllib.loads(f"x = {value}")["x"]
    except tomllib.TOMLDecodeError:
        table[key] = value.strip()


def _build(kind: Any, table: Any, where: str) -> Any:
    if not isinstance(table, dict):
        raise InputError(f"{where}: expected a table, got {table!r}")
    hints = get_type_hints(kind)
    names = {name.rstrip("_"): name for name in hints}
    unknown = sorted(set(table) - set(names))
    if unknown:
        raise InputError(
            f"{where}: unknown setting {unknown[0]!r}; known: {', '.join(sorted(names))}"
        )
    return kind(
        **{names[n]: _value(hints[names[n]], value, f"{where}: {n}") for n, value in table.items()}
    )


def _value(kind: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _build(kind, value, where)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        if value not in inner:
            raise InputError(f"{where}: expected one of {', '.join(inner)}, got {value!r}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise InputError(f"{where}: expected a list, got {value!r}")
        return tuple(_value(inner[0], item, where) for item in value)
    if origin is dict:
        if not isinstance(value, dict):
            raise InputError(f"{where}: expected a table, got {value!r}")
        return {name: _value(inner[1], item, f"{where}.{name}") for name, item in value.items()}
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise InputError(f"{where}: expected {kind.__name__}, got {value!r}")
    return value


def _check(config: Config, path: Path) -> None:
    """Refuse numbers that make no sense, before hours are spent on them."""
    wrong = [
        (config.batch.queries < 1, "batch.queries must be 1 or more"),
        (config.data.documents < 1, "data.documents must be 1 or more"),
        (config.schedule.steps < 1, "schedule.steps must be 1 or more"),
        (config.schedule.learning_rate <= 0, "schedule.learning_rate must be above 0"),
        (config.schedule.head_learning_rate <= 0, "schedule.head_learning_rate must be above 0"),
        (config.schedule.clip <= 0, "schedule.clip must be above 0"),
        (config.schedule.validate_every < 1, "schedule.validate_every must be 1 or more"),
        (config.schedule.save_every < 1, "schedule.save_every must be 1 or more"),
        (config.schedule.patience < 0, "schedule.patience must be 0 (never) or more"),
        (config.schedule.seed < 0, "schedule.seed must be 0 or more"),
        (config.loss.units.draws < 1, "loss.units.draws must be 1 or more"),
        (not 0 <= config.schedule.warmup <= 1, "schedule.warmup is a share, 0 to 1"),
        (config.student.mode == "top" and not config.student.layers, "mode top needs layers"),
        (
            config.loss.lexical.head and "lexical" not in config.student.heads,
            "loss.lexical.head needs lexical under student.heads",
        ),
        (
            config.student.cached and config.student.mode != "heads" and not config.student.layers,
            "cached needs layers above 0",
        ),
        (
            config.loss.states.weight > 0 and not config.loss.states.teacher,
            "loss.states needs a teacher, a checkpoint",
        ),
        (
            bool(set(config.student.heads) - {"crf", "importance", "lexical"}),
            "student.heads may name crf, importance and lexical",
        ),
        (
            min(min(h.tau, h.weight) for h in _heads(config)) < 0,
            "tau must be above 0, or 0 to have it measured, and weight 0 or more",
        ),
        (min(config.data.sources.values(), default=0) < 0, "data.sources must be 0 or more"),
        *(
            (not numbers or min(numbers) < 0, f"{name} needs numbers of 0 or more")
            for name, numbers in (
                ("loss.units.budgets", config.loss.units.budgets),
                ("loss.units.widths", config.loss.units.widths),
                ("dev.budgets", config.dev.budgets),
                ("dev.widths", config.dev.widths),
            )
        ),
    ]
    for is_wrong, what in wrong:
        if is_wrong:
            raise InputError(f"{path}: {what}")


def _heads(config: Config) -> list[HeadLoss]:
    loss = config.loss
    return [loss.global_, loss.token, loss.lexical, loss.units]
