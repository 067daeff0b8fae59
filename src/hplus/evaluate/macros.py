"""Means over tasks, every task weighing the same, and the groups of tasks they are taken over.

A task that did not run is missing, never zero: `macro` refuses to take a mean over fewer tasks
than were asked for, and says which are lacking.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from hplus.errors import InputError

_CJK = ("zh", "ja", "ko")


@dataclass(frozen=True)
class Task:
    """What is known of a task by its name. language: two letters, as in "en"."""

    language: str


def _tasks(language: str, *names: str) -> dict[str, Task]:
    return {name: Task(language) for name in names}


TASKS: dict[str, Task] = {
    # Folders of sets in BEIR layout.
    **_tasks("en", "scifact", "nfcorpus", "feedbackqa", "medicalqa", "medicalqa-dev", "mediqa-qa"),
    **_tasks("en", "mqp", "patientqa", "covidqa-passages", "cranfield", "cisi", "npl-vaswani"),
    **_tasks("zh", "cmdd-zh", "xquad-zh", "cmrc2018-zh"),
    **_tasks("en", "demo-en"),
    **_tasks("zh", "demo-zh"),
    # The paper's 16 tasks, by the names of tab:main_results.
    **_tasks("en", "NFCorpus", "SciFact", "MedicalQA", "ChatDoctor", "FeedbackQA"),
    **_tasks("en", "R2MED-Bioinformatics", "R2MED-Biology", "R2MED-IIYi", "R2MED-MedQADiag"),
    **_tasks("en", "R2MED-MedXpert", "R2MED-MedicalSciences", "R2MED-PMCClinical"),
    **_tasks("en", "R2MED-PMCTreatment"),
    **_tasks("zh", "MedicalRetrieval-zh", "Covid-zh", "Cmedqa-zh"),
    # The three that its 19-task suite adds.
    **_tasks("en", "CUREv1", "PublicHealthQA-en"),
    **_tasks("zh", "PublicHealthQA-zh"),
}


def groups(
    names: Sequence[str], seen: Collection[str], *, languages: Mapping[str, str] | None = None
) -> dict[str, list[str]]:
    """The macros that these tasks allow: name of the macro -> its tasks, in the order given.

    "all"; "sensitivity", without the tasks in `seen`, whose data the checkpoint was trained on;
    "english"; "chinese"; "non-cjk". A group without tasks is absent. `languages` names the
    languages of tasks that `TASKS` does not know.

    >>> groups(["scifact", "cmdd-zh"], seen=["scifact"])["sensitivity"]
    ['cmdd-zh']
    """
    _check(names)
    spoken = {name: task.language for name, task in TASKS.items()} | dict(languages or {})
    if unknown := [name for name in names if name not in spoken]:
        raise InputError(
            f"the language of {unknown} is not known; "
            f"give it, for instance languages={{{unknown[0]!r}: 'en'}}"
        )
    # A name that is misspelt here would let a task pass for unseen.
    if strange := [name for name in seen if name not in spoken]:
        raise InputError(f"seen names {strange}, which are no tasks; names count letter by letter")
    found = {
        "all": list(names),
        "sensitivity": [name for name in names if name not in seen],
        "english": [name for name in names if spoken[name] == "en"],
        "chinese": [name for name in names if spoken[name] == "zh"],
        "non-cjk": [name for name in names if spoken[name] not in _CJK],
    }
    return {macro: tasks for macro, tasks in found.items() if tasks}


def macro(values: Mapping[str, float], names: Sequence[str]) -> float:
    """The mean of the values of these tasks; every one of them must be there.

    >>> macro({"scifact": 0.75, "nfcorpus": 0.25, "cisi": 0.5}, ["scifact", "nfcorpus"])
    0.5
    """
    _check(names)
    if not names:
        raise InputError("a macro needs at least one task, but none was named")
    if missing := [name for name in names if name not in values]:
        raise InputError(
            f"a macro over {len(names)} tasks was asked for, but {len(missing)} did not run: "
            f"{missing}; run them, or ask for the macro of those that did"
        )
    for name in names:
        if not math.isfinite(values[name]):
            raise InputError(f"task {name!r} has the value {values[name]}; a macro needs numbers")
    return math.fsum(values[name] for name in names) / len(names)


def _check(names: Sequence[str]) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"tasks named more than once: {twice}; each counts once in a macro")
