"""Requests and results in the format of OpenAI's batch files, which `vllm run-batch` reads and
writes without a server: a JSON object per line, joined by `custom_id`, here the key of the answer.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from hplus.errors import InputError
from hplus.files import writing
from hplus.teach.llm import Question, is_answer
from hplus.teach.llm_answers import Answers
from hplus.teach.marked import read_rows


def write_requests(path: Path, question: Question, texts: Iterable[str]) -> int:
    """A request per text, each once; returns their number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    keyed = {question.key(text): text for text in texts}
    with writing(path) as file:
        for key, text in keyed.items():
            row = {
                "custom_id": key,
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": question.body(text),
            }
            file.write((json.dumps(row) + "\n").encode())
    return len(keyed)


def read_results(
    path: Path, question: Question, texts: Iterable[str], answers: Answers
) -> Counter[str]:
    """Keep the answers to these texts; returns what else was in the file, by reason."""
    wanted = {question.key(text): text for text in texts}
    other: Counter[str] = Counter()
    kept = 0
    for number, row in read_rows(path, "custom_id"):
        if "response" not in row and "error" not in row:
            raise InputError(
                f"{path}:{number} is a request, expected a result; answer the requests first "
                f"(vllm run-batch -i {path.name} -o results.jsonl --model …) and give that file"
            )
        text = wanted.get(row["custom_id"])
        if text is None:
            other["results about other texts, models or parameters"] += 1
            continue
        match row.get("response"):
            case {"status_code": 200, "body": body} if is_answer(body):
                answers.keep(row["custom_id"], question.model, text, body)
                kept += 1
            case {"status_code": int(status)} if status != 200:
                other[f"failed results: HTTP {status}"] += 1
            case None:
                other["failed results: no response"] += 1
            case _:
                other["failed results: a response that is not a chat completion"] += 1
    if other and not kept:
        reasons = ", ".join(f"{count:,} {what}" for what, count in other.items())
        raise InputError(f"{path} answers none of these texts ({reasons})")
    return other
