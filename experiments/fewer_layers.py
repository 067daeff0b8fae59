"""A model with some of another's layers, to start a smaller one from.

    python experiments/fewer_layers.py small 1,2,3,6,9,12 WORK/start

Layers are numbered from 1. Where the layers up to the heads' own are all kept, units and importance
are those of the larger model; otherwise the heads read the same share of the depth and have to be
trained anew.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from hplus import checkpoint
from hplus.backbones.export import Form
from hplus.train.student import layers_of


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("layers", type=lambda spelled: [int(n) for n in spelled.split(",")])
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    found = checkpoint.load(options.model, device="cpu")
    backbone = found.backbone
    depth = backbone.depth
    kept = [layer for n, layer in enumerate(layers_of(backbone.model), 1) if n in options.layers]
    backbone.model.encoder.layer = torch.nn.ModuleList(kept)
    backbone.model.config.num_hidden_layers = len(kept)
    backbone.reference = {"kind": "bert"}
    heads = found.recipe.layer or depth
    lower = [n for n in options.layers if n <= heads]
    layer = heads if len(lower) == heads else round(heads * len(kept) / depth)
    rotation = backbone.rotation
    form = Form("float32", None if rotation is None else rotation.numpy())
    recipe = replace(found.recipe, layer=layer, name=options.out.name)
    checkpoint.save(options.out, replace(found, recipe=recipe), include_encoder=True, form=form)
    print(f"{len(kept)} of {depth} layers, heads on layer {layer}: {options.out}")


if __name__ == "__main__":
    main()
