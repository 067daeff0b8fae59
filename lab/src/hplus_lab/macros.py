"""Means over tasks, every task weighing the same, and the groups of tasks they are taken over.

A task that did not run is missing, never zero: `macro` refuses to take a mean over fewer tasks
than were requested, and says which are missing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from hplus.errors import InputError

_CJK = ("zh", "ja", "ko")


_LANGUAGES = {
    "en": [
        # Folders of sets in BEIR layout.
        *("scifact", "nfcorpus", "feedbackqa", "medicalqa", "medicalqa-dev", "mediqa-qa", "mqp"),
        *("patientqa", "covidqa-passages", "cranfield", "cisi", "npl-vaswani", "demo-en"),
        # The paper's 16 tasks, by the names of tab:main_results.
        *("NFCorpus", "SciFact", "MedicalQA", "ChatDoctor", "FeedbackQA", "R2MED-Bioinformatics"),
        *("R2MED-Biology", "R2MED-IIYi", "R2MED-MedQADiag", "R2MED-MedXpert"),
        *("R2MED-MedicalSciences", "R2MED-PMCClinical", "R2MED-PMCTreatment"),
        # Those that its 19-task suite adds.
        *("CUREv1", "PublicHealthQA-en"),
    ],
    "zh": [
        *("cmdd-zh", "xquad-zh", "cmrc2018-zh", "demo-zh"),
        *("MedicalRetrieval-zh", "Covid-zh", "Cmedqa-zh", "PublicHealthQA-zh"),
    ],
}
TASKS = {task: language for language, tasks in _LANGUAGES.items() for task in tasks}
"""The languages of tasks known by their names."""


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
    spoken = TASKS | dict(languages or {})
    if unknown := [name for name in names if name not in spoken]:
        raise InputError(
            f"the language of {unknown} is not known; "
            f"give it, for instance languages={{{unknown[0]!r}: 'en'}}"
        )
    # A name that is misspelt here would let a task pass for unseen.
    if strange := [name for name in seen if name not in spoken]:
        raise InputError(f"seen: {strange} are not tasks; names must match letter by letter")
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
        raise InputError("a macro needs at least one task, got none")
    if missing := [name for name in names if name not in values]:
        raise InputError(
            f"macro over {len(names)} tasks requested, but {len(missing)} did not run: {missing}; "
            "run them, or request the macro of those that did"
        )
    for name in names:
        if not math.isfinite(values[name]):
            raise InputError(f"task {name!r} has the value {values[name]}; a macro needs numbers")
    return math.fsum(values[name] for name in names) / len(names)


def _check(names: Sequence[str]) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"tasks named more than once: {twice}; each counts once in a macro")
