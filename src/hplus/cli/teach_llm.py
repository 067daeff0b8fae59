"""The part of `hplus teach labels` that asks a language model."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hplus.errors import InputError

if TYPE_CHECKING:
    from hplus.teach.corpus import Unlabelled
    from hplus.teach.llm import Question
    from hplus.teach.llm_answers import Answers

PANEL = "A language model as teacher"
KEY = "HPLUS_LLM_KEY"

Url = Annotated[
    str | None,
    typer.Option(
        "--llm",
        metavar="URL",
        help=f"OpenAI-compatible endpoint, like http://localhost:8000/v1; its key in {KEY}.",
        rich_help_panel=PANEL,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--llm-model", metavar="NAME", help="The model that is asked.", rich_help_panel=PANEL
    ),
]
Parameters = Annotated[
    str | None,
    typer.Option(
        "--llm-parameters",
        metavar="JSON",
        help="Added to every request; null leaves one of ours out.",
        rich_help_panel=PANEL,
    ),
]
AnswersFile = Annotated[
    Path | None,
    typer.Option(
        "--llm-answers",
        metavar="FILE",
        help="Where raw answers are kept; else beside the labels.",
        rich_help_panel=PANEL,
    ),
]
Concurrency = Annotated[
    int,
    typer.Option(
        "--llm-concurrency", min=1, max=1024, help="Requests at once.", rich_help_panel=PANEL
    ),
]
Timeout = Annotated[
    float,
    typer.Option("--llm-timeout", min=0.1, help="Seconds for one answer.", rich_help_panel=PANEL),
]
Limit = Annotated[
    float | None,
    typer.Option(
        "--llm-budget",
        min=0,
        help="Tokens this run may use at most; with --llm-price, money.",
        rich_help_panel=PANEL,
    ),
]
Prices = Annotated[
    tuple[float, float] | None,
    typer.Option(
        "--llm-price",
        metavar="IN OUT",
        help="Money for a million tokens of questions and of answers.",
        rich_help_panel=PANEL,
    ),
]
BatchFile = Annotated[
    Path | None,
    typer.Option(
        "--batch-file",
        metavar="FILE",
        help="Instead of asking: write requests in OpenAI's batch format to FILE if it is "
        "missing, else read results from it.",
        rich_help_panel=PANEL,
    ),
]


@dataclass(frozen=True)
class Llm:
    """What was typed about the language model."""

    url: str | None
    model: str | None
    parameters: str | None
    answers: Path | None
    concurrency: int
    timeout: float
    budget: float | None
    price: tuple[float, float] | None
    batch_file: Path | None

    @property
    def is_wanted(self) -> bool:
        """Whether a language model is the teacher; its other options alone mean nothing."""
        if self.url is not None or self.batch_file is not None:
            return True
        for name in ("model", "parameters", "answers", "budget", "price"):
            if getattr(self, name) is not None:
                raise InputError(f"--llm-{name} needs --llm URL or --batch-file FILE")
        return False

    def question(self) -> Question:
        """What is asked."""
        from hplus.teach.llm import Question

        if not self.model:
            raise InputError("--llm and --batch-file need --llm-model NAME")
        try:
            parameters = json.loads(self.parameters or "{}", parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise InputError(f"--llm-parameters is not JSON: {error}") from None
        if not isinstance(parameters, dict):
            raise InputError(f"--llm-parameters: expected a JSON object, got {self.parameters}")
        return Question(self.model, parameters)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def mark_sources(llm: Llm, sources: list[Unlabelled], out: Path) -> list[Unlabelled] | None:
    """The sources with the model's marks; None if requests were written instead."""
    from hplus.teach.llm_answers import open_answers
    from hplus.teach.llm_batch import read_results, write_requests
    from hplus.teach.llm_marks import mark_source, open_texts

    question = llm.question()
    texts = open_texts(sources)
    with open_answers(llm.answers or beside(out)) as answers:
        missing = [text for text in texts if question.key(text) not in answers]
        if llm.batch_file is not None and llm.batch_file.exists():
            _warn(read_results(llm.batch_file, question, texts, answers))
        elif llm.batch_file is not None and missing:
            count = write_requests(llm.batch_file, question, missing)
            print(f"{count:,} requests written: {llm.batch_file}")
            return None
        elif llm.url is not None and missing:
            _ask(llm, question, missing, answers)
        marked = [mark_source(source, question, answers) for source in sources]
    if any(source.rows for source in sources) and not any(source.rows for source in marked):
        lost = sum((source.dropped for source in marked), Counter[str]())
        reasons = ", ".join(f"{count:,} {what}" for what, count in lost.items() if count)
        raise InputError(f"no text could be labelled: {reasons}")
    return marked


def beside(out: Path) -> Path:
    """Where answers are kept unless it was said.

    >>> str(beside(Path("mine/labels.jsonl.gz")))
    'mine/labels.answers.sqlite'
    """
    return out.with_name(out.name.split(".")[0] + ".answers.sqlite")


def _ask(llm: Llm, question: Question, texts: list[str], answers: Answers) -> None:
    from hplus.progress import show_progress
    from hplus.teach.llm_client import Endpoint, ask_all
    from hplus.teach.llm_spending import Price, Spending

    assert llm.url is not None
    amounts = [llm.timeout, llm.budget or 0, *(llm.price or ())]
    if not all(math.isfinite(amount) and amount >= 0 for amount in amounts):
        raise InputError(f"expected numbers of 0 or more for budget and price, got {amounts[1:]}")
    key = os.environ.get(KEY, "").strip() or None
    endpoint = Endpoint(llm.url, concurrency=llm.concurrency, timeout=llm.timeout, key=key)
    spending = Spending(llm.budget, Price(*llm.price) if llm.price else None)
    before = len(answers)

    def keep(text: str, answer: dict[str, Any]) -> None:
        answers.keep(question.key(text), question.model, text, answer)

    try:
        with _no_sigpipe(), show_progress(f"asking {question.model}", len(texts)) as bar:
            failed = ask_all(endpoint, question, texts, keep=keep, spending=spending, bar=bar)
    except KeyboardInterrupt:
        print(
            f"interrupted: {len(answers) - before:,} new answers kept in {answers.path}; run the "
            "same command again to continue",
            file=sys.stderr,
        )
        raise typer.Exit(130) from None
    finally:
        money = f", {spending.spent:.4f} at the given price" if spending.price else ""
        print(
            f"{len(answers) - before:,} answers from {question.model}: {spending.question_tokens:,}"
            f" tokens asked, {spending.answer_tokens:,} answered{money}",
            file=sys.stderr,
        )
    _warn(failed)


@contextmanager
def _no_sigpipe() -> Iterator[None]:
    """Commands end quietly when a reader of their output has enough; a server that closes its
    connection must be an error instead."""
    if not hasattr(signal, "SIGPIPE"):
        yield
        return
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)


def _warn(reasons: Counter[str]) -> None:
    for reason, count in reasons.items():
        print(f"warning: {count:,} {reason}", file=sys.stderr)
