"""Which figures of the paper stand beside which of our lines.

`Protocol.paper` names a table by its LaTeX label. Its rows and columns bear the paper's words,
our lines bear those of `experiments.py`; here, and only here, one is said to be the other. The
paper's model is another (Qwen3-Embedding-0.6B), so figures stand beside ours and are never mixed
with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hplus.evaluate import paper
from hplus.evaluate.paper import Table
from hplus.evaluate.protocol import Contrast

# Rules of the exact-count tables, and ours.
_RULES = {
    "Token": "tokens",
    "Whole word": "whitespace",
    "Fixed bigram": "ngrams-2",
    "Equal chunks": "chunks",
    "Random spans": "random",
    "Phrase": "model",
    "Length-histogram random": "histogram",
    "Within-text shuffle": "shuffled",
}
_ABLATIONS = {
    "Phrase query: sum vs. uniform": ("model, sum", "model, query uniform"),
    "Token query: sum vs. uniform": ("tokens, sum", "tokens, query uniform"),
    "Uniform query: Phrase vs. Token": ("model, query uniform", "tokens, query uniform"),
    "Phrase selection: sum vs. mean": ("model, sum", "model, selection mean"),
    "Phrase selection: sum vs. max": ("model, sum", "model, selection max"),
}
# Sets drawn anew from the source of the task of that name; the paper's own bears its capitals.
_OWN_SAMPLES = ("medicalqa", "medicalqa-dev")
_LOCAL = ("token", "phrase")
_SYSTEMS = {
    "H+ Embedding MRL Token": "token",
    "H+ Embedding MRL Phrase (CRF-only)": "phrase",
}


@dataclass(frozen=True)
class Delta:
    """A difference in points of 100, with its 95 % interval where the paper prints one."""

    points: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        spread = "" if self.low is None else f" [{self.low:.2f}, {self.high:.2f}]"
        return f"{self.points:+.2f}{spread}"

    @property
    def open(self) -> bool:
        """Whether zero is in the interval."""
        return self.low is not None and self.high is not None and self.low <= 0 <= self.high


@dataclass(frozen=True)
class Printed:
    """A table in the words of our lines; points of 100. by_task: line -> task -> value. macros:
    line -> mean over all `tasks`. differences: (ours, theirs) -> over all `tasks`. family: the
    contrasts it was planned for."""

    label: str
    tasks: tuple[str, ...]
    by_task: dict[str, dict[str, float]] = field(default_factory=dict)
    macros: dict[str, float] = field(default_factory=dict)
    differences: dict[tuple[str, str], Delta] = field(default_factory=dict)
    family: str = ""

    def difference(self, contrast: Contrast) -> Delta | None:
        """The paper's ours - theirs, where it has both lines or prints their difference."""
        sides = (contrast.ours, contrast.theirs)
        if sides in self.differences:
            return self.differences[sides]
        if not all(side in self.macros for side in sides):
            return None
        return Delta(round(self.macros[contrast.ours] - self.macros[contrast.theirs], 2))


def printed(label: str, *, cjk: bool) -> list[Printed]:
    """What the paper prints for the table a protocol names, the nearest first; cjk: whether our
    tasks have texts without spaces, which the exact-count tables with them suit better.

    >>> print(printed("tab:main_results", cjk=False)[0].difference(Contrast("phrase", "global")))
    +6.91
    """
    if label == "tab:budget_transfer":
        # The same sweep without those texts and with all rules, and the controls of boundaries.
        return [
            *([] if cjk else [_exact_count(paper.table("tab:lowbudget_en15"))]),
            _transfers(paper.table(f"{label}:b")),
            _exact_count(paper.table("tab:lowbudget_full19")),
            _boundary_controls(paper.table("tab:boundary_controls_full")),
        ]
    readers: Mapping[str, Callable[[Table], Printed]] = {
        "tab:main_results": _views,
        "tab:candidate_sensitivity": _pools,
        "tab:fusion": _fusion,
        "tab:dimension_full19": _widths,
        "tab:shared_pool_external": _shared_pool,
        "tab:projection_details": _projection,
    }
    if label == "tab:mechanism_analysis":
        return [_ablations(paper.table(f"{label}:b"))]
    return [readers[label](paper.table(label))] if label in readers else []


