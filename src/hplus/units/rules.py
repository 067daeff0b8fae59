"""Rules that group tokens into units without training: content-word runs, and the paper's controls.

Each gives `begins bool[T]`, as the CRF's tags do, so everything after it is the same code. Random
rules are seeded by seed *and* text: a text has the same units alone and in any batch. Token pooling
is not a rule but a budget on single tokens: `Budget(16, policy="ward")`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from hplus.errors import InputError
from hplus.types import I64, Bool, Span, Tokens
from hplus.units.partition import keep_characters_whole
from hplus.units.words import is_content, whitespace_words, words

RUN = 4
"""Content words in a run, at most."""
# Signs that hold a compound together between two content words with no space: "COX-2", "mg/kg".
_CONNECTORS = frozenset("-‐‑–/+·'’")


def rule(name: str) -> Callable[[Tokens], Bool]:
    """A rule by its name: tokens, words, whitespace, runs, ngrams-N, chunks-N, random-SEED, and
    shuffled-SEED:RULE, the units of another rule in another order."""
    plain: dict[str, Callable[[Tokens], Bool]] = {
        "tokens": single_tokens,
        "words": whole_words,
        "whitespace": whole_words_by_whitespace,
        "runs": content_word_runs,
    }
    numbered: dict[str, Callable[[Tokens, int], Bool]] = {
        "ngrams": ngrams,
        "chunks": equal_chunks,
        "random": random_spans,
    }
    if name in plain:
        return plain[name]
    if match := re.fullmatch(r"shuffled-(\d+):(.+)", name):
        base, seed = rule(match[2]), int(match[1])
        return lambda tokens: shuffled(base(tokens), tokens, seed)
    match = re.fullmatch(r"(ngrams|chunks|random)-(\d+)", name)
    if match is None or (match[1] != "random" and int(match[2]) < 1):
        raise InputError(
            f"unknown units {name!r}; known: {', '.join(plain)}, ngrams-N, chunks-N, "
            "random-SEED, shuffled-SEED:RULE, and crf where a checkpoint has a trained one"
        )
    return lambda tokens: numbered[match[1]](tokens, int(match[2]))


def single_tokens(tokens: Tokens) -> Bool:
    """Every token a unit."""
    return keep_characters_whole(np.ones(len(tokens.ids), np.bool_), tokens)


def whole_words(tokens: Tokens) -> Bool:
    """Words of any language; the paper's own whole-word control does not divide Chinese."""
    return _by_spans(tokens, words)


def whole_words_by_whitespace(tokens: Tokens) -> Bool:
    """Words between white space, as in the paper; a Chinese text is one word."""
    return _by_spans(tokens, whitespace_words)


def content_word_runs(tokens: Tokens) -> Bool:
    """Up to four content words in a row; function words and punctuation stand alone.

    The default units where there is no trained CRF. Han characters count as words one by one, so
    that units do not depend on which packages are installed.
    """
    return _by_spans(tokens, run_spans)


def run_spans(text: str) -> list[Span]:
    """The runs of one text, and the words outside them.

    A row of more than four content words is divided from its end, since the head of an English
    phrase comes last; a compound of up to four words is never divided.

    >>> text = "Metformin treats type 2 diabetes at 5 mg/kg"
    >>> [text[a:b] for a, b in run_spans(text)]
    ['Metformin', 'treats type 2 diabetes', 'at', '5 mg/kg']
    """
    runs: list[Span] = []
    row: list[tuple[Span, int]] = []  # compounds in a row, with their number of content words
    for compound, content in compounds(text):
        if content:
            row.append((compound, content))
            continue
        runs += _divided_from_the_end(row)
        runs.append(compound)
        row = []
    return runs + _divided_from_the_end(row)


def _divided_from_the_end(row: list[tuple[Span, int]]) -> list[Span]:
    runs: list[Span] = []
    inside = RUN
    for compound, content in reversed(row):
        if runs and inside + content <= RUN:
            runs[-1] = Span(compound.start, runs[-1].end)
            inside += content
        else:
            runs.append(compound)
            inside = content
    return runs[::-1]


