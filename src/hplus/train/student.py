"""The student: an encoder and its heads in torch, of which some parts learn.

What learns is decided once, at the start, and everything else has no gradient. Dropout is off:
a pass gives the same states every time, so gradient caching and resuming are exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, softplus

from hplus.backbones.transformers_ import TransformersBackbone
from hplus.checkpoint import Checkpoint
from hplus.errors import InputError, MissingExtraError
from hplus.heads.crf import emissions, viterbi
from hplus.heads.crf_torch import LinearChainCRF
from hplus.heads.importance import ImportanceHead
from hplus.heads.lexical import LexicalHead
from hplus.train import attention
from hplus.train.config import Config, StudentSettings
from hplus.train.texts import Texts
from hplus.types import F32, Bool, Tokens
from hplus.units import patterns, rules
from hplus.units.partition import begins_of_tags, keep_characters_whole

# softplus(BIAS) = 1: a new importance head starts from uniform weights.
BIAS = 0.5413249
HIDDEN = 64


class Student(nn.Module):
    """states(ids) with gradient where it learns, and the heads on top of them."""

    def __init__(self, checkpoint: Checkpoint, settings: StudentSettings, *, token: bool) -> None:
        super().__init__()
        backbone = checkpoint.backbone
        if not isinstance(backbone, TransformersBackbone):
            raise InputError("expected an encoder in torch; load it with device='cpu'")
        self.checkpoint, self.backbone, self.settings = checkpoint, backbone, settings
        self.encoder = backbone.model
        self.dim, self.depth = backbone.dim, backbone.depth
        self.layer = checkpoint.recipe.layer or self.depth
        self.frozen = self.depth - settings.layers if settings.layers else 0
        """How many of the lower layers never change."""
        if settings.mode == "heads":
            self.frozen = self.depth
        if not 0 <= self.frozen <= self.depth:
            raise InputError(f"expected 1 to {self.depth} layers to train, got {settings.layers}")
        if settings.cached:
            require_bert(self.encoder, "student.cached")
        self.crf = self._crf(checkpoint)
        self.importance = self._importance(checkpoint)
        self.lexical = self._lexical(checkpoint)
        self.projection = nn.Linear(self.dim, settings.projection) if token else None
        _without_dropout(self.encoder)
        if backbone.device.type == "cpu":
            attention.in_float32(self.encoder)
        self._choose()

    def _crf(self, checkpoint: Checkpoint) -> LinearChainCRF | None:
        if checkpoint.crf is not None:
            return LinearChainCRF.from_numpy(checkpoint.crf)
        return LinearChainCRF(self.dim, HIDDEN) if "crf" in self.settings.heads else None

    def _importance(self, checkpoint: Checkpoint) -> nn.Linear | None:
        if checkpoint.head is None and "importance" not in self.settings.heads:
            return None
        head = nn.Linear(self.dim, 1)
        with torch.no_grad():
            if checkpoint.head is None:
                head.weight.zero_()
                head.bias.fill_(BIAS)
            else:
                head.weight.copy_(torch.from_numpy(checkpoint.head.weight)[None])
                head.bias.fill_(checkpoint.head.bias)
        return head

    def _lexical(self, checkpoint: Checkpoint) -> LexicalModule | None:
        if checkpoint.lexical is None and "lexical" not in self.settings.heads:
            return None
        vocabulary = self.backbone.tokenizer.vocabulary
        idf = None if checkpoint.idf is None else checkpoint.idf.table
        return LexicalModule(self.dim, vocabulary, idf, checkpoint.lexical)

    def _choose(self) -> None:
        """Which parameters learn: gradients of all others are off."""
        self.requires_grad_(False)
        if self.settings.mode == "heads":
            pass
        elif self.settings.mode == "lora":
            _add_lora(self.encoder, self.settings.rank, range(self.frozen, self.depth))
        elif self.settings.mode == "full" and not self.frozen:
            self.encoder.requires_grad_(True)
        else:
            for layer in layers_of(self.encoder)[self.frozen :]:
                layer.requires_grad_(True)
            norm = getattr(self.encoder, "norm", None)  # after the last layer, in Qwen3
            if norm is not None:
                norm.requires_grad_(True)
        # A pooling layer on top is part of some folders; no state depends on it.
        pooler = getattr(self.encoder, "pooler", None)
        if pooler is not None:
            pooler.requires_grad_(False)
        for name in self.settings.heads:
            head = getattr(self, name)
            if head is not None:
                head.requires_grad_(True)
        if self.projection is not None:
            self.projection.requires_grad_(True)
        if self.settings.checkpointing:
            self.encoder.gradient_checkpointing_enable({"use_reentrant": False})
            self.encoder.train()  # which alone turns it on; there is no dropout left

    def learning(self) -> dict[str, nn.Parameter]:
        """The parameters that learn, by name."""
        return {name: p for name, p in self.named_parameters() if p.requires_grad}

    def still(self) -> Iterator[tuple[str, Tensor]]:
        """All others: they must end as they began."""
        return ((name, p) for name, p in self.named_parameters() if not p.requires_grad)

    # From texts to states.

    def forward(self, texts: Texts) -> tuple[Tensor, Tensor]:
        """States of the last layer and of the heads' layer, all tokens of the texts one after
        another: [T, d] each (eq:shared_encoder)."""
        ids, mask = self.padded_ids(texts)
        output = self.backbone.outputs(ids, mask, output_hidden_states=self.layer < self.depth)
        states = self.turned(output.last_hidden_state[mask], texts)
        inner = output.hidden_states[self.layer][mask] if self.layer < self.depth else states
        return states.float(), inner.float()

    def below(self, texts: Texts, count: int) -> Tensor:
        """States after the lowest `count` layers, [T, d]."""
        ids, mask = self.padded_ids(texts)
        hidden = self.encoder.embeddings(input_ids=ids)
        visible = self._visible(hidden, mask)
        for layer in layers_of(self.encoder)[:count]:
            hidden = layer(hidden, visible)
        states: Tensor = hidden[mask].float()
        return states

    def above(self, lower: Tensor, texts: Texts) -> tuple[Tensor, Tensor | None]:
        """The layers that learn, on stored states [T, d]; the heads' layer if it is above, too."""
        mask = self._mask(texts)
        hidden = lower.new_zeros(*mask.shape, self.dim)
        hidden[mask] = lower
        visible = self._visible(hidden, mask)
        heads = None
        learning = layers_of(self.encoder)[self.frozen :]
        for number, layer in enumerate(learning, start=self.frozen + 1):
            hidden = layer(hidden, visible)
            if number == self.layer < self.depth:
                heads = hidden[mask].float()
        states = self.turned(hidden[mask], texts).float()
        return states, states if self.layer == self.depth else heads

    def turned(self, states: Tensor, texts: Texts) -> Tensor:
        """Rotated where the encoder says so; unknown tokens have no direction."""
        if self.backbone.rotation is not None:
            states = states @ self.backbone.rotation.to(states.dtype)
        return states * torch.from_numpy(texts.known()).to(states.device)[:, None]

    def padded_ids(self, texts: Texts) -> tuple[Tensor, Tensor]:
        """ids i64[n, m] and mask bool[n, m]."""
        mask = self._mask(texts)
        flat = np.concatenate([texts.sequence(row) for row in range(len(texts))])
        padding = int(self.encoder.config.pad_token_id or 0)
        ids = torch.full(mask.shape, padding, dtype=torch.long, device=mask.device)
        ids[mask] = torch.from_numpy(flat.astype(np.int64)).to(mask.device)
        return ids, mask

    def _mask(self, texts: Texts) -> Tensor:
        lengths = torch.from_numpy(texts.lengths).to(self.backbone.device)
        return torch.arange(int(lengths.max()), device=lengths.device) < lengths[:, None]

    def _visible(self, hidden: Tensor, mask: Tensor) -> Any:
        from transformers.masking_utils import create_bidirectional_mask

        return create_bidirectional_mask(
            config=self.encoder.config, inputs_embeds=hidden, attention_mask=mask.long()
        )

    # From states to heads.

    def weights(self, inner: Tensor) -> Tensor:
        """u(t) of eq:unit_importance, [T]; 1 without a head."""
        if self.importance is None:
            return inner.new_ones(len(inner))
        scores: Tensor = softplus(self.importance(inner)[:, 0])
        return scores.clamp_min(torch.finfo(torch.float32).tiny)

    def projected(self, states: Tensor) -> Tensor:
        """z of eq:token_projection, [T, p]."""
        assert self.projection is not None
        return normalize(self.projection(states), dim=1)

    def begins(self, inner: F32, tokens: Tokens, noise: F32 | None = None) -> Bool:
        """Where units begin, as the saved model will divide: the CRF, or the recipe's rule.

        noise f32[T, 3] is added to the CRF's scores: another likely partition.
        """
        recipe = self.checkpoint.recipe
        if self.crf is None or self._by_rule():
            return rules.rule(recipe.units)(tokens)
        crf = self.crf.to_numpy()
        # Text by text: the last bit of a product may depend on its other rows, no partition may.
        scores = np.concatenate(
            [emissions(crf, inner[a:b], np.array([0, b - a])) for a, b in pairwise(tokens.offsets)]
        )
        tags, _ = viterbi(crf, scores if noise is None else scores + noise, tokens.offsets)
        begins = keep_characters_whole(begins_of_tags(tags, tokens.offsets), tokens)
        return patterns.override(begins, tokens) if recipe.patterns else begins

    def divides_once(self) -> bool:
        """Whether a text's units begin where they began before, whatever has been learned since."""
        stored = self.settings.cached and self.layer <= self.frozen
        return self._by_rule() or (stored and "crf" not in self.settings.heads)

    def _by_rule(self) -> bool:
        learns = "crf" in self.settings.heads
        return self.crf is None or (self.checkpoint.recipe.units != "crf" and not learns)

    def importance_head(self) -> ImportanceHead | None:
        """The head for inference."""
        if self.importance is None:
            return None
        weight: F32 = self.importance.weight.detach().cpu().numpy()[0].astype(np.float32)
        return ImportanceHead(weight.copy(), float(self.importance.bias.detach()))


