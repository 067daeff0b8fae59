"""Encoders as their authors use them: settings from their files, vectors against transformers."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers import processors

from hplus import BackboneError, HPlus, InputError
from hplus.backbones.published import published_settings
from hplus.types import F32
from tiny import tiny_tokenizer, write_tiny

TEXTS = ["type 2 diabetes", "Heart failure with low sodium (5 mg/kg).", "糖尿病患者的治疗", "a"]
BGE = "Represent this sentence for searching relevant passages: "
QWEN = "Instruct: Given a query, retrieve passages that answer it\nQuery:"


def publish(folder: Path, pooling: dict[str, Any] | None, prompts: dict[str, Any] | None) -> None:
    if pooling is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    if prompts is not None:
        (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))


def modes(**chosen: bool) -> dict[str, Any]:
    names = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "lasttoken")
    return {f"pooling_mode_{name}": chosen.get(name, False) for name in names}


@pytest.mark.parametrize(
    ("pooling", "prompts", "expected"),
    [
        (None, None, {}),
        (modes(cls_token=True), None, {"pooling": "cls"}),
        (modes(mean_tokens=True), {"__version__": {}}, {"pooling": "mean"}),
        (modes(lasttoken=True), None, {"pooling": "last"}),
        ({"pooling_mode": "lasttoken"}, None, {"pooling": "last"}),
        ({"pooling_mode": "cls", "include_prompt": False}, None, {"pooling": "cls"}),
        (None, {"prompts": {"query": "q: "}}, {"query_prompt": "q: "}),
        (
            None,
            {"prompts": {"query": "q: ", "passage": "p: ", "x": "y"}},
            {"query_prompt": "q: ", "document_prompt": "p: "},
        ),
        (
            None,
            {
                "prompts": {"document": "d: ", "passage": "p: ", "x": "y"},
                "default_prompt_name": "x",
            },
            {"query_prompt": "y", "document_prompt": "d: "},
        ),
        (None, {"prompts": {"query": None}, "default_prompt_name": None}, {}),
    ],
)
def test_settings_are_read_from_the_folder(
    tmp_path: Path,
    pooling: dict[str, Any] | None,
    prompts: dict[str, Any] | None,
    expected: dict[str, str],
) -> None:
    publish(write_tiny(tmp_path), pooling, prompts)
    settings = published_settings(str(tmp_path), "bert")
    assert {name: value for name, value in settings.items() if value} == expected
    recipe = HPlus(tmp_path).recipe
    for name in ("pooling", "query_prompt", "document_prompt"):
        assert getattr(recipe, name) == expected.get(name, "mean" if name == "pooling" else "")


def test_what_the_user_says_goes_before_the_folder(tmp_path: Path) -> None:
    publish(write_tiny(tmp_path), modes(cls_token=True), {"prompts": {"query": "q: "}})
    recipe = HPlus(tmp_path, pooling="last", document_prompt="d: ").recipe
    assert (recipe.pooling, recipe.query_prompt, recipe.document_prompt) == ("last", "q: ", "d: ")
    assert HPlus(tmp_path, query_prompt="").recipe.query_prompt == ""


@pytest.mark.parametrize(
    ("pooling", "message", "way_out"),
    [
        (modes(), "got none", {"pooling": "mean"}),
        (modes(max_tokens=True), "got max", {"pooling": "mean"}),
        (modes(cls_token=True, mean_tokens=True), r"got mean \+ cls", {"pooling": "cls"}),
        ({"pooling_mode": "weightedmean"}, "got weightedmean", {"pooling": "mean"}),
        (
            {**modes(mean_tokens=True), "include_prompt": False},
            "include_prompt",
            {"mean_over": "text"},
        ),
    ],
)
def test_pooling_that_is_not_served_is_refused_unless_another_is_chosen(
    tmp_path: Path, pooling: dict[str, Any], message: str, way_out: dict[str, str]
) -> None:
    publish(write_tiny(tmp_path), pooling, None)
    with pytest.raises(BackboneError, match=message) as caught:
        HPlus(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert len(HPlus(tmp_path, **way_out).encode_document(TEXTS)) == len(TEXTS)


@pytest.mark.parametrize("name", ["1_Pooling/config.json", "config_sentence_transformers.json"])
@pytest.mark.parametrize("content", ["", "[]", "{"])
def test_damaged_files_are_named(tmp_path: Path, name: str, content: str) -> None:
    write_tiny(tmp_path)
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / name).write_text(content)
    with pytest.raises(BackboneError, match=name):
        HPlus(tmp_path)


def test_prompts_that_are_not_texts_are_refused(tmp_path: Path) -> None:
    publish(write_tiny(tmp_path), None, {"prompts": {"query": 5}})
    with pytest.raises(BackboneError, match="expected query_prompt to be text, got 5"):
        HPlus(tmp_path)
    with pytest.raises(InputError, match="expected query_prompt to be text"):
        HPlus(tmp_path, query_prompt="\ud800")


def by_transformers(folder: Path, prompt: str, pooling: str) -> Callable[[str], F32]:
    """Prompt and text through AutoModel, one at a time, pooled by hand and normalised."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()

    def vector(text: str) -> F32:
        ids = torch.tensor([tokenizer.encode(prompt + text).ids])
        with torch.inference_mode():
            states = model(input_ids=ids).last_hidden_state[0].numpy()
        found = {"mean": states.mean(axis=0), "cls": states[0], "last": states[-1]}[pooling]
        unit: F32 = found / np.linalg.norm(found)
        return unit

    return vector


