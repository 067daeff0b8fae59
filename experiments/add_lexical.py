"""A checkpoint with a lexical head that was trained apart, and the fusion weights chosen for it.

    python experiments/add_lexical.py src/hplus/checkpoints/small \
        experiments/small-lexical.safetensors --fusion 1.5 1 0.25

The head reads the layer of the other heads, which stay as they are, as the encoder does; it was
trained on stored states by experiments/small-heads.toml. The card of the checkpoint comes from
experiments/cards.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import safetensors.numpy

from hplus import checkpoint
from hplus.heads.lexical import LexicalHead


def read(file: Path) -> LexicalHead:
    """The head of a training run's tensors; its table is read through relu, as in training."""
    tensors = safetensors.numpy.load_file(file)
    return LexicalHead(
        tensors["lexical.read.weight"][0],
        float(tensors["lexical.read.bias"][0]),
        np.maximum(tensors["lexical.table"], 0),
    )


def add(folder: Path, head: Path, fusion: dict[str, float]) -> None:
    """Write the checkpoint of a folder again, with the head."""
    # By its path: an installed name would be searched for elsewhere.
    found = checkpoint.load(folder.resolve())
    recipe = replace(
        found.recipe,
        lexical="head",
        fusion=fusion,
        trained=tuple(dict.fromkeys((*found.recipe.trained, "lexical"))),
    )
    about = "heads trained on the frozen backbone: CRF (units), importance, lexical head"
    commands = f"{found.notes['command']}; experiments/train_small_v2.sh (lexical head)"
    notes = {**found.notes, "about": about, "command": commands}
    card = (Path(__file__).parent / "cards" / f"{folder.name}.md").read_text()
    with tempfile.TemporaryDirectory() as draft:
        made = Path(draft) / folder.name
        new = replace(found, recipe=recipe, lexical=read(head), notes=notes)
        checkpoint.save(made, new, include_encoder=True, card=card)
        for path in made.rglob("*"):
            if path.is_file():
                shutil.copyfile(path, folder / path.relative_to(made))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("head", type=Path)
    parser.add_argument("--fusion", type=float, nargs=3, metavar=("GLOBAL", "PHRASE", "LEXICAL"))
    options = parser.parse_args()
    names = ("global", "phrase", "lexical")
    add(options.folder, options.head, dict(zip(names, options.fusion, strict=True)))
