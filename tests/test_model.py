"""HPlus: contracts of encoding, segmenting, scoring; bad input; long texts; workers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from builders import assert_same
from hplus import Budget, BudgetError, Encoded, HPlus, HPlusError, InputError, Terms
from hplus import texts as texts_module
from hplus.backbones.bert import Bert
from hplus.evaluate.data import demo_folder, read_beir
from hplus.heads.crf import CRF, emissions, viterbi
from hplus.heads.importance import ImportanceHead
from hplus.states_file import stored_states, unit_begins
from hplus.types import concatenate
from hplus.views import fusion

TEXTS = [
    "Metformin lowers HbA1c in type 2 diabetes with chronic kidney disease.",
    "5 mg/kg of sodium, twice daily; the patient has heart failure.",
    "糖尿病患者的治疗 and type 1 diabetes",
    "e\u0301clair naïve ＴＹＰＥ２\r\nnext line 👩‍🔬🇫🇷 α-amylase ½",
    "",
    "...",
    "   \t\n",
    "word " * 90,
]
ODD = st.text(
    st.one_of(st.characters(codec="utf-8"), st.sampled_from("aé\u0301Ａ糖👩\u200d\r\n \x00-/5.")),
    max_size=60,
)


def with_heads(model: HPlus, seed: int = 0) -> HPlus:
    """The model with random heads that count as trained, for the CRF's path."""
    random = np.random.default_rng(seed)

    def draw(*shape: int) -> np.ndarray:
        return random.normal(0, 1, shape).astype(np.float32)

    crf = CRF(draw(3, model.dim), draw(3), draw(3, 3), draw(3), draw(3))
    head = ImportanceHead(draw(model.dim) / 4, 0.1)
    recipe = replace(model.recipe, units="crf", importance="head", trained=("crf", "importance"))
    checkpoint = replace(model.checkpoint, crf=crf, head=head, recipe=recipe)
    other = HPlus.__new__(HPlus)
    other.__dict__.update(model.__dict__ | {"checkpoint": checkpoint})
    return other


def test_a_text_alone_and_in_any_batch(tiny: HPlus) -> None:
    together = tiny.encode_document(TEXTS)
    backwards = tiny.encode_document(TEXTS[::-1])
    for i, text in enumerate(TEXTS):
        alone = tiny.encode_document([text])
        assert_same(alone, together[i], rtol=1e-5)
        assert_same(alone, backwards[len(TEXTS) - 1 - i], rtol=1e-5)


def test_a_text_alone_and_in_a_batch_on_the_real_weights(mini: HPlus) -> None:
    together = mini.encode_document(TEXTS)
    for i, text in enumerate(TEXTS):
        assert_same(mini.encode_document([text]), together[i], rtol=1e-5)


def test_crf_partitions_are_equal_in_any_batch_unless_the_margin_is_small(tiny: HPlus) -> None:
    model = with_heads(tiny)
    together = model.segment(TEXTS)
    for text, units in zip(TEXTS, together, strict=True):
        alone = model.states(text)
        crf = model.checkpoint.crf
        assert crf is not None
        _, margin = viterbi(
            crf, emissions(crf, alone.inner, alone.tokens.offsets), alone.tokens.offsets
        )
        if margin[0] > 1e-4:
            assert [u.text for u in model.segment(text)[0]] == [u.text for u in units]


@settings(max_examples=60, deadline=None)
@given(st.lists(ODD, max_size=4))
def test_units_cover_the_text_they_claim(tiny: HPlus, texts: list[str]) -> None:
    for model in (tiny, with_heads(tiny)):
        for text, units in zip(texts, model.segment(texts), strict=True):
            position = 0
            for unit in units:
                assert unit.text == text[unit.start : unit.end]
                assert position <= unit.start <= unit.end <= len(text)
                assert unit.weight > 0
                position = unit.end