def compounds(text: str) -> Iterator[tuple[Span, int]]:
    """Words, joined where a sign holds them together, each with its number of content words."""
    held: Span | None = None
    content = 0
    found = words(text, han="characters")
    for i, word in enumerate(found):
        spelled = text[word.start : word.end]
        if held is not None and held.end == word.start and text[word.start - 1] in _CONNECTORS:
            held, content = Span(held.start, word.end), content + 1
        elif held is not None and content < RUN and _binds(text, found, i):
            held = Span(held.start, word.end)
        else:
            if held is not None:
                yield held, content
            held, content = word, int(is_content(spelled))
            if not content:
                yield held, 0
                held = None
    if held is not None:
        yield held, content


def ngrams(tokens: Tokens, n: int) -> Bool:
    """n tokens per unit; the last unit of a text may be shorter."""
    position = np.arange(len(tokens.ids)) - np.repeat(tokens.offsets[:-1], np.diff(tokens.offsets))
    return keep_characters_whole(position % n == 0, tokens)


def equal_chunks(tokens: Tokens, count: int | I64) -> Bool:
    """`count` chunks of each text, as equal as possible; fewer where the text has fewer places to
    divide it, which lie between tokens and never inside a character."""
    begins = np.zeros(len(tokens.ids), np.bool_)
    places = np.flatnonzero(keep_characters_whole(np.ones_like(begins), tokens))
    bounds = np.searchsorted(places, tokens.offsets).tolist()
    counts = np.broadcast_to(np.asarray(count, np.int64), len(tokens))
    for (first, last), wanted in zip(pairwise(bounds), counts, strict=True):
        chunks = min(int(wanted), last - first)
        begins[places[first + np.arange(chunks) * (last - first) // max(chunks, 1)]] = True
    return begins


def random_spans(tokens: Tokens, seed: int) -> Bool:
    """Lengths drawn evenly from 1 to 4 tokens, whatever the text."""

    def draw(random: np.random.Generator, n: int) -> I64:
        return random.integers(1, 5, n)

    return random_lengths(tokens, seed, draw)


def random_lengths(
    tokens: Tokens, seed: int, draw: Callable[[np.random.Generator, int], I64]
) -> Bool:
    """Units of the lengths that `draw(generator, n)` gives for a text of n tokens, i64[n]; the
    last one is what is left of the text."""
    begins = np.zeros(len(tokens.ids), np.bool_)
    for (first, last), random in zip(
        pairwise(tokens.offsets.tolist()), _seeds(tokens, seed), strict=True
    ):
        starts = np.cumsum(draw(random, last - first))
        begins[first + starts[starts < last - first]] = True
        begins[first : min(first + 1, last)] = True
    return keep_characters_whole(begins, tokens)


def shuffled(begins: Bool, tokens: Tokens, seed: int) -> Bool:
    """The text's own unit lengths in another order: same count, same lengths, other places."""
    result = np.zeros(len(begins), np.bool_)
    for (first, last), random in zip(
        pairwise(tokens.offsets.tolist()), _seeds(tokens, seed), strict=True
    ):
        if first == last:
            continue
        lengths = np.diff(np.append(np.flatnonzero(begins[first:last]), last - first))
        starts = np.cumsum(random.permutation(lengths)) - 1
        result[first] = True
        result[first + starts[:-1] + 1] = True
    return keep_characters_whole(result, tokens)


def _by_spans(tokens: Tokens, spans_of: Callable[[str], list[Span]]) -> Bool:
    """A unit begins at the first token that starts in a new span."""
    begins = np.ones(len(tokens.ids), np.bool_)
    for text, (first, last) in zip(tokens.texts, pairwise(tokens.offsets.tolist()), strict=True):
        starts = np.array([span.start for span in spans_of(text)], np.int64)
        span = np.searchsorted(starts, tokens.spans[first:last, 0], side="right")
        begins[first + 1 : last] = span[1:] != span[:-1]
    return keep_characters_whole(begins, tokens)


def _seeds(tokens: Tokens, seed: int) -> Iterator[np.random.Generator]:
    for text in tokens.texts:
        digest = hashlib.sha256(f"{seed}\0{text}".encode("utf-8", "surrogatepass")).digest()
        yield np.random.default_rng(int.from_bytes(digest[:8], "little"))


def _binds(text: str, found: list[Span], i: int) -> bool:
    """Whether word i is a sign between two content words, with no space around it."""
    return (
        text[found[i].start : found[i].end] in _CONNECTORS
        and i + 1 < len(found)
        and found[i - 1].end == found[i].start
        and found[i].end == found[i + 1].start
        and is_content(text[found[i + 1].start : found[i + 1].end])
    )
