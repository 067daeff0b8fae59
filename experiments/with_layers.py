"""A model with trained layers and heads in the place of its own, as a checkpoint with its encoder.

    python experiments/with_layers.py START TENSORS.safetensors[,MORE.safetensors] OUT [--int8]
        [--name NAME] [--lexical HEAD.safetensors] [--share 0.5]
    python experiments/with_layers.py --take TRAINED START TENSORS.safetensors

The second form writes what TRAINED differs in from START, encoder and importance head, in float16,
and the log of its training: a few MB that can be kept where a whole encoder would be too large.
--lexical adds a lexical head that was trained apart. --share takes so much of the trained weights
and the rest of START's: between the two lies most of what training gained, and less of what it
lost on texts unlike those it saw. Of several files the mean is taken, of runs from the same START.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from hplus import checkpoint
from hplus.backbones.export import Form
from hplus.checkpoint import Checkpoint
from hplus.heads.importance import ImportanceHead
from hplus.heads.lexical import LexicalHead

HEAD = "importance."
STAGES = ("stage1", "stage2")


def tensors_of(found: Checkpoint) -> dict[str, Tensor]:
    """The encoder's weights, and those of the importance head under names of their own."""
    tensors: dict[str, Tensor] = dict(found.backbone.model.state_dict())
    if found.head is not None:
        tensors[f"{HEAD}weight"] = torch.from_numpy(found.head.weight)
        tensors[f"{HEAD}bias"] = torch.tensor([found.head.bias])
    return tensors


def take(trained: str, start: str, out: Path) -> None:
    """Write what training changed."""
    found, begun = (checkpoint.load(m, device="cpu") for m in (trained, start))
    new, old = tensors_of(found), tensors_of(begun)
    # No state depends on a pooling layer on top, which may be made anew, or be in one alone.
    both = [name for name in new if name in old and not name.startswith("pooler.")]
    changed = {name: new[name].half() for name in both if not torch.equal(new[name], old[name])}
    notes = {name: json.dumps(note) for name, note in found.notes.items() if name in STAGES}
    safetensors.torch.save_file(changed, out, notes)
    print(f"{len(changed)} tensors, {out.stat().st_size / 1e6:.1f} MB: {out}")


def put(start: str, files: list[str], out: Path, options: argparse.Namespace) -> None:
    """Write START with the tensors of the files in it."""
    found = checkpoint.load(start, device="cpu")
    backbone, old = found.backbone, tensors_of(found)
    read: dict[str, Tensor] = {}
    for number, path in enumerate(files):
        with safetensors.safe_open(path, "pt") as file:
            own = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
            notes = {name: json.loads(note) for name, note in (file.metadata() or {}).items()}
        if number and own.keys() != read.keys():
            raise SystemExit(f"{path} has other tensors than {files[0]}")
        read = {name: read.get(name, 0) + own[name] / len(files) for name in own}
    unknown = sorted(set(read) - set(old))
    if unknown:
        raise SystemExit(f"{start} has no {unknown[0]}; expected its own layers")
    share = options.share
    new = {name: share * t + (1 - share) * old[name].float() for name, t in read.items()}
    head = found.head
    if f"{HEAD}weight" in new:
        weight, bias = (new.pop(f"{HEAD}{part}").numpy() for part in ("weight", "bias"))
        head = ImportanceHead(weight.astype(np.float32), float(bias[0]))
    backbone.model.load_state_dict(new, strict=False)
    backbone.reference = {"kind": "bert"}
    rotation = backbone.rotation
    turned = None if rotation is None else rotation.numpy().astype(np.float32)
    known = (*found.recipe.trained, "encoder", *(["lexical"] if options.lexical else []))
    trained = tuple(dict.fromkeys(known))
    recipe = replace(found.recipe, name=options.name or out.name, trained=trained)
    lexical = found.lexical
    if options.lexical is not None:
        own = safetensors.torch.load_file(options.lexical)
        lexical = LexicalHead(
            own["lexical.read.weight"][0].numpy(),
            float(own["lexical.read.bias"][0]),
            own["lexical.table"].relu().numpy(),
        )
        recipe = replace(recipe, lexical="head")
    checkpoint.save(
        out,
        replace(found, recipe=recipe, head=head, lexical=lexical, notes={**found.notes, **notes}),
        include_encoder=True,
        form=Form("int8" if options.int8 else "float32", turned),
    )
    print(f"{len(read)} tensors of {', '.join(files)} in {start}: {out}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs=3)
    parser.add_argument("--take", action="store_true")
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--lexical", type=Path)
    parser.add_argument("--name", default="")
    parser.add_argument("--share", type=float, default=1.0)
    options = parser.parse_args()
    first, second, third = options.paths
    if options.take:
        take(first, second, Path(third))
    else:
        put(first, second.split(","), Path(third), options)


if __name__ == "__main__":
    main()
