"""A model with trained layers in the place of its own, as a checkpoint that carries its encoder.

    python experiments/with_layers.py START TENSORS.safetensors OUT [--int8] [--name NAME]
    python experiments/with_layers.py --take TRAINED START TENSORS.safetensors

The second form writes the tensors in which TRAINED differs from START, in float16: a few MB that
can be kept where a whole encoder would be too large.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import safetensors.torch
import torch

from hplus import checkpoint
from hplus.backbones.export import Form


def take(trained: str, start: str, out: Path) -> None:
    """Write what training changed."""
    new, old = (
        checkpoint.load(m, device="cpu").backbone.model.state_dict() for m in (trained, start)
    )
    changed = {name: t.half() for name, t in new.items() if not torch.equal(t, old[name])}
    safetensors.torch.save_file(changed, out)
    print(f"{len(changed)} tensors, {out.stat().st_size / 1e6:.1f} MB: {out}")


def put(start: str, tensors: Path, out: Path, *, int8: bool, name: str) -> None:
    """Write START with the tensors of the file in it."""
    found = checkpoint.load(start, device="cpu")
    backbone = found.backbone
    trained = {key: t.float() for key, t in safetensors.torch.load_file(tensors).items()}
    missing = backbone.model.load_state_dict(trained, strict=False)
    if missing.unexpected_keys:
        raise SystemExit(f"{start} has no {missing.unexpected_keys[0]}; expected its own layers")
    backbone.reference = {"kind": "bert"}
    rotation = backbone.rotation
    turned = None if rotation is None else rotation.numpy().astype(np.float32)
    recipe = replace(found.recipe, name=name or out.name)
    checkpoint.save(
        out,
        replace(found, recipe=recipe),
        include_encoder=True,
        form=Form("int8" if int8 else "float32", turned),
    )
    print(f"{len(trained)} tensors of {tensors.name} in {start}: {out}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs=3)
    parser.add_argument("--take", action="store_true")
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--name", default="")
    options = parser.parse_args()
    first, second, third = options.paths
    if options.take:
        take(first, second, Path(third))
    else:
        put(first, Path(second), Path(third), int8=options.int8, name=options.name)


if __name__ == "__main__":
    main()
