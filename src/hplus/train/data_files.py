"""Training data as flat arrays on disk: written in one pass, mapped while training.

    FOLDER/<name>        one file for each array of `ARRAYS`, without a header
    FOLDER/sources.json  the names of the sources

Memory does not grow with the texts, neither while they are written nor in training, which reads the
rows of its batch. A run writes them anew when it is started or resumed, which takes as long as
reading and tokenising the data does; so they never have to be told from older ones.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hplus.backbones import Backbone
from hplus.recipe import Recipe, Side
from hplus.teach.align import tags_of_units
from hplus.teach.groups import Bad, Group
from hplus.train.config import Config
from hplus.train.data import Data
from hplus.train.known_texts import KnownTexts
from hplus.train.texts import StoredTexts, Texts, read_texts
from hplus.types import Span, Tokens, offsets_of, rows_of

STEP = 512
"""Groups, or texts, that are in memory at a time."""
SIDES: tuple[Side, ...] = ("query", "document")
OF_SIDE = {
    "ids": np.int32,
    "spans": np.int32,
    "offsets": np.int64,
    "characters": np.uint8,
    "bounds": np.int64,
    "tags": np.uint8,
    "labelled": np.bool_,
}
ARRAYS: dict[str, type[np.generic]] = {
    **{f"{side}.{name}": dtype for side in SIDES for name, dtype in OF_SIDE.items()},
    "members": np.int64,
    "scores": np.float32,
    "bounds": np.int64,
    "source": np.int64,
    "question": np.int64,
    "answers": np.int64,
    "answer_bounds": np.int64,
}
"""What the arrays mean is said in `Data`, `StoredTexts` and `Tokens`."""
Known = dict[Side, KnownTexts]


def write_data(
    folder: Path,
    groups: Iterable[Group],
    labels: Iterable[tuple[str, Sequence[Span]]],
    backbone: Backbone,
    recipe: Recipe,
    config: Config,
    bad: Bad,
) -> None:
    """Groups as rows; labels: units of texts, where the groups have none themselves.

    A group with a text of which the tokenizer makes nothing is left out and added to `bad`.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("bounds", *(f"{side}.{n}" for side in SIDES for n in ("offsets", "bounds"))):
        _append(folder, name, [0])
    known: Known = {side: KnownTexts() for side in SIDES}
    for text, units in labels:
        for own in known.values():
            own.label(text, units)
    sources: dict[str, int] = {}
    rest = iter(groups)
    while some := list(islice(rest, STEP)):
        queries = read_texts(
            [group.query for group in some], backbone, recipe, "query", config.data.query_length
        )
        every = dict.fromkeys(text for group in some for text in group.documents)
        new = [text for text in every if known["document"].number(text) is None]
        documents = read_texts(new, backbone, recipe, "document", config.data.document_length)
        fine = _with_tokens(some, queries, documents, bad)
        used = [some[i] for i in fine]
        place = {text: i for i, text in enumerate(new)}
        named = dict.fromkeys(text for group in used for text in group.documents)
        kept = [place[text] for text in named if text in place]
        _append_groups(folder, used, known, sources)
        _append_texts(folder, "query", queries.take(np.array(fine, np.int64)))
        _append_texts(folder, "document", documents.take(np.array(kept, np.int64)))
    bad.require_few()
    (folder / "sources.json").write_text(json.dumps(list(sources)), "utf-8")
    _write_answers(folder)
    for side in SIDES:
        _write_tags(folder, side, known[side], _stored(folder, side, backbone, recipe, config))


def open_data(folder: Path, backbone: Backbone, recipe: Recipe, config: Config) -> Data:
    """What `write_data` wrote, for the same model and configuration."""
    queries, documents = (_stored(folder, side, backbone, recipe, config) for side in SIDES)
    names = ("members", "scores", "bounds", "source", "question", "answers", "answer_bounds")
    return Data(
        folder=folder,
        queries=queries,
        documents=documents,
        sources=json.loads((folder / "sources.json").read_text("utf-8")),
        **{name: _mapped(folder, name) for name in names},
        **{
            f"{side}_{name}": _mapped(folder, f"{side}.{name}")
            for side in SIDES
            for name in ("tags", "labelled")
        },
    )


