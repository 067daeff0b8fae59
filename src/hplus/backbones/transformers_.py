"""Any transformers encoder through torch: BERT, RoBERTa, ModernBERT and their kin.

A local folder, or a hub id if the user names one; code from a model repository is never run,
and weights are safetensors only. Sequences arrive packed and are padded for the pass alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hplus.backbones.bert import INT8_FILE, weights_file
from hplus.backbones.files import ROTATION, folder_reference, read_rotation, read_weights
from hplus.backbones.int8 import dequantise
from hplus.backbones.threads import OneThreadEach
from hplus.backbones.tokenizer import Tokenizer
from hplus.errors import BackboneError, MissingExtraError
from hplus.types import F32, I32, I64, item_of_row

try:
    import torch
    import transformers
except ImportError:
    raise MissingExtraError(
        "this backbone needs torch and transformers: pip install 'hplus[torch]'"
    ) from None


def limit_torch() -> Callable[[], object]:
    """Set torch to one thread, in threads begun from now on; the function returned undoes it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    return partial(torch.set_num_threads, before)


class TransformersBackbone:
    """One padded forward pass of a transformers encoder, packed in and out."""

    one_thread_each = OneThreadEach(limit_torch)
    rotation: Any = None
    """f32[d, d]: turns the last states, as the folder's weights say (`rotation.py`)."""

    def __init__(
        self, model: Any, tokenizer: Tokenizer, reference: dict[str, Any], device: str
    ) -> None:
        try:
            self.model = model.to(device).eval()
        except (RuntimeError, AssertionError) as error:  # torch's answer to a missing device
            reason = str(error).splitlines()[0]
            raise BackboneError(f"device {device!r} cannot be used: {reason}") from error
        self.tokenizer = tokenizer
        self.reference = reference
        self.device = torch.device(device)
        self.concurrent = self.device.type == "cpu"
        config = model.config
        self.dim = int(config.hidden_size)
        self.depth = int(config.num_hidden_layers)
        self.limit = int(getattr(config, "max_position_embeddings", 512))
        # RoBERTa, MPNet and their kin count positions from after the padding id.
        positions = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
        padding = getattr(positions, "padding_idx", None)
        if padding is not None:
            self.limit -= int(padding) + 1

    def forward(self, ids: I32, offsets: I64) -> F32:
        """eq:shared_encoder on packed sequences: ids i32[T], offsets i64[n + 1] -> f32[T, d]."""
        return self.layers(ids, offsets, [self.depth])[0]

    def layers(self, ids: I32, offsets: I64, wanted: Sequence[int]) -> list[F32]:
        """The same pass: the states after each of the `wanted` layers (1 to `depth`)."""
        text = item_of_row(offsets)
        column = np.arange(len(ids)) - offsets[text]
        shape = (len(offsets) - 1, int(np.diff(offsets).max()))
        padded = np.full(shape, self.model.config.pad_token_id or 0, np.int64)
        padded[text, column] = ids
        mask = np.zeros(shape, np.bool_)
        mask[text, column] = True
        with torch.inference_mode():
            inside = torch.from_numpy(mask).to(self.device)
            output = self.outputs(
                torch.from_numpy(padded).to(self.device),
                inside,
                output_hidden_states=any(number < self.depth for number in wanted),
            )
            # Some models normalise once more after the last layer: that is what `forward` means.
            tensors = [
                self.turned(output) if number == self.depth else output.hidden_states[number]
                for number in wanted
            ]
            packed: list[F32] = [states[inside].float().cpu().numpy() for states in tensors]
        return packed

    def states(self, ids: Any, mask: Any) -> Any:
        """ids i64[b, n], mask bool[b, n] -> states [b, n, d]; differentiable, for training."""
        return self.turned(self.outputs(ids, mask))

    def turned(self, output: Any) -> Any:
        """The last states, rotated if the encoder says so."""
        states = output.last_hidden_state
        return states if self.rotation is None else states @ self.rotation

    def outputs(self, ids: Any, mask: Any, **options: Any) -> Any:
        """What the transformers model returns for ids i64[b, n] and mask bool[b, n]."""
        return self.model(input_ids=ids, attention_mask=mask.long(), **options)


def load(
    source: str,
    *,
    kind: str = "transformers",
    device: str = "cpu",
    adapter: Mapping[str, F32] | None = None,
    revision: str | None = None,
    offline: bool = False,
) -> TransformersBackbone:
    """From a local folder, or from the hub when `source` is not a folder."""
    place = on_this_machine(source, revision) if offline else source
    weights = weights_file(Path(source)) if kind == "bert" else None
    if weights is not None and weights.name == INT8_FILE:
        model = _read_int8(weights)
    else:
        model = read_model(place, transformers.AutoModel, revision)
    _refuse_decoders(source, model.config.model_type)
    merge_into(model, adapter)
    backbone = TransformersBackbone(
        model, read_tokenizer(place), reference(kind, source, revision, offline), device
    )
    rotation = None if weights is None else read_rotation(weights)
    if rotation is not None:
        backbone.rotation = torch.from_numpy(rotation).to(device)
    return backbone


