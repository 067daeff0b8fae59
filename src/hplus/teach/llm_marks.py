"""A language model's answers as marks in texts.

Labels depend on the kept answers alone: the order in which these arrived changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hplus.teach.corpus import Unlabelled
from hplus.teach.llm import AnswerRefusedError, Question, mark
from hplus.teach.llm_answers import Answers
from hplus.teach.marked import Marked


def open_texts(sources: Iterable[Unlabelled]) -> list[str]:
    """The texts to ask about, each once. A text with marks of its own keeps them, and one without
    letters and digits has nothing to mark."""
    texts = (row.text for source in sources for row in source.rows if _is_open(row))
    return list(dict.fromkeys(texts))


def mark_source(source: Unlabelled, question: Question, answers: Answers) -> Unlabelled:
    """The texts with the model's segments as marks; what has no answer, or one that is refused, is
    left out and counted."""
    dropped = Counter(source.dropped)
    rows = []
    for row in source.rows:
        answer = answers.get(question.key(row.text)) if _is_open(row) else None
        if not _is_open(row):
            rows.append(row)
        elif answer is None:
            dropped["texts without an answer"] += 1
        else:
            try:
                rows.append(mark(row.text, answer))
            except AnswerRefusedError as refused:
                dropped[f"texts refused: {refused}"] += 1
    return Unlabelled(source.name, rows, dropped)


def _is_open(row: Marked) -> bool:
    return not row.spans and not row.lost and any(map(str.isalnum, row.text))
