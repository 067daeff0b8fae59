"""int8 encoders: codes and scales, the graph against plain numpy, and what never changes a text."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import plain_bert
from hplus import HPlus, checkpoint
from hplus.backbones.bert import INT8_FILE, Bert
from hplus.backbones.export import Form, export_encoder
from hplus.backbones.files import read_weights
from hplus.backbones.int8 import dequantise, quantise, quantise_rows
from hplus.backbones.load import load_backbone, reference_of_folder
from hplus.backbones.rotation import principal_axes
from hplus.errors import BackboneError
from hplus.types import offsets_of
from tiny import write_tiny

LENGTHS = (1, 2, 7, 33)


def written(source: Path, folder: Path, form: Form) -> Path:
    export_encoder(Bert.from_folder(source), folder, form=form)
    return folder


def random_ids(length: int) -> np.ndarray:
    return np.random.default_rng(length).integers(5, 90, length).astype(np.int32)


@given(
    hnp.arrays(
        np.float32,
        hnp.array_shapes(min_dims=2, max_dims=2),
        elements=st.floats(-1e3, 1e3, width=32),
    ),
    st.integers(2, 8),
)
def test_codes_are_within_half_a_step_and_use_the_whole_range(tensor, bits) -> None:
    codes, scale = quantise_rows(tensor, bits)
    most = 2 ** (bits - 1) - 1
    assert np.abs(codes.astype(int)).max() <= most
    assert (np.abs(codes.astype(int)).max(axis=1)[scale > 1e-30] == most).all()
    error = np.abs(codes * scale[:, None].astype(np.float64) - tensor)
    assert (error <= scale[:, None] * 0.501 + 1e-30).all()


def test_linear_weights_leave_the_eighth_bit_free(tiny_folder: Path) -> None:
    """Two products of 255 and 63 fit 16 bits: no processor can overflow."""
    codes = quantise(read_weights(tiny_folder / "model.safetensors"))
    linear = [c for n, c in codes.items() if c.dtype == np.int8 and n.startswith("encoder.")]
    assert len(linear) == 12
    assert max(int(np.abs(c.astype(int)).max()) for c in linear) == 63
    assert 2 * 255 * 63 < 2**15


@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_the_graph_equals_plain_numpy(
    tiny_folder: Path, tmp_path: Path, precision: str, rotated: bool
) -> None:
    rotation = principal_axes(np.random.default_rng(0).normal(size=(50, 32)).astype("f4"))
    form = Form(precision, rotation if rotated else None)
    folder = written(tiny_folder, tmp_path / "encoder", form)
    backbone = Bert.from_folder(folder)
    file = next(folder.glob("*.safetensors"))
    assert (file.name == INT8_FILE) == (precision == "int8")
    weights = safetensors.numpy.load_file(file)
    # A value on the edge of two codes may fall to either side: one step of 256 in a few places.
    near = 0.1 if precision == "int8" else 1e-4
    for length in LENGTHS:
        ids = random_ids(length)
        found = backbone.layers(ids, offsets_of([length]), [1, 2])
        for one, other in zip(found, plain_bert.states(weights, 4, ids), strict=True):
            assert np.abs(one - other).max() < near
            assert np.abs(one - other).mean() < near / 10


def test_int8_is_near_float32(tiny_folder: Path, tmp_path: Path) -> None:
    plain = Bert.from_folder(tiny_folder)
    int8 = Bert.from_folder(written(tiny_folder, tmp_path / "encoder", Form("int8")))
    assert (plain.device, int8.device) == ("onnxruntime float32", "onnxruntime int8")
    ids = random_ids(60)
    one, other = (b.forward(ids, offsets_of([60])) for b in (plain, int8))
    cosine = (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
    assert 0.99 < cosine.min() < 1 - 1e-9


@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_a_text_is_the_same_bytes_alone_and_in_any_company(
    tiny_folder: Path, tmp_path: Path, precision: str
) -> None:
    backbone = Bert.from_folder(written(tiny_folder, tmp_path / "encoder", Form(precision)))
    ids, offsets = np.concatenate([random_ids(n) for n in LENGTHS]), offsets_of(LENGTHS)
    together = backbone.forward(ids, offsets)
    for first, last in pairwise(offsets):
        alone = backbone.forward(ids[first:last], offsets_of([last - first]))
        assert np.array_equal(together[first:last], alone)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_gives_the_same_bytes(
    tiny_folder: Path, tmp_path: Path, threads: int
) -> None:
    checkpoint.save(
        tmp_path / "int8", HPlus(tiny_folder).checkpoint, include_encoder=True, form=Form("int8")
    )
    texts = [f"type {n} diabetes with kidney disease " * (1 + n % 5) for n in range(60)]
    model = HPlus(tmp_path / "int8")
    model.threads = 1
    expected = [model.encode_document([text]) for text in texts]
    model.threads = threads
    found = model.encode_document(texts)
    for row, one in enumerate(expected):
        part = found.take(np.array([row]))
        assert np.array_equal(part.global_, one.global_)
        assert np.array_equal(part.units.vectors, one.units.vectors)


def test_a_rotation_keeps_every_product_of_full_states(tiny_folder: Path, tmp_path: Path) -> None:
    rotation = principal_axes(np.random.default_rng(1).normal(size=(90, 32)).astype("f4"))
    plain = Bert.from_folder(tiny_folder)
    folder = written(tiny_folder, tmp_path / "encoder", Form("float32", rotation))
    turned = Bert.from_folder(folder)
    ids = random_ids(20)
    one, other = (b.layers(ids, offsets_of([20]), [1, 2]) for b in (plain, turned))
    assert np.array_equal(one[0], other[0])  # the heads' layer stays as it is
    np.testing.assert_allclose(other[1] @ other[1].T, one[1] @ one[1].T, atol=1e-4)
    pytest.importorskip("torch")
    by_torch = load_backbone(reference_of_folder(folder), device="cpu")
    for mine, its in zip(other, by_torch.layers(ids, offsets_of([20]), [1, 2]), strict=True):
        np.testing.assert_allclose(mine, its, atol=1e-4)


def test_principal_axes_are_a_rotation_by_falling_variance() -> None:
    draw = np.random.default_rng(0)
    states = (draw.normal(size=(400, 6)) * [1, 5, 2, 0.1, 3, 1] + 7).astype(np.float32)
    rotation = principal_axes(states)
    np.testing.assert_allclose(rotation.T @ rotation, np.eye(6), atol=1e-5)
    variances = (states @ rotation).var(axis=0)
    assert (np.diff(variances) <= 0).all()
    assert np.abs(rotation[:, 0]).argmax() == 1
    assert np.array_equal(principal_axes(states), rotation)


def test_what_int8_cannot_do_is_said(tiny_folder: Path, tmp_path: Path) -> None:
    folder = written(tiny_folder, tmp_path / "encoder", Form("int8"))
    with pytest.raises(BackboneError, match="float32 weights to merge an adapter, got int8"):
        Bert.from_folder(folder, {"x.lora_A": np.zeros((1, 1), np.float32)})
    with pytest.raises(BackboneError, match="expected float32 weights to convert, got int8"):
        written(folder, tmp_path / "again", Form("float32"))


def test_torch_computes_in_float32_with_what_the_codes_stand_for(
    tiny_folder: Path, tmp_path: Path
) -> None:
    """So training may start from an int8 model, and quantising again gives the same codes."""
    pytest.importorskip("torch")
    rotation = principal_axes(np.random.default_rng(1).normal(size=(90, 32)).astype("f4"))
    folder = written(tiny_folder, tmp_path / "encoder", Form("int8", rotation))
    by_torch = load_backbone(reference_of_folder(folder), device="cpu")
    codes = safetensors.numpy.load_file(folder / INT8_FILE)
    weights = dequantise(codes)
    for name, tensor in quantise({n: t for n, t in weights.items() if n != "rotation"}).items():
        if tensor.dtype == np.int8:
            assert np.array_equal(tensor, codes[name]), name
    ids = random_ids(20)
    found = by_torch.layers(ids, offsets_of([20]), [1, 2])
    for one, other in zip(found, plain_bert.states(weights, 4, ids), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)
    codes["encoder.layer.0.output.dense.weight"] = np.zeros((3, 3), np.int8)
    codes["encoder.layer.0.output.dense.scale"] = np.zeros(3, np.float32)
    safetensors.numpy.save_file(codes, folder / INT8_FILE)
    with pytest.raises(BackboneError, match="does not fit its config"):
        load_backbone(reference_of_folder(folder), device="cpu")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("encoder.layer.0.output.dense.scale", None, "output.dense.scale' is missing"),
        ("embeddings.word_embeddings.scale", np.zeros(3, np.float32), "expected"),
        ("embeddings.LayerNorm.weight", np.zeros(32, np.int8), "is int8, expected float32"),
        ("rotation", np.zeros((32, 5), np.float32), r"rotation has shape \(32, 5\)"),
    ],
)
def test_int8_tensors_that_do_not_fit_are_named(
    tiny_folder: Path, tmp_path: Path, name: str, change: np.ndarray | None, message: str
) -> None:
    folder = written(tiny_folder, tmp_path / "encoder", Form("int8"))
    weights = safetensors.numpy.load_file(folder / INT8_FILE)
    weights.pop(name, None)
    if change is not None:
        weights[name] = change
    safetensors.numpy.save_file(weights, folder / INT8_FILE)
    with pytest.raises(BackboneError, match=message):
        Bert.from_folder(folder)


def test_a_saved_int8_model_loads_elsewhere(tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "source")
    model = HPlus(source, units="words").fit_idf(["type 2 diabetes", "heart failure"])
    checkpoint.save(tmp_path / "a", model.checkpoint, include_encoder=True, form=Form("int8"))
    again = HPlus(tmp_path / "a")
    assert again.fingerprint != model.fingerprint
    assert not (tmp_path / "a" / "encoder" / "model.safetensors").exists()
    again.save(tmp_path / "b", include_encoder=True)  # copied as it is
    assert HPlus(tmp_path / "b").fingerprint == again.fingerprint