@settings(max_examples=40, deadline=None)
@given(st.lists(ODD, max_size=3), st.integers(1, 12), st.integers(1, 32))
def test_a_slice_equals_a_fresh_encoding(
    tiny: HPlus, texts: list[str], count: int, width: int
) -> None:
    whole = tiny.encode_document(texts, budget=Budget())
    fresh = tiny.encode_document(texts, budget=Budget(count), width=width)
    assert_same(whole.at(budget=count, width=width), fresh, rtol=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.lists(ODD, max_size=3), st.integers(1, 12))
def test_merging_keeps_all_importance(tiny: HPlus, texts: list[str], count: int) -> None:
    merged = tiny.encode_document(texts, budget=Budget(count, policy="merge"))
    np.testing.assert_allclose(merged.coverage.kept, merged.coverage.importance, rtol=1e-4)
    assert (np.diff(merged.units.offsets) <= count).all()
    every_span = tiny.encode_document(texts, budget=Budget()).units.spans
    found = sorted(map(tuple, merged.units.spans.tolist()))
    assert found == sorted(map(tuple, every_span.tolist()))


def test_vectors_have_length_one_and_units_fall_in_importance(tiny: HPlus) -> None:
    encoded = tiny.encode_document(TEXTS, budget=Budget())
    lengths = np.linalg.norm(encoded.units.vectors, axis=1)
    known = lengths > 0  # a unit of unknown tokens has no direction
    assert known.mean() > 0.9
    np.testing.assert_allclose(lengths[known], 1, atol=1e-5)
    for i in range(len(TEXTS)):
        assert (np.diff(encoded[i].units.weights) <= 0).all()


def test_empty_texts_have_no_units_and_match_nothing(tiny: HPlus) -> None:
    scores = tiny.score("type 2 diabetes", ["", "  ", "type 2 diabetes"], explain=True)
    assert scores.fused[:2].tolist() == [0, 0]
    assert scores.ranking().tolist() == [2, 0, 1]
    assert scores.explanations is not None
    assert scores.explanations[0].phrase[0].document_spans == []


def test_an_empty_query_scores_nothing(tiny: HPlus) -> None:
    scores = tiny.score("", TEXTS)
    assert not scores.fused.any()
    assert scores.phrase is not None
    assert not scores.phrase.any()


def test_no_texts_at_all(tiny: HPlus) -> None:
    encoded = tiny.encode_document([])
    assert len(encoded) == 0
    assert encoded.units.vectors.shape == (0, tiny.dim)
    assert tiny.segment([]) == []
    assert list(tiny.stream_documents(iter([]))) == []
    assert len(tiny.encode_query([])) == 0


def test_explanations_sum_to_the_scores(mini: HPlus) -> None:
    documents = [text for text in TEXTS if text.strip()]
    scores = mini.score(
        "type 2 diabetes and sodium 5 mg/kg", documents, budget=Budget(4), explain=True
    )
    assert scores.explanations is not None
    assert scores.phrase_raw is not None
    assert scores.lexical_raw is not None
    for i, explanation in enumerate(scores.explanations):
        assert sum(match.contribution for match in explanation.phrase) == scores.phrase_raw[i]
        assert sum(term.contribution for term in explanation.lexical) == scores.lexical_raw[i]
        assert sum(explanation.shares.values()) == pytest.approx(scores.fused[i], abs=1e-12)
        for match in explanation.phrase:
            spelled = " … ".join(documents[i][s:e] for s, e in match.document_spans)
            assert match.document_text == spelled
    assert scores.explanations[0].dropped


def test_alphas_switch_views_off(tiny: HPlus) -> None:
    scores = tiny.score("type 2 diabetes", TEXTS, alphas={"phrase": 2.0}, explain=True)
    assert scores.global_ is None
    assert scores.lexical is None
    assert scores.phrase is not None
    np.testing.assert_array_equal(scores.fused, 2.0 * scores.phrase)
    assert scores.explanations is not None
    assert list(scores.explanations[0].shares) == ["phrase"]