def assert_published(
    folder: Path, pooling: str, prompts: tuple[str, str], device: str | None, **settings: Any
) -> None:
    query, document = prompts
    model = HPlus(
        folder,
        device=device,
        pooling=pooling,
        query_prompt=query,
        document_prompt=document,
        **settings,
    )
    for prompt, encode in ((query, model.encode_query), (document, model.encode_document)):
        vector = by_transformers(folder, prompt, pooling)
        expected = np.stack([vector(text) for text in TEXTS])
        np.testing.assert_allclose(encode(TEXTS).global_, expected, atol=1e-4)


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_a_tiny_bert_gives_the_vectors_of_transformers(
    tiny_folder: Path, pooling: str, device: str | None
) -> None:
    assert_published(tiny_folder, pooling, ("type: ", "disease: "), device)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen3 with an end-of-text token after every text, as Qwen3-Embedding has."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("qwen")
    tokenizer = tiny_tokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A [SEP]", special_tokens=[("[SEP]", tokenizer.token_to_id("[SEP]"))]
    )
    config = transformers.Qwen3Config(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=256,
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    transformers.Qwen3Model(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    publish(folder, modes(lasttoken=True), {"prompts": {"query": QWEN, "document": ""}})
    return folder


def test_a_qwen3_embedding_folder_gives_the_vectors_of_transformers(qwen: Path) -> None:
    model = HPlus(qwen)
    assert (model.recipe.pooling, model.recipe.attention) == ("last", "causal")
    for encode, prompt in ((model.encode_query, QWEN), (model.encode_document, "")):
        vector = by_transformers(qwen, prompt, "last")
        expected = np.stack([vector(text) for text in TEXTS])
        np.testing.assert_allclose(encode(TEXTS).global_, expected, atol=1e-4)


def test_qwen3_reads_both_sides_where_asked(qwen: Path) -> None:
    both = HPlus(qwen, attention="bidirectional", pooling="mean")
    causal = HPlus(qwen, pooling="mean")
    assert causal.recipe.attention == "causal"
    longer, shorter = (
        causal.states([text]).states[:3] for text in ("type 2 diabetes a", "type 2 diabetes")
    )
    np.testing.assert_allclose(longer, shorter, atol=1e-5)
    longer, shorter = (
        both.states([text]).states[:3] for text in ("type 2 diabetes a", "type 2 diabetes")
    )
    assert np.abs(longer - shorter).max() > 1e-2
    assert both.fingerprint != causal.fingerprint


def test_attention_is_a_matter_of_qwen3(tiny_folder: Path) -> None:
    with pytest.raises(BackboneError, match="for Qwen3 only, got a bert encoder"):
        HPlus(tiny_folder, attention="causal")


FROM_THE_HUB = """
import json, sys
import numpy as np
from hplus import HPlus
from hplus.origins import origins

model = HPlus("org/tiny")
model.save(sys.argv[1], include_encoder=True)
again = HPlus(sys.argv[1])
vectors = [m.encode_document(["heart failure"]).global_ for m in (model, again)]
np.testing.assert_array_equal(*vectors)
(origin,) = origins(model.checkpoint)
print(json.dumps([model.name, model.recipe.pooling, model.recipe.query_prompt,
                  model.checkpoint.backbone.reference, origin.sha256, vectors[0][0].tolist()]))
"""


def test_a_model_of_the_hub_is_known_by_its_commit(tmp_path: Path) -> None:
    """From a cache of the hub, offline: its settings, its commit, and a checkpoint that needs
    neither."""
    pytest.importorskip("torch")
    commit = "0123456789abcdef" * 2 + "01234567"
    cached = tmp_path / "hub" / "models--org--tiny"
    folder = write_tiny(cached / "snapshots" / commit)
    publish(folder, modes(cls_token=True), {"prompts": {"query": "q: "}})
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(commit)
    environment = {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", FROM_THE_HUB, str(tmp_path / "saved")],
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    name, pooling, prompt, reference, shown, vector = json.loads(done.stdout)
    assert (name, pooling, prompt, shown) == ("org/tiny", "cls", "q: ", commit)
    assert reference == {"kind": "transformers", "hub": "org/tiny", "commit": commit}
    expected = by_transformers(folder, "", "cls")("heart failure")
    np.testing.assert_allclose(vector, expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize(
    ("name", "pooling", "prompts"),
    [
        ("gte-small", "mean", ("", "")),
        ("e5-small", "mean", ("query: ", "passage: ")),
        ("bge-small-en", "cls", (BGE, "")),
        ("bge-small-zh", "cls", ("为这个句子生成表示以用于检索相关文章：", "")),
    ],
)
def test_real_encoders_give_the_vectors_of_transformers(
    name: str, pooling: str, prompts: tuple[str, str], device: str | None
) -> None:
    """HPLUS_ENCODERS names a folder that holds these encoders by their names."""
    folder = Path(os.environ.get("HPLUS_ENCODERS", "")) / name
    if not os.environ.get("HPLUS_ENCODERS") or not folder.is_dir():
        pytest.skip(f"no {name} in the folder that HPLUS_ENCODERS names")
    assert_published(folder, pooling, prompts, device)
