"""Prompts and pooling against the tokenizers library and direct passes."""

import json
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, processors

from hplus.backbones.bert import Bert
from hplus.backbones.encode import MeanOver, Pooling, Reading, encode_states, plan_windows
from hplus.backbones.tokenizer import Tokenizer
from hplus.errors import InputError
from hplus.types import F32, offsets_of
from tiny import tiny_tokenizer

PROMPT = "type of disease: "
TEXT = "Chronic kidney disease, 5 mg/kg. 糖尿病"
LONG = "heart failure with low sodium in the patient " * 12


def states_of(backbone: Any, ids: list[int]) -> F32:
    states: F32 = backbone.forward(np.array(ids, np.int32), offsets_of([len(ids)]))
    return states


def read(backbone: Any, texts: list[str], reading: Reading, threads: int = 1) -> Any:
    tokens = backbone.tokenizer.tokens(texts, reading.prompt)
    return encode_states(backbone, tokens, reading, threads=threads)


def pooled(states: F32, reading: Reading, lead: int) -> F32:
    """The global vector of one window, from its states with all that surrounds the text."""
    if reading.pooling == "cls":
        return states[0]
    if reading.pooling == "last":
        return states[-1]
    own = states if reading.mean_over == "all" else states[lead:-1]
    mean: F32 = own.mean(axis=0)
    return mean


@pytest.mark.parametrize("prompt", ["", PROMPT, "Query:", "糖尿病："])
@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
@pytest.mark.parametrize("mean_over", ["all", "text"])
def test_a_window_is_prompt_and_text_as_the_tokenizer_joins_them(
    tiny: Bert, prompt: str, pooling: Pooling, mean_over: MeanOver
) -> None:
    reading = Reading(64, prompt=prompt, pooling=pooling, mean_over=mean_over)
    found = read(tiny, [TEXT], reading)
    joined = tiny.tokenizer.inner.encode(prompt + TEXT).ids
    assert len(joined) <= 64
    states = states_of(tiny, joined)
    lead = len(joined) - 1 - len(found.states)
    assert (lead > 1) == bool(prompt)
    np.testing.assert_allclose(found.states, states[lead:-1], atol=1e-6)
    np.testing.assert_allclose(found.pooled[0], pooled(states, reading, lead), atol=1e-6)