def _with_tokens(groups: list[Group], queries: Texts, documents: Texts, bad: Bad) -> list[int]:
    """Which groups have tokens in all their texts."""
    empty: list[set[str]] = []
    for side in (queries, documents):
        lengths = np.diff(side.tokens.offsets).tolist()
        empty.append({t for t, n in zip(side.tokens.texts, lengths, strict=True) if not n})
    used = []
    for i, group in enumerate(groups):
        lacking = [group.query] if group.query in empty[0] else []
        lacking += [text for text in group.documents if text in empty[1]]
        if lacking:
            bad.add(group.place, "a text without tokens", f"{lacking[0]!r:.80}")
        else:
            used.append(i)
    return used


def _append_groups(
    folder: Path, groups: list[Group], known: Known, sources: dict[str, int]
) -> None:
    for group in groups:
        if group.query_units is not None:
            known["query"].label(group.query, group.query_units)
        if group.positive_units is not None:
            known["document"].label(group.documents[0], group.positive_units)
    members = [[known["document"].add(text) for text in group.documents] for group in groups]
    first = _append(folder, "members", [row for own in members for row in own])
    _append(folder, "bounds", first + offsets_of(np.array([len(own) for own in members]))[1:])
    none = -np.inf
    scores = [group.scores or [none] * len(group.documents) for group in groups]
    _append(folder, "scores", [score for own in scores for score in own])
    _append(folder, "source", [sources.setdefault(g.source, len(sources)) for g in groups])
    _append(folder, "question", [known["query"].add(group.query) for group in groups])


def _append_texts(folder: Path, side: Side, texts: Texts) -> None:
    tokens = texts.tokens
    first = _append(folder, f"{side}.ids", tokens.ids)
    _append(folder, f"{side}.offsets", first + tokens.offsets[1:])
    _append(folder, f"{side}.spans", tokens.spans)
    # Lone surrogates survive, as they do in the files of groups.
    written = [text.encode("utf-8", "surrogatepass") for text in tokens.texts]
    first = _append(folder, f"{side}.characters", np.frombuffer(b"".join(written), np.uint8))
    _append(folder, f"{side}.bounds", first + offsets_of(np.array([len(t) for t in written]))[1:])


def _write_answers(folder: Path) -> None:
    question = _mapped(folder, "question")
    positive = _mapped(folder, "members")[_mapped(folder, "bounds")[:-1]]
    _append(folder, "answers", positive[np.argsort(question, kind="stable")])
    _append(folder, "answer_bounds", offsets_of(np.bincount(question)))


def _write_tags(folder: Path, side: Side, known: KnownTexts, texts: Texts) -> None:
    for first in range(0, len(texts), STEP):
        some = texts.take(np.arange(first, min(first + STEP, len(texts))))
        units = [known.units(text) for text in some.tokens.texts]
        labelled = np.array([own is not None for own in units], np.bool_)
        rows = np.flatnonzero(labelled)
        tags = np.zeros(len(some.tokens.ids), np.uint8)
        places, _ = rows_of(some.tokens.offsets, rows)
        tags[places] = tags_of_units(
            some.take(rows).tokens, [own for own in units if own is not None]
        )
        _append(folder, f"{side}.tags", tags)
        _append(folder, f"{side}.labelled", labelled)


def _stored(
    folder: Path, side: Side, backbone: Backbone, recipe: Recipe, config: Config
) -> StoredTexts:
    lengths = {"query": config.data.query_length, "document": config.data.document_length}
    around = read_texts([], backbone, recipe, side, lengths[side])
    ids, spans, offsets, characters, bounds = (
        _mapped(folder, f"{side}.{name}")
        for name in ("ids", "spans", "offsets", "characters", "bounds")
    )
    tokens = Tokens((), ids, spans.reshape(-1, 2), offsets)
    return StoredTexts(tokens, around.before, around.after, around.unknown, characters, bounds)


def _append(folder: Path, name: str, values: npt.ArrayLike) -> int:
    """More values at the end of an array; returns how many it had."""
    dtype = np.dtype(ARRAYS[name])
    with (folder / name).open("ab") as file:
        file.write(np.asarray(values, dtype).tobytes())
        return (file.tell() - np.asarray(values).size * dtype.itemsize) // dtype.itemsize


def _mapped(folder: Path, name: str) -> Any:
    return np.memmap(folder / name, ARRAYS[name], "r").view(np.ndarray)