def same_task(ours: str, theirs: str) -> bool:
    """Whether our set is the paper's task: the same name, but for its capitals where the set is
    not another sample of the same source."""
    return ours == theirs or (ours.casefold() == theirs.casefold() and ours not in _OWN_SAMPLES)


def _views(table: Table) -> Printed:
    views = ("global", "phrase", "hybrid", "lexical")
    everything = next(row for row in table.summary if row["task"] == "all")
    return Printed(
        table.label,
        tuple(table.tasks),
        {view: table.by_task(view) for view in views},
        {view: everything[view] for view in views},
    )


def _pools(table: Table) -> Printed:
    macros = {f"{view} {row['pool']}": row[view] for row in table.rows for view in _LOCAL}
    return Printed(table.label, tuple(table.tasks), macros=macros)


def _fusion(table: Table) -> Printed:
    macros = {row["views"]: row["ndcg@10"] for row in table.rows}
    return Printed(table.label, tuple(table.tasks), macros=macros)


def _widths(table: Table) -> Printed:
    """Its full width is 1,024; ours is the model's own."""
    macros: dict[str, float] = {}
    differences = {}
    for row in table.rows:
        gate = "" if row["view"] == "global" else ", own gate"
        narrow, full = f"{row['view']} 128{gate}", f"{row['view']} full{gate}"
        macros |= {narrow: row["width_128"], full: row["width_1024"]}
        differences[full, narrow] = _delta(row)
    return Printed(table.label, tuple(table.tasks), macros=macros, differences=differences)


def _shared_pool(table: Table) -> Printed:
    rows = {_SYSTEMS[row["system"]]: row for row in table.rows if row["system"] in _SYSTEMS}
    return Printed(
        table.label,
        tuple(table.tasks),
        {line: {task: row[task] for task in table.tasks} for line, row in rows.items()},
        {line: row["macro"] for line, row in rows.items()},
    )


def _exact_count(table: Table) -> Printed:
    macros = {
        f"{_RULES[row['unit']]}, joint {budget}": value
        for row in table.rows
        for budget, value in row.items()
        if budget != "unit"
    }
    return Printed(table.label, tuple(table.tasks), macros=macros)


def _transfers(table: Table) -> Printed:
    names = {
        "tokens": "phrase_minus_token",
        "ngrams-2": "phrase_minus_bigram",
        "random": "phrase_minus_random",
    }
    differences = {
        _joint(rule, row["budget"]): _delta(row, name)
        for row in table.rows
        for rule, name in names.items()
    }
    return Printed(table.label, tuple(table.tasks), differences=differences)


def _boundary_controls(table: Table) -> Printed:
    differences = {_joint(_RULES[row["control"]], row["budget"]): _delta(row) for row in table.rows}
    tasks = tuple(table.tasks)
    return Printed(table.label, tasks, differences=differences, family="boundary placement")


def _joint(rule: str, budget: int) -> tuple[str, str]:
    return f"model, joint {budget}", f"{rule}, joint {budget}"


def _ablations(table: Table) -> Printed:
    differences = {_ABLATIONS[row["contrast"]]: _delta(row) for row in table.rows}
    return Printed(table.label, tuple(table.tasks), differences=differences)


def _projection(table: Table) -> Printed:
    macros: dict[str, float] = {}
    differences = {}
    for row in table.rows:
        budget = row["budget"]
        phrase, token = f"model, projected {budget}", f"tokens, projected {budget}"
        macros |= {phrase: row["projected_phrase"], token: row["projected_token"]}
        for sides, name, bounds in (
            ((f"model, raw {budget}", f"tokens, raw {budget}"), "raw_phrase_minus_token", "raw"),
            ((phrase, token), "projected_phrase_minus_token", "projected_token"),
            ((phrase, f"ngrams-2, projected {budget}"), "projected_phrase_minus_bigram",
             "projected_bigram"),
        ):  # fmt: skip
            differences[sides] = Delta(row[name], row[f"{bounds}_low"], row[f"{bounds}_high"])
    return Printed(table.label, tuple(table.tasks), macros=macros, differences=differences)


def _delta(row: Mapping[str, float], name: str = "") -> Delta:
    """From the columns of a difference; those of several have their name before."""
    if not name:
        return Delta(row["difference"], row["low"], row["high"])
    return Delta(row[name], row[f"{name}_low"], row[f"{name}_high"])