def test_terms_become_units_and_change_the_fingerprint(tiny_folder: Path) -> None:
    plain = HPlus(tiny_folder, units="tokens")
    model = HPlus(tiny_folder, units="tokens", terms=Terms(["heart failure", "type 2"]))
    units = [unit.text for unit in model.segment("Heart failure in type 2")[0]]
    assert units[0] == "Heart failure"
    assert units[-1] == "type 2"
    assert model.fingerprint != plain.fingerprint
    assert "2 terms" in str(model)


def test_long_texts_are_stitched_or_cut_and_reported(tiny_folder: Path) -> None:
    text = " ".join(f"w{i}" for i in range(1500))  # 3,000 tokens and more
    stitched = HPlus(tiny_folder, window=64).encode_document([text, "type 2"], budget=Budget())
    tokens = HPlus(tiny_folder).checkpoint.backbone.tokenizer.tokens([text])
    assert len(tokens.ids) >= 3000
    assert stitched.coverage.tokens[0] == len(tokens.ids)
    assert stitched.coverage.importance[0] == pytest.approx(len(tokens.ids))
    assert stitched.coverage.windows[0] > 1
    assert stitched.coverage.cut.tolist() == [0, 0]
    cut = HPlus(tiny_folder, window=64, long="cut").encode_document([text, "type 2"])
    assert cut.coverage.tokens[0] == 62
    assert cut.coverage.cut[0] == len(tokens.ids) - 62
    assert cut.coverage.cut[1] == 0


@pytest.mark.parametrize("bad", [None, 5, b"bytes", ["x"]])
def test_a_bad_element_is_named_by_its_position(tiny: HPlus, bad: object) -> None:
    with pytest.raises(InputError, match=r"texts\[1\] is"):
        tiny.encode_document(["fine", bad])  # type: ignore[list-item]
    with pytest.raises(InputError, match=r"texts\[1\] is"):
        tiny.segment(["fine", bad])  # type: ignore[list-item]


@pytest.mark.parametrize("bad", [None, 5, b"bytes"])
def test_only_lists_of_texts_are_accepted(tiny: HPlus, bad: object) -> None:
    with pytest.raises(InputError, match="expected"):
        tiny.encode_query(bad)  # type: ignore[arg-type]


def test_a_stream_delivers_what_precedes_the_bad_element(tiny: HPlus) -> None:
    def source() -> Iterator[str]:
        yield from TEXTS
        yield 5  # type: ignore[misc]

    given_out: list[Encoded] = []
    with pytest.raises(InputError, match=rf"texts\[{len(TEXTS)}\]"):
        given_out.extend(tiny.stream_documents(source()))
    assert sum(len(part) for part in given_out) == len(TEXTS)


@pytest.mark.parametrize(
    "text",
    ["\ud800 alone", "nul\x00byte", "!?", "x" * 5000, "👩‍🔬" * 50, "\u202eright", "a" * 199 + "é"],
)
def test_odd_texts_have_a_defined_result(tiny: HPlus, text: str) -> None:
    encoded = tiny.encode_document(["type 2 diabetes", text, "heart failure"])
    assert np.isfinite(encoded.units.vectors).all()
    assert_same(encoded[0], tiny.encode_document(["type 2 diabetes"]), rtol=1e-5)
    assert_same(encoded[2], tiny.encode_document(["heart failure"]), rtol=1e-5)


def test_two_hundred_thousand_characters(tiny: HPlus) -> None:
    text = "chronic kidney disease of the heart " * 5600
    assert len(text) > 200_000
    encoded = tiny.encode_document([text], budget=Budget(32))
    assert encoded.coverage.tokens[0] == 6 * 5600
    assert len(encoded.units.weights) == 32