def on_this_machine(source: str, revision: str | None = None) -> str:
    """A folder itself, or that of a hub id in the hub's cache, found without the network: even
    `local_files_only` has made huggingface_hub ask its server something."""
    if Path(source).is_dir():
        return source
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(source, "config.json", revision=revision)
    if isinstance(found, str):
        return str(Path(found).parent)
    which = f" --revision {revision}" if revision else ""
    raise BackboneError(
        f"the encoder {source} is on the hub and not in its cache here; nothing is fetched unless "
        f"you say so: hf download {source}{which}"
    )


def model_type(hub_id: str, offline: bool = False) -> str:
    """What kind of model a hub id is, from its config alone."""
    place = on_this_machine(hub_id) if offline else hub_id
    try:
        return str(transformers.AutoConfig.from_pretrained(place).model_type)
    except Exception as error:  # offline, misspelt, private: one sentence for all
        reason = str(error).splitlines()[0]
        raise BackboneError(f"{hub_id} is not available on the hub: {reason}") from error


def hub_file(
    hub_id: str, name: str, revision: str | None = None, *, offline: bool = False
) -> Path | None:
    """A small file of a model on the hub, if it has one."""
    if offline:
        path = Path(on_this_machine(hub_id, revision)) / name
        return path if path.exists() else None
    found = transformers.utils.hub.cached_file(
        hub_id,
        name,
        revision=revision,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if found is None else Path(found)


def _refuse_decoders(source: str, kind: str) -> None:
    """A decoder's states see the left side only; Qwen3 alone is made bidirectional."""
    auto = transformers.models.auto.modeling_auto
    decoders = set(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    encoders = set(auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES)
    if kind in decoders - encoders:
        raise BackboneError(
            f"{source} is a decoder ({kind}) that reads from left to right; "
            "expected an encoder, or Qwen3, which is made bidirectional"
        )


def read_model(source: str, loader: Any, revision: str | None = None) -> Any:
    """The float32 model: no remote code, no pickles, no progress bars."""
    logging = transformers.utils.logging
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    loud = logging.get_verbosity()
    logging.set_verbosity(40)  # errors only
    try:
        return loader.from_pretrained(
            source,
            revision=revision or "main",
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=Path(source).is_dir(),
        )
    except Exception as error:  # whatever transformers raises, users get one sentence
        raise BackboneError(f"{source} does not load as a transformers encoder: {error}") from error
    finally:
        logging.set_verbosity(loud)


def _read_int8(weights: Path) -> Any:
    """A BERT whose weights are kept in int8, in float32 again: as good a start as any."""
    config = transformers.BertConfig.from_pretrained(weights.parent)
    kind: Any = transformers.BertModel
    model = kind(config, add_pooling_layer=False)
    tensors = dequantise(read_weights(weights))
    tensors.pop(ROTATION, None)
    try:
        model.load_state_dict({name: torch.from_numpy(own) for name, own in tensors.items()})
    except RuntimeError as error:
        raise BackboneError(f"{weights} does not fit its config.json: {error}") from error
    return model.eval()


def read_tokenizer(source: str) -> Tokenizer:
    """`tokenizer.json` of the folder, or what transformers makes of the tokenizer files."""
    path = Path(source) / "tokenizer.json"
    if path.exists():
        return Tokenizer.read(path)
    try:
        fast = transformers.AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        tokenizer = Tokenizer(fast.backend_tokenizer)
    except Exception as error:  # as for the model
        raise BackboneError(f"{source} has no tokenizer that loads: {error}") from error
    # Without any file transformers invents an empty vocabulary, and every word is unknown.
    names = [str(name) for name in fast.vocab_files_names.values()]
    if Path(source).is_dir() and not any((Path(source) / name).exists() for name in names):
        raise BackboneError(f"{path} is missing; a backbone folder needs it")
    return tokenizer


def reference(
    kind: str, source: str, revision: str | None = None, offline: bool = False
) -> dict[str, Any]:
    """What a checkpoint records: the hashes of a folder, or the commit of a hub id."""
    if Path(source).is_dir():
        return folder_reference(kind, Path(source))
    # The hub's cache keeps each commit in a folder of its name; transformers no longer reports it.
    config = hub_file(source, "config.json", revision, offline=offline)
    commit = config.parent.name if config and config.parent.parent.name == "snapshots" else revision
    return {"kind": kind, "hub": source, "commit": commit}


def merge_into(model: Any, adapter: Mapping[str, F32] | None) -> None:
    """LoRA in place: W += B A, as `files.merge_adapter` does for onnxruntime."""
    if not adapter:
        return
    from hplus.backbones.files import merge_adapter

    named = {name: p.detach().numpy() for name, p in model.named_parameters()}
    merged = merge_adapter(named, adapter)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if merged[name] is not named[name]:
                parameter.copy_(torch.from_numpy(merged[name]))