def test_a_prompt_changes_states_and_is_not_part_of_the_text(tiny: Bert) -> None:
    plain, prompted = (read(tiny, [TEXT], Reading(64, prompt=prompt)) for prompt in ("", PROMPT))
    np.testing.assert_array_equal(prompted.tokens.ids, plain.tokens.ids)
    np.testing.assert_array_equal(prompted.tokens.spans, plain.tokens.spans)
    assert np.abs(prompted.states - plain.states).max() > 0.01


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
@pytest.mark.parametrize("mean_over", ["all", "text"])
def test_every_window_of_a_long_text_begins_with_the_prompt(
    tiny: Bert, pooling: Pooling, mean_over: MeanOver
) -> None:
    reading = Reading(32, prompt=PROMPT, pooling=pooling, mean_over=mean_over)
    found = read(tiny, [LONG], reading)
    lead = [*tiny.tokenizer.prefix, *tiny.tokenizer.prompt_ids(PROMPT)]
    plan = plan_windows(found.tokens.offsets, 32 - len(lead) - 1)
    n = len(found.tokens.ids)
    assert len(plan.text) == found.windows[0] > 2
    firsts, lasts, total = [], [], np.zeros(tiny.dim)
    for first, last, keep_first, keep_last in zip(
        plan.first, plan.last, plan.keep_first, plan.keep_last, strict=True
    ):
        ids = [*lead, *found.tokens.ids[first:last].tolist(), *tiny.tokenizer.suffix]
        states = states_of(tiny, ids)
        at = len(lead) - first
        kept = states[keep_first + at : keep_last + at]
        np.testing.assert_allclose(found.states[keep_first:keep_last], kept, atol=1e-6)
        firsts.append(states[0])
        lasts.append(states[-1])
        total += kept.sum(axis=0)
        if mean_over == "all":
            total += states[: len(lead)].sum(axis=0) if first == 0 else 0
            total += states[-1] if last == n else 0
    expected = {
        "mean": total / (n + (len(lead) + 1 if mean_over == "all" else 0)),
        "cls": np.mean(firsts, axis=0),
        "last": np.mean(lasts, axis=0),
    }
    np.testing.assert_allclose(found.pooled[0], expected[pooling], atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_a_text_does_not_depend_on_its_neighbours(tiny: Bert, pooling: Pooling) -> None:
    texts = [TEXT, "", LONG, "heart", "   ", "(5 mg)"]
    reading = Reading(32, prompt=PROMPT, pooling=pooling)
    together = read(tiny, texts, reading, threads=2)
    for row, text in enumerate(texts):
        alone = read(tiny, [text], reading)
        rows = slice(*together.tokens.offsets[row : row + 2])
        np.testing.assert_allclose(together.states[rows], alone.states, atol=1e-5)
        np.testing.assert_allclose(together.pooled[row], alone.pooled[0], atol=1e-5)
        assert bool(np.any(alone.pooled)) == bool(text.strip())


def test_a_prompt_that_leaves_no_room_is_refused(tiny: Bert) -> None:
    taken = 2 + len(tiny.tokenizer.prompt_ids(PROMPT))
    assert len(read(tiny, ["heart"], Reading(taken + 1, prompt=PROMPT)).states) == 1
    with pytest.raises(InputError, match=rf"{taken + 1} to 64 tokens, got {taken} \({taken} of"):
        read(tiny, ["heart"], Reading(taken, prompt=PROMPT))


def metaspace() -> Tokenizer:
    """Words with the space before them, as XLM-RoBERTa's multilingual-e5 has them."""
    pieces = ["<unk>", "</s>", "▁", *("▁query", ":", "▁type", "type", "糖", "a", "(", ":(", "▁a")]
    inner = tokenizers.Tokenizer(
        models.Unigram([(piece, -float(len(pieces) - i)) for i, piece in enumerate(pieces)], 0)
    )
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    return Tokenizer(inner)


def spelled(tokenizer: Tokenizer, text: str, prompt: str) -> list[tuple[str, str]]:
    tokens = tokenizer.tokens([text], prompt)
    return [
        (tokenizer.token(i), text[a:b])
        for i, (a, b) in zip(tokens.ids.tolist(), tokens.spans.tolist(), strict=True)
    ]


def test_the_space_after_a_prompt_belongs_to_the_text_s_first_token() -> None:
    tokenizer = metaspace()
    lead = [tokenizer.token(i) for i in tokenizer.prompt_ids("query: ")]
    assert lead == ["▁query", ":"]
    assert spelled(tokenizer, "type", "query: ") == [("▁type", "type")]


def test_after_a_prompt_without_a_space_words_have_none(byte_level: tokenizers.Tokenizer) -> None:
    merged = json.loads(byte_level.to_str())
    merged["model"]["vocab"]["Ġa"] = byte_level.get_vocab_size()
    merged["model"]["merges"].append(["Ġ", "a"])
    tokenizer = Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(merged)))
    assert spelled(tokenizer, "typ", "q:") == [("ty", "ty"), ("p", "p")]
    assert spelled(tokenizer, " typ", "q:") == [("Ġtyp", "typ")]
    assert spelled(tokenizer, "typ", "q: ") == [("Ġtyp", "typ")]
    assert [tokenizer.token(i) for i in tokenizer.prompt_ids("q: ")] == ["q", ":"]


def test_a_token_is_never_made_of_prompt_and_text() -> None:
    """Joined, "query:(" ends in the one token ":("; then the text is read alone."""
    tokenizer = metaspace()
    joined = tokenizer.inner.encode("query:(a", add_special_tokens=False).tokens
    assert joined == ["▁query", ":(", "a"]
    assert [piece for _, piece in spelled(tokenizer, "(a", "query:")][-2:] == ["(", "a"]
    assert [tokenizer.token(i) for i in tokenizer.prompt_ids("query:")] == ["▁query", ":"]


def test_a_prompt_that_ends_in_half_a_word_is_kept(tiny: Bert) -> None:
    tokenizer = tiny.tokenizer
    ids = tokenizer.inner.encode("heart", add_special_tokens=False).ids
    assert tokenizer.prompt_ids("heart") == ids
    assert "".join(piece for _, piece in spelled(tokenizer, "failure", "heart")) == "failure"


@settings(max_examples=150, deadline=None)
@given(
    text=st.text(st.sampled_from("ab5. ,(:糖é\u0301👩\u200d\r\n\x00½"), max_size=12),
    prompt=st.text(st.sampled_from("ab: 糖\n"), max_size=5),
)
def test_spans_lie_in_the_text_whatever_the_prompt(
    byte_level: tokenizers.Tokenizer, text: str, prompt: str
) -> None:
    for tokenizer in (Tokenizer(byte_level), Tokenizer(tiny_tokenizer()), metaspace()):
        found, alone = (tokenizer.tokens([text], p).spans for p in (prompt, ""))
        assert (found >= 0).all()
        assert (found <= len(text)).all()
        assert (found[:, 0] <= found[:, 1]).all()
        assert (np.diff(found[:, 0]) >= 0).all()
        covered = ({i for a, b in spans.tolist() for i in range(a, b)} for spans in (found, alone))
        with_prompt, without = covered
        visible = {i for i, c in enumerate(text) if c.isprintable() and not c.isspace()}
        assert with_prompt & visible == without & visible
