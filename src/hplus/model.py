"""HPlus: one pass through the encoder, three views.

text -> backbone -> states -> tags, importance -> units -> global, phrase, lexical
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, get_args

import numpy as np

from hplus import DEFAULT_MODEL
from hplus import checkpoint as checkpoints
from hplus.arguments import is_id, whole
from hplus.backbones.encode import capacity, cut_tokens, encode_states, pooled_states
from hplus.backbones.threads import one_blas_thread
from hplus.errors import BudgetError, InputError
from hplus.heads import crf as crf_head
from hplus.heads.importance import DocumentFrequency
from hplus.progress import show_progress
from hplus.recipe import Recipe, Side
from hplus.texts import as_texts, checked, distinct, in_steps, steps_of
from hplus.types import (
    F32,
    I64,
    Bool,
    Coverage,
    Encoded,
    Scores,
    Span,
    States,
    Tokens,
    TokenStates,
    Unit,
    concatenate,
    item_of_row,
)
from hplus.units import patterns, rules, sentences
from hplus.units.partition import (
    begins_of_tags,
    keep_characters_whole,
    partition,
    spans_of_units,
    tags_of_begins,
)
from hplus.units.passages import passages
from hplus.units.select import Budget, budget_of
from hplus.units.terms import Terms, override
from hplus.units.vectors import unit_importance
from hplus.unknown import Count, counted
from hplus.views import fusion, global_, lexical, phrase, stretches
from hplus.views.lexical import Spelling


class HPlus:
    """A model: texts in, three views out.

    >>> model = HPlus()                        # the built-in checkpoint, no torch, no network
    >>> model = HPlus("my-checkpoint", terms="terms.txt.gz")  # doctest: +SKIP
    >>> model = HPlus("bert-folder", units="words").fit_idf(my_texts)  # doctest: +SKIP

    source: a checkpoint folder, a built-in name, an encoder folder, or a hub id. device: None
    serves BERT without torch; "cpu", "cuda:0" … mean torch. terms: a `Terms`, or the path of
    a file with one term per line. offline: take a hub id from the hub's cache only. Any field of
    `Recipe` can be overridden by name (units, window, long, pooling, query_prompt, document_prompt,
    query_budget, document_budget, phrase_width, global_width, fusion, importance, …).
    """

    def __init__(
        self,
        source: str | os.PathLike[str] = DEFAULT_MODEL,
        *,
        device: str | None = None,
        terms: Terms | str | os.PathLike[str] | None = None,
        offline: bool = False,
        **overrides: Any,
    ) -> None:
        if not isinstance(device, str | None):
            raise InputError(f"expected device to be text, such as cpu, got {device!r:.100}")
        self.checkpoint = checkpoints.load(
            source, device=device, offline=offline, settings=overrides
        )
        self.device = device
        self.threads = _cores()
        self.terms = terms if terms is None or isinstance(terms, Terms) else Terms.read(terms)

    @property
    def recipe(self) -> Recipe:
        """Every setting of this model."""
        return self.checkpoint.recipe

    @property
    def name(self) -> str:
        """A built-in model's name, a hub id, or the name of the folder it was loaded from."""
        return self.checkpoint.name

    @property
    def languages(self) -> list[str]:
        """The languages its heads were made for, as the checkpoint states them."""
        stated = self.checkpoint.notes.get("languages", [])
        return [str(language) for language in stated] if isinstance(stated, list) else []

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything that decides an encoding: weights, rules, terms."""
        terms = None if self.terms is None else self.terms.fingerprint
        return checkpoints.fingerprint(self.checkpoint, terms)

    @property
    def dim(self) -> int:
        """Width d of the token states: the most that any view can have."""
        return self.checkpoint.backbone.dim

    def segment(self, texts: str | Sequence[str], *, side: Side = "document") -> list[list[Unit]]:
        """Each text's units in reading order, with their importance.

        >>> [unit.text for unit in HPlus().segment("type 2 diabetes")[0]]
        ['type 2 diabetes']
        """
        given = as_texts(texts)
        segmented: list[list[Unit]] = [[] for _ in given]
        pieces = (
            (i, start, piece)
            for i, text in enumerate(given)
            for start, piece in self._stretches(text, side)
        )
        for step in steps_of(pieces, lambda piece: len(piece[2])):
            tokens, begins, importance = self._partition([text for *_, text in step], side)
            units = partition(begins, tokens.offsets)
            spans = spans_of_units(tokens, units).tolist()
            weights = unit_importance(importance, units).tolist()
            bounds = pairwise(units.offsets.tolist())
            for (i, start, text), (first, last) in zip(step, bounds, strict=True):
                segmented[i] += [
                    Unit(start + a, start + b, text[a:b], weight)
                    for (a, b), weight in zip(spans[first:last], weights[first:last], strict=True)
                ]
        return segmented

    def encode_query(
        self,
        texts: str | Sequence[str],
        *,
        budget: Budget | int | None = None,
        width: int | None = None,
    ) -> Encoded:
        """Queries in the three views."""
        wanted = budget_of(budget, self.recipe.query_budget)
        texts = as_texts(texts)
        self.count_unknown(texts).warn("the query", self.recipe.name)
        # Without texts, one empty step: an encoding of the right widths.
        steps = list(in_steps(texts)) or [[]]
        return concatenate([self.encode_step(step, wanted, width, side="query") for step in steps])

    def encode_document(
        self,
        texts: str | Sequence[str],
        *,
        budget: Budget | int | None = None,
        width: int | None = None,
        workers: int = 1,
        devices: Sequence[str] | None = None,
        progress: bool = False,
    ) -> Encoded:
        """Documents in the three views, in their order.

        budget: a `Budget`, or a count under the recipe's policy. width: of the phrase vectors.
        workers (processes) or devices (one process each) share large jobs; a job of one step
        stays in this process.
        """
        parts = list(
            self.stream_documents(
                as_texts(texts),
                budget=budget,
                width=width,
                workers=workers,
                devices=devices,
                progress=progress,
            )
        )
        if not parts:
            return self.encode_step([], budget_of(budget, self.recipe.document_budget), width)
        return concatenate(parts)

    def stream_documents(
        self,
        texts: Iterable[str],
        *,
        budget: Budget | int | None = None,
        width: int | None = None,
        workers: int = 1,
        devices: Sequence[str] | None = None,
        progress: bool = False,
    ) -> Iterator[Encoded]:
        """Documents of any number, encoded step by step in bounded memory, in their order.

        A bad element stops the stream with an error that names its position, after everything
        before it has been given out.
        """
        wanted = budget_of(budget, self.recipe.document_budget)
        width = self._width(width)
        total = len(texts) if isinstance(texts, Sequence) else None
        count, tokenizer = Count(), self.checkpoint.backbone.tokenizer
        with show_progress("encoding", total, wanted=progress) as bar:
            from hplus.workers import encode_steps

            yield from encode_steps(
                self,
                counted(in_steps(checked(texts)), tokenizer, count),
                wanted,
                width,
                workers=workers,
                devices=devices,
                advance=bar.advance,
            )
        count.warn("the documents", self.recipe.name)

    def count_unknown(self, texts: Sequence[str]) -> Count:
        """How many tokens of these texts the tokenizer does not know; they are in no view."""
        count = Count()
        count.add(self.checkpoint.backbone.tokenizer, texts)
        return count

    def states(self, texts: str | Sequence[str], *, side: Side = "document") -> TokenStates:
        """Token states, tags and importance of a handful of texts, for laboratory and training.

        All of them are in memory at once: 1.5 KB per token for MiniLM.
        """
        states = self._states(as_texts(texts), side)
        return TokenStates(
            tokens=states.tokens,
            states=states.states,
            inner=states.inner,
            pooled=states.pooled,
            tags=tags_of_begins(self._begins(states.tokens, states.inner)),
            importance=self._importance(states.tokens, states.inner),
        )

    def passages(self, text: str, limit: int) -> list[Span]:
        """A text cut into overlapping passages of at most `limit` of its tokens, at the ends of
        paragraphs and sentences; together they cover it.

        >>> HPlus().passages("Metformin lowers glucose. It is safe. Insulin does, too.", 10)
        [Span(start=0, end=38), Span(start=38, end=56)]
        """
        tokenizer, prompt = self.checkpoint.backbone.tokenizer, self.recipe.document_prompt
        found: list[Span] = []
        for start, piece in sentences.stretches(text, stretches.SIZE):
            spans = tokenizer.tokens([piece], prompt).spans
            found += [Span(start + a, start + b) for a, b in passages(piece, spans, limit)]
        return found

    def score(
        self,
        query: str,
        documents: str | Sequence[str],
        *,
        alphas: Mapping[str, float] | None = None,
        query_budget: Budget | int | None = None,
        budget: Budget | int | None = None,
        width: int | None = None,
        explain: bool = False,
    ) -> Scores:
        """One query against documents by every view, and fused.

        alphas: weights of the views, overriding the recipe's; a view left out is off.
        """
        if not isinstance(query, str):
            raise InputError(f"expected one query as text, got {type(query).__name__}")
        texts = as_texts(documents)
        encoded_query = self.encode_query(query, budget=query_budget, width=width)
        encoded = self.encode_document(texts, budget=budget, width=width)
        return fusion.score(
            encoded_query,
            encoded,
            self.recipe.fusion if alphas is None else alphas,
            query_text=query,
            document_texts=texts if explain else None,
            spelling=self.spelling,
        )

    @property
    def spelling(self) -> Spelling:
        """How tokens are written, and which of them the words of a query have."""
        tokenizer, prompt = self.checkpoint.backbone.tokenizer, self.recipe.query_prompt
        return Spelling(
            tokenizer.token, lambda text: lexical.words_of(tokenizer.tokens([text], prompt))
        )

    def fit_idf(self, texts: Iterable[str]) -> HPlus:
        """A model like this one whose importance is idf over `texts`."""
        tokenizer = self.checkpoint.backbone.tokenizer
        frequency = DocumentFrequency(tokenizer.vocabulary)
        for step in in_steps(checked(texts)):
            tokens = tokenizer.tokens(step, self.recipe.document_prompt)
            frequency.add(tokens.ids, tokens.offsets)
        fitted = copy.copy(self)
        fitted.checkpoint = checkpoints.with_idf(self.checkpoint, frequency.idf())
        return fitted

    def save(
        self, folder: str | os.PathLike[str], *, include_encoder: bool = False, card: str = ""
    ) -> None:
        """Write this model as a checkpoint folder that `HPlus(folder)` loads.

        include_encoder: put the encoder (an adapter merged) and its tokenizer into the folder,
        which can then be moved to any machine; else the folder refers to them where they are.
        """
        if not isinstance(card, str) or not is_id(card):
            raise InputError(f"expected card to be text, got {card!r:.100}")
        checkpoints.save(folder, self.checkpoint, include_encoder=include_encoder, card=card)

    def __str__(self) -> str:
        recipe, backbone = self.recipe, self.checkpoint.backbone
        reference = backbone.reference
        trained = ", ".join(recipe.trained) or "nothing (rules and frozen backbone)"
        alphas = " + ".join(f"{alpha:g} {view}" for view, alpha in recipe.fusion.items())
        named = self.checkpoint.notes.get("backbone")
        encoder = named or reference.get("path") or reference.get("hub")
        prompts = {side: recipe.reading(side).prompt for side in get_args(Side)}
        shown = ", ".join(f"{side} {prompt!r}" for side, prompt in prompts.items() if prompt)
        lines = {
            "model": f"{recipe.name}  {self.fingerprint[:12]}",
            "backbone": f"{encoder}; {self.dim} wide, {backbone.device}",
            "window": f"{recipe.window} tokens, longer texts: {recipe.long}",
            "pooling": recipe.pooling
            + (" of the text alone" if recipe.mean_over == "text" else "")
            + (", causal attention" if recipe.attention == "causal" else ""),
            "prompts": shown or "none",
            "units": recipe.units
            + (" + patterns" if recipe.patterns and recipe.units == "crf" else "")
            + (f" + {len(self.terms):,} terms" if self.terms else ""),
            "importance": recipe.importance,
            "widths": f"global {recipe.global_width or self.dim}, phrase {self._width(None)}",
            "budgets": f"query {recipe.query_budget}, document {recipe.document_budget}",
            "fusion": alphas,
            "trained": trained,
            "languages": ", ".join(self.languages) or "not stated",
        }
        return "\n".join(f"{name:<11}{value}" for name, value in lines.items())

    __repr__ = __str__

    def encode_step(
        self,
        texts: list[str],
        budget: Budget,
        width: int | None,
        advance: Callable[[float], None] = lambda _: None,
        *,
        side: Side = "document",
    ) -> Encoded:
        """One pass over a handful of texts; `encode_document` takes any number in such steps.

        Equal texts are encoded once: they get the very same numbers, and tie wherever they go. With
        one BLAS thread, the last bit depends neither on the cores nor on the number of workers.
        """
        once, order = distinct(texts)
        # Long texts are read one by one after the others, which are the rule.
        is_long = np.array([self._is_long(text, side) for text in once], np.bool_)
        short = [text for text, long in zip(once, is_long, strict=True) if not long]
        steps = list(in_steps(short)) if short or is_long.any() else [[]]
        with one_blas_thread():
            parts = [
                self._views(self._states(s, side, advance), budget, width, side) for s in steps
            ]
            for i in np.flatnonzero(is_long):
                parts.append(self._encode_long(once[i], budget, width, side, advance))
        encoded = concatenate(parts)
        if is_long.any():
            encoded = encoded.take(np.argsort(np.argsort(is_long, kind="stable")))
        advance(len(texts) - len(once))
        return encoded if order is None else encoded.take(order)

    def _encode_long(
        self,
        text: str,
        budget: Budget,
        width: int | None,
        side: Side,
        advance: Callable[[float], None],
    ) -> Encoded:
        """A long text, stretch by stretch: the states of all are never in memory at once."""
        backbone, reading = self.checkpoint.backbone, self.recipe.reading(side)
        parts = []
        for start, piece in self._stretches(text, side):
            states = self._states([piece], side)
            advance(len(piece) / len(text))
            encoded = self._views(states, stretches.budget_of_stretch(budget), width, side)
            lengths = np.diff(states.tokens.offsets)
            (averaged,) = pooled_states(backbone, reading, lengths, states.windows).tolist()
            parts.append(stretches.Stretch(start, encoded, states.pooled, averaged))
        return stretches.join(parts, budget, self.recipe.global_width or self.dim)

    def _is_long(self, text: str, side: Side) -> bool:
        return len(text) > stretches.SIZE and self.recipe.reading(side).long == "stitch"

    def _stretches(self, text: str, side: Side) -> Iterator[tuple[int, str]]:
        """A long text in pieces that are read by themselves, others as they are."""
        if self._is_long(text, side):
            return sentences.stretches(text, stretches.SIZE)
        return iter([(0, text)])

    def _views(self, states: States, budget: Budget, width: int | None, side: Side) -> Encoded:
        importance = self._importance(states.tokens, states.inner)
        units, dropped = phrase.represent(
            states.tokens,
            states.states,
            importance,
            self._begins(states.tokens, states.inner),
            width=self._width(width),
            budget=budget,
        )
        return Encoded(
            global_=global_.represent(states.pooled, self.recipe.global_width or self.dim),
            units=units,
            lexical=lexical.represent(
                states.tokens,
                self._lexical_weights(states, importance, side),
                self.checkpoint.backbone.tokenizer.unknown,
            ),
            dropped=dropped,
            coverage=Coverage(
                tokens=np.diff(states.tokens.offsets).astype(np.int32),
                windows=states.windows,
                cut=states.cut,
                importance=_sum_by(importance, states.tokens.offsets),
                kept=_sum_by(units.weights, units.offsets),
            ),
        )

    def _states(
        self, texts: list[str], side: Side, advance: Callable[[float], None] = lambda _: None
    ) -> States:
        backbone, reading = self.checkpoint.backbone, self.recipe.reading(side)
        tokens = backbone.tokenizer.tokens(texts, reading.prompt)
        return encode_states(backbone, tokens, reading, threads=self.threads, advance=advance)

    def _partition(self, texts: list[str], side: Side) -> tuple[Tokens, Bool, F32]:
        """Tokens, where units begin, and importance; the encoder runs only if a head needs it."""
        if self.recipe.units == "crf" or self.recipe.importance == "head":
            states = self._states(texts, side)
            tokens, inner = states.tokens, states.inner
        else:
            backbone, reading = self.checkpoint.backbone, self.recipe.reading(side)
            tokens = backbone.tokenizer.tokens(texts, reading.prompt)
            if reading.long == "cut":
                tokens = cut_tokens(tokens, capacity(backbone, reading))
            inner = np.empty((0, self.dim), np.float32)
        return tokens, self._begins(tokens, inner), self._importance(tokens, inner)

    def _begins(self, tokens: Tokens, inner: F32) -> Bool:
        """Where units begin: the CRF's tags, settled by patterns, or a rule; then the terminology's
        overrides."""
        head = self.checkpoint.crf
        if self.recipe.units == "crf" and head is not None:
            scores = crf_head.emissions(head, inner, tokens.offsets)
            tags, _ = crf_head.viterbi(head, scores, tokens.offsets)
            begins = keep_characters_whole(begins_of_tags(tags, tokens.offsets), tokens)
            if self.recipe.patterns:
                begins = patterns.override(begins, tokens)
        else:
            begins = rules.rule(self.recipe.units)(tokens)
        if self.terms is None:
            return begins
        return keep_characters_whole(override(begins, tokens, self.terms), tokens)

    def _importance(self, tokens: Tokens, inner: F32) -> F32:
        kind, parts = self.recipe.importance, self.checkpoint
        if kind == "head" and parts.head is not None:
            return parts.head.importance(inner)
        if kind == "idf" and parts.idf is not None:
            return parts.idf.importance(tokens.ids)
        return np.ones(len(tokens.ids), np.float32)

    def _lexical_weights(self, states: States, importance: F32, side: Side) -> F32:
        head = self.checkpoint.lexical
        if self.recipe.lexical == "importance" or head is None:
            return importance
        return head.weights(states.tokens, states.inner, side)

    def _width(self, width: int | None) -> int:
        wanted = self.recipe.phrase_width or self.dim if width is None else width
        return whole("width", wanted, 1, BudgetError, self.dim)


def _cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _sum_by(values: F32, offsets: I64) -> F32:
    sums = np.bincount(item_of_row(offsets), values, minlength=len(offsets) - 1)
    return sums.astype(np.float32)
