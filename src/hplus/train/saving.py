"""A trained student as a checkpoint folder that loads without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from hplus import checkpoint as checkpoints
from hplus.backbones.export import Form, Precision
from hplus.train.student import Student


def save_student(
    student: Student,
    folder: Path,
    *,
    name: str,
    precision: Precision = "float32",
    notes: Mapping[str, Any] | None = None,
) -> Path:
    """Encoder, heads and recipe. A BERT is written in either precision, any rotation with it;
    other encoders as transformers saves them. The projection of eq:token_projection is left out:
    it serves training alone."""
    merge_lora(student.encoder)
    old, backbone = student.checkpoint, student.backbone
    kind = "bert" if student.encoder.config.model_type == "bert" else backbone.reference["kind"]
    # The weights are new: nothing of the folder they came from may be copied or named.
    backbone.reference = {"kind": kind}
    form = None
    if kind == "bert":
        rotation = backbone.rotation
        turned = None if rotation is None else rotation.cpu().numpy().astype(np.float32)
        form = Form(precision, turned)
    crf = None if student.crf is None else student.crf.to_numpy()
    head = student.importance_head()
    learned = student.settings.heads
    encoder = [] if student.settings.mode == "heads" else ["encoder"]
    recipe = replace(
        old.recipe,
        name=name,
        units="crf" if "crf" in learned else old.recipe.units,
        importance="head" if "importance" in learned else old.recipe.importance,
        lexical="head" if "lexical" in learned else old.recipe.lexical,
        trained=tuple(dict.fromkeys([*old.recipe.trained, *learned, *encoder])),
    )
    saved = replace(
        old,
        recipe=recipe,
        crf=crf,
        head=head,
        lexical=None if student.lexical is None else student.lexical.to_numpy(),
        adapter=None,
        notes={**old.notes, **(notes or {})},
    )
    return checkpoints.save(folder, saved, include_encoder=True, form=form)


def merge_lora(encoder: Any) -> None:
    """Adapters become part of the weights they adapt: W + B A."""
    for name, module in list(encoder.named_modules()):
        if not hasattr(module, "lora_A"):
            continue
        with torch.no_grad():
            module.merge()
        parent, _, last = name.rpartition(".")
        setattr(encoder.get_submodule(parent), last, module.get_base_layer())
    assert not any("lora" in name for name, _ in nn.Module.named_parameters(encoder))