class LexicalModule(nn.Module):
    """The lexical head in training; it starts as BM25, the table as idf (1 where there is none)."""

    def __init__(
        self, dim: int, vocabulary: int, idf: F32 | None, trained: LexicalHead | None
    ) -> None:
        super().__init__()
        self.read = nn.Linear(dim, 1)
        self.table = nn.Parameter(torch.ones(vocabulary))
        with torch.no_grad():
            self.read.weight.zero_()
            self.read.bias.fill_(1.0)
            if trained is not None:
                self.read.weight.copy_(torch.from_numpy(trained.weight)[None])
                self.read.bias.fill_(trained.bias)
                self.table.copy_(torch.from_numpy(trained.table))
            elif idf is not None:
                self.table.copy_(torch.from_numpy(idf))

    def counted(self, inner: Tensor) -> Tensor:
        """How much each occurrence in a document counts: relu(w h + b), [T]."""
        return torch.relu(self.read(inner)[:, 0])

    def worth(self, ids: Tensor) -> Tensor:
        """The table's values, [T]; below 0 they count as 0."""
        return torch.relu(self.table[ids])

    def to_numpy(self) -> LexicalHead:
        """The head for inference."""
        weight: F32 = self.read.weight.detach().cpu().numpy()[0].astype(np.float32)
        table: F32 = torch.relu(self.table.detach()).cpu().numpy().astype(np.float32)
        return LexicalHead(weight.copy(), float(self.read.bias.detach()), table.copy())