def test_a_stream_is_lazy_and_in_order(tiny: HPlus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts_module, "STEP_TEXTS", 2)
    taken = 0

    def source() -> Iterator[str]:
        nonlocal taken
        for text in TEXTS:
            taken += 1
            yield text

    stream = tiny.stream_documents(source())
    first = next(stream)
    assert len(first) == 2
    assert taken == 2
    whole = concatenate([first, *stream])
    assert_same(whole, tiny.encode_document(TEXTS), rtol=1e-5)


@pytest.mark.parametrize("workers", [1, 2])
def test_what_precedes_a_failing_element_is_delivered(
    tiny: HPlus, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr(texts_module, "STEP_TEXTS", 3)

    def source(bad_after: int) -> Iterator[str]:
        yield from TEXTS[:bad_after]
        raise OSError("the disk went away")

    for bad_after in (0, 2, 7):
        given_out: list[Encoded] = []
        with pytest.raises(OSError, match="went away"):
            given_out.extend(tiny.stream_documents(source(bad_after), workers=workers))
        assert sum(map(len, given_out)) == bad_after


@pytest.mark.slow
def test_one_process_per_device(tiny: HPlus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three processes that import torch; `test_each_device_gets_a_process` has none."""
    monkeypatch.setattr(texts_module, "STEP_TEXTS", 3)
    by_torch = tiny.encode_document(TEXTS, devices=["cpu", "cpu"])
    assert_same(by_torch, tiny.encode_document(TEXTS), rtol=1e-4)
    with pytest.raises(HPlusError, match="device 'nosuch' cannot be used"):
        tiny.encode_document(TEXTS, devices=["nosuch"])


def test_each_device_gets_a_process(tiny: HPlus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts_module, "STEP_TEXTS", 3)
    asked: list[object] = []

    def pool(processes: int, *, initargs: tuple[Any, ...], **_: object) -> None:
        asked.append([initargs[0].get(timeout=60) for _ in range(processes)])
        raise InputError("no process is started")

    monkeypatch.setattr("hplus.workers.ProcessPoolExecutor", pool)
    with pytest.raises(InputError, match="no process is started"):
        tiny.encode_document(TEXTS, devices=["cuda:0", "cuda:1"])
    assert asked == [[(0, "cuda:0"), (1, "cuda:1")]]
    with pytest.raises(InputError, match="list"):
        tiny.encode_document(TEXTS, devices="cpu")
    with pytest.raises(InputError, match="expected workers to be a whole number of 1"):
        tiny.encode_document(TEXTS, workers=0)


def test_workers_give_what_one_process_gives(tiny: HPlus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts_module, "STEP_TEXTS", 3)
    model = HPlus(tiny.checkpoint.source, terms=Terms(["type 2"])).fit_idf(TEXTS)
    assert_same(model.encode_document(TEXTS, workers=2), model.encode_document(TEXTS), rtol=1e-5)


def test_one_text_never_starts_a_process(tiny: HPlus, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a process pool was started")

    monkeypatch.setattr("hplus.workers.ProcessPoolExecutor", refuse)
    assert len(tiny.encode_document("type 2 diabetes", workers=4)) == 1


def test_torch_and_onnxruntime_agree(tiny: HPlus) -> None:
    by_torch = HPlus(tiny.checkpoint.source, device="cpu").fit_idf(TEXTS)
    by_numpy = HPlus(tiny.checkpoint.source).fit_idf(TEXTS)
    assert_same(by_torch.encode_document(TEXTS), by_numpy.encode_document(TEXTS), rtol=1e-4)


def test_states_hold_everything_per_token(tiny: HPlus) -> None:
    states = tiny.states(TEXTS)
    n = len(states.tokens.ids)
    assert states.states.shape == (n, tiny.dim)
    assert states.importance.shape == states.tags.shape == (n,)
    assert states.pooled.shape == (len(TEXTS), tiny.dim)


def test_settings_are_checked_at_once(tiny_folder: Path) -> None:
    for setting, value in (
        ("units", "sentences"),
        ("units", "crf"),
        ("importance", "head"),
        ("importance", "loud"),
        ("long", "wrap"),
        ("fusion", {"phrase": -1}),
        ("colour", "red"),
        ("trained", ("crf",)),
        ("units", 5),
        ("document_budget", 16),
        ("window", 9999),
        ("global_width", 9999),
        ("phrase_width", 0),
    ):
        with pytest.raises(HPlusError):
            HPlus(tiny_folder, **{setting: value})
    for width in (33, 0, 8.0):
        with pytest.raises(
            BudgetError, match=rf"width to be a whole number of 1 (to 32|or more), got {width}"
        ):
            HPlus(tiny_folder).encode_query("x", width=width)  # type: ignore[arg-type]
    for budget in ("16", 2.5, 0):
        with pytest.raises(BudgetError, match="budget"):
            Budget(budget)  # type: ignore[arg-type]


def test_equal_documents_tie_and_keep_their_order(mini: HPlus) -> None:
    copy, other = "Hypokalaemia with U waves on the ECG.", "Sodium is low in the blood."
    for n in range(12):
        documents = [copy, *([other] * n), copy]
        scores = mini.score("hypokalaemia ECG changes", documents)
        assert scores.fused[0] == scores.fused[-1]
        assert scores.ranking().tolist()[:2] == [0, n + 1]


def test_a_score_does_not_depend_on_the_other_documents(mini: HPlus) -> None:
    query, documents = mini.encode_query("type 2 diabetes"), mini.encode_document(TEXTS)
    together = fusion.score(query, documents, mini.recipe.fusion).fused
    for i in range(len(TEXTS)):
        assert fusion.score(query, documents[i], mini.recipe.fusion).fused[0] == together[i]


def test_score_takes_one_query_and_any_list_of_documents(tiny: HPlus) -> None:
    assert len(tiny.score("type 2", "heart failure", explain=True)) == 1
    generated = tiny.score("type 2", (text for text in TEXTS), explain=True)  # type: ignore[arg-type]
    assert generated.explanations is not None
    assert len(generated.explanations) == len(TEXTS)
    with pytest.raises(InputError, match="one query"):
        tiny.score(["a", "b"], TEXTS)  # type: ignore[arg-type]
    queries, documents = tiny.encode_query(TEXTS), tiny.encode_document(TEXTS)
    with pytest.raises(InputError, match="one query"):
        fusion.score(queries, documents, tiny.recipe.fusion)
    with pytest.raises(InputError, match="8 wide"):
        fusion.score(queries[0].at(width=8), documents, tiny.recipe.fusion)


def test_merged_long_texts_alone_and_in_a_batch(mini: HPlus) -> None:
    passages = read_beir(demo_folder("en")).documents
    texts = [" ".join(passages[i : i + 3]) for i in range(0, 9, 3)]
    for budget in (Budget(8, policy="merge"), Budget(16, policy="ward")):
        together = mini.encode_document(texts, budget=budget)
        for i, text in enumerate(texts):
            assert_same(mini.encode_document(text, budget=budget), together[i], rtol=1e-5)


def test_untrained_heads_cannot_be_switched_on_by_hand(tiny: HPlus, tmp_path: Path) -> None:
    model = with_heads(tiny)
    model.checkpoint = replace(
        model.checkpoint, recipe=replace(tiny.recipe, units="runs", importance="idf", trained=())
    )
    model.save(tmp_path / "heads")
    HPlus(tmp_path / "heads")
    for setting in ({"units": "crf"}, {"importance": "head"}):
        with pytest.raises(HPlusError, match="does not list it as trained"):
            HPlus(tmp_path / "heads", **setting)


def test_overlapping_encodings_leave_blas_as_it_was(tiny: HPlus) -> None:
    before = blas_threads()
    texts = [f"chronic kidney disease {i} " * 20 for i in range(60)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: tiny.encode_document(texts), range(6)))
    assert blas_threads() == before


def test_segmenting_by_rules_does_not_run_the_encoder(
    tiny: HPlus, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the encoder ran")

    monkeypatch.setattr(tiny.checkpoint.backbone, "layers", refuse)
    with pytest.raises(AssertionError, match="the encoder ran"):
        tiny.encode_query("heart failure")
    assert [u.text for u in tiny.segment("heart failure")[0]] == ["heart failure"]


def test_segments_are_the_units_of_the_encoding(tiny_folder: Path) -> None:
    text = "chronic kidney disease and heart failure, " * 30
    for long in ("stitch", "cut"):
        model = HPlus(tiny_folder, window=64, long=long)
        encoded = model.encode_document(text, budget=Budget())
        spans = sorted((unit.start, unit.end) for unit in model.segment(text)[0])
        assert spans == sorted(map(tuple, encoded.units.spans.tolist()))


def test_printing_tells_the_recipe(mini: HPlus) -> None:
    shown = str(mini)
    for part in (
        "MiniLM",
        "crf",
        "head",
        "merge to 32 units",
        "trained    crf, importance",
        "stitch",
        "pooling    mean",
        "prompts    none",
    ):
        assert part in shown


def test_mini_is_the_model_it_has_always_been(mini: HPlus, tmp_path: Path) -> None:
    """Indexes and caches of states made before pooling and prompts existed still open."""
    assert mini.fingerprint == "a424f68fa9986975f6df8a78710e0c139ab77806b629df7b87abcf73eaf86432"
    for side in ("query", "document"):
        stored_states(mini, ["type 2 diabetes", "糖尿病"], tmp_path, side=side)  # type: ignore[arg-type]
    assert [folder.name for folder in tmp_path.iterdir()] == ["2ed792d810a8206f8c49548a"]


PROMPTS = {"query_prompt": "type: ", "document_prompt": "disease of the heart: "}


def test_each_side_has_its_prompt(tiny_folder: Path) -> None:
    """A prompt moves vectors; units, spans and lexical tokens stay those of the text."""
    plain, prompted = HPlus(tiny_folder), HPlus(tiny_folder, **PROMPTS)  # type: ignore[arg-type]
    as_query = HPlus(tiny_folder, document_prompt=PROMPTS["query_prompt"])
    texts = [text for text in TEXTS if text.strip()]
    query, document = prompted.encode_query(texts), prompted.encode_document(texts)
    assert_same(query, as_query.encode_document(texts), rtol=1e-5)
    for encoded in (query, document):
        without = plain.encode_document(texts)
        assert np.abs(encoded.global_ - without.global_).max() > 0.01
        assert np.abs(encoded.units.vectors - without.units.vectors).max() > 0.01
        for part, name in (("units", "spans"), ("units", "weights"), ("lexical", "ids")):
            np.testing.assert_array_equal(
                getattr(getattr(encoded, part), name), getattr(getattr(without, part), name)
            )
    assert np.abs(query.global_ - document.global_).max() > 0.01


def test_segments_and_states_know_the_side(tiny_folder: Path) -> None:
    model = with_heads(HPlus(tiny_folder, **PROMPTS))  # type: ignore[arg-type]
    texts = [text for text in TEXTS if text.strip()]
    for side, encode in (("query", model.encode_query), ("document", model.encode_document)):
        encoded = encode(texts, budget=Budget())
        for i, units in enumerate(model.segment(texts, side=side)):  # type: ignore[arg-type]
            spans = sorted((unit.start, unit.end) for unit in units)
            assert spans == sorted(map(tuple, encoded[i].units.spans.tolist()))
        pooled = model.states(texts, side=side).pooled  # type: ignore[arg-type]
        unit = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        np.testing.assert_allclose(encoded.global_, unit, atol=1e-5)
    assert model.segment(texts) == model.segment(texts, side="document")


def test_idf_counts_documents_as_they_are_read(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a prompt, the first token of a text may be another one."""
    model = HPlus(tiny_folder, document_prompt="disease: ")
    tokenizer, prompts = model.checkpoint.backbone.tokenizer, []
    tokens = tokenizer.tokens

    def watching(texts: list[str], prompt: str = "") -> Any:
        prompts.append(prompt)
        return tokens(texts, prompt)

    monkeypatch.setattr(tokenizer, "tokens", watching)
    model.fit_idf(TEXTS)
    assert set(prompts) == {"disease: "}


def test_scores_use_the_prompt_of_each_side(tiny_folder: Path) -> None:
    model = HPlus(tiny_folder, pooling="cls", **PROMPTS)  # type: ignore[arg-type]
    scores = model.score("heart failure", TEXTS[:3])
    query, documents = model.encode_query("heart failure"), model.encode_document(TEXTS[:3])
    np.testing.assert_allclose(scores.global_, documents.global_ @ query.global_[0], atol=1e-6)


def test_patterns_settle_the_units_of_the_crf_before_terms_do() -> None:
    text = "warfarin 5 mg p.o. for H. pylori"

    def units(**settings: Any) -> list[str]:
        return [unit.text for unit in HPlus("mini", **settings).segment(text)[0]]

    assert units(patterns=True) == ["warfarin", "5 mg", "p.o.", "for", "H. pylori"]
    assert units(patterns=True, terms=Terms(["warfarin 5 mg"]))[0] == "warfarin 5 mg"
    assert units(patterns=True, units="tokens") == units(units="tokens")
    assert "crf + patterns" in str(HPlus("mini", patterns=True))
    assert "patterns" not in str(HPlus("mini"))


def test_encoding_and_stored_states_are_settled_alike(tmp_path: Path) -> None:
    texts = ["Lower risk (P < 0.001) with warfarin 5 mg.", "No fever in the U.S. army"]
    model = HPlus("mini", patterns=True)
    assert model.checkpoint.crf is not None
    stored = stored_states(model, texts, tmp_path)
    begins = unit_begins(model.checkpoint.crf, stored, settled=True)
    assert begins.sum() == sum(map(len, model.segment(texts)))
    assert not np.array_equal(begins, unit_begins(model.checkpoint.crf, stored))


@pytest.mark.parametrize(
    "change",
    [
        {"pooling": "cls"},
        {"pooling": "last"},
        {"mean_over": "text"},
        {"query_prompt": "q: "},
        {"document_prompt": "q: "},
    ],
)
def test_what_changes_vectors_changes_the_fingerprint(
    tiny_folder: Path, change: dict[str, str]
) -> None:
    assert HPlus(tiny_folder, **change).fingerprint != HPlus(tiny_folder).fingerprint


@pytest.mark.parametrize("many", [False, True])
def test_blas_has_one_thread_while_the_encoder_runs(
    tiny: HPlus, monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    """On a busy machine its threads would wait for one another; and one text starts no threads."""
    seen: set[int] = set()
    layers = Bert.layers

    def watching(*arguments: Any) -> Any:
        seen.update(blas_threads())
        assert many or threading.current_thread() is threading.main_thread()
        return layers(*arguments)

    monkeypatch.setattr(Bert, "layers", watching)
    monkeypatch.setattr(tiny, "threads", 2)
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        tiny.encode_query(TEXTS[7:] * 20 + [TEXTS[0]] if many else "heart failure")
        assert blas_threads() == before
    assert seen == {1}


def blas_threads() -> list[int]:
    """Threads of numpy's BLAS; scipy and torch have their own."""
    return [
        info["num_threads"]
        for info in threadpool_info()
        if info["user_api"] == "blas" and "numpy" in info["filepath"]
    ]
