"""Qwen3, bidirectional as in the paper (eq:shared_encoder), or causal as Qwen3-Embedding is.

`Qwen3Model` takes ready attention masks by layer type instead of a padding mask. To read both
sides it is given one that hides padding and nothing else, in place of the causal one; no code is
patched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hplus.backbones import Attention
from hplus.backbones.transformers_ import (
    TransformersBackbone,
    merge_into,
    on_this_machine,
    read_model,
    read_tokenizer,
    reference,
)
from hplus.types import F32

import torch  # isort: skip  (after transformers_, which says how to install it)
import transformers  # isort: skip


class Qwen3Bidirectional(TransformersBackbone):
    """Qwen3 whose every token sees every token."""

    def outputs(self, ids: Any, mask: Any, **options: Any) -> Any:
        """What Qwen3 returns for ids i64[b, n] and mask bool[b, n], padded on either side."""
        # Additive: 0 where the key is a token, the lowest number where it is padding.
        lowest = torch.finfo(self.model.dtype).min
        hidden = torch.zeros(mask.shape, dtype=self.model.dtype, device=mask.device)
        hidden.masked_fill_(~mask, lowest)
        visible = hidden[:, None, None, :].expand(-1, 1, mask.shape[1], -1)  # [b, 1, n, n]
        layers = set(getattr(self.model.config, "layer_types", None) or ["full_attention"])
        positions = (mask.long().cumsum(dim=1) - 1).clamp_min(0)
        return self.model(
            input_ids=ids,
            attention_mask=dict.fromkeys(layers, visible),
            position_ids=positions,
            use_cache=False,
            **options,
        )


class Qwen3Causal(TransformersBackbone):
    """Qwen3 as it was trained to write: a token sees itself and those before it."""

    def outputs(self, ids: Any, mask: Any, **options: Any) -> Any:
        """What Qwen3 returns for ids i64[b, n] and mask bool[b, n], padded on the right."""
        return super().outputs(ids, mask, use_cache=False, **options)


def load(
    source: str,
    *,
    device: str = "cpu",
    adapter: Mapping[str, F32] | None = None,
    revision: str | None = None,
    attention: Attention = "bidirectional",
    offline: bool = False,
) -> TransformersBackbone:
    """From a local folder, or from the hub when `source` is not a folder."""
    place = on_this_machine(source, revision) if offline else source
    model = read_model(place, transformers.Qwen3Model, revision)
    merge_into(model, adapter)
    tokenizer = read_tokenizer(place)
    serve = Qwen3Causal if attention == "causal" else Qwen3Bidirectional
    return serve(model, tokenizer, reference("qwen3", source, revision, offline), device)