def make_student(checkpoint: Checkpoint, config: Config, stage: int) -> Student:
    """The student of a stage: in the first, only the global branch learns.

    New heads begin with random weights: the same for the same seed, and on every process.
    """
    torch.manual_seed(config.schedule.seed)
    settings = replace(config.student, heads=()) if stage == 1 else config.student
    return Student(checkpoint, settings, token=stage == 2 and config.loss.token.weight > 0)


def require_bert(encoder: Any, setting: str) -> None:
    """Stored states: layers of other families take more than states and a mask, MPNet's a bias."""
    kind = encoder.config.model_type
    if kind != "bert":
        raise InputError(f"{setting} serves encoders of the kind bert alone, this one is {kind}")


def layers_of(encoder: Any) -> Any:
    """The layers of an encoder, lowest first."""
    inner = getattr(encoder, "encoder", encoder)
    found = getattr(inner, "layer", None)
    found = found if found is not None else getattr(inner, "layers", None)
    if found is None:
        raise InputError(f"{type(encoder).__name__}: its layers are not found; train it in full")
    return found


def _without_dropout(encoder: nn.Module) -> None:
    for module in encoder.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            setattr(module, "attention_dropout", 0.0)  # noqa: B010 (a name of Qwen3's own)


def _add_lora(encoder: Any, rank: int, layers: range) -> None:
    try:
        import peft
    except ImportError:
        raise MissingExtraError("mode lora needs peft: pip install 'hplus[train]'") from None
    linear = {
        name
        for name, module in encoder.named_modules()
        if isinstance(module, nn.Linear) and not name.startswith("pooler.")
    }
    numbered = {
        name
        for name in linear
        if any(part.isdigit() and int(part) in layers for part in name.split("."))
    }
    settings = peft.LoraConfig(
        r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules=sorted(numbered)
    )
    peft.inject_adapter_in_model(settings, encoder)
