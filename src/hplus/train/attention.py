"""Attention in float32 where the rest of the encoder runs in bfloat16, for training on CPUs.

torch's bfloat16 attention takes two to four times as long there as its float32 one, most of it in
the backward pass (texts of 40 to 160 tokens, AVX512-BF16); the casts cost next to nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

NAME = "hplus_float32"


def attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """As transformers' own, computed in float32 whatever the inputs are."""
    with torch.autocast(query.device.type, enabled=False):
        found: tuple[Tensor, None] = sdpa_attention_forward(
            module, query.float(), key.float(), value.float(), mask, **options
        )
        return found


def in_float32(encoder: Any) -> None:
    """Let this encoder attend in float32."""
    if encoder.config._attn_implementation == "sdpa":
        AttentionInterface.register(NAME, attention)
        AttentionMaskInterface.register(NAME, sdpa_mask)
        encoder.set_attn_implementation(NAME)
