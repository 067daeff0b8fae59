"""Make the mean of the unit vectors of a checkpoint from open texts.

    python experiments/make_mean.py ../shared/data src/hplus/checkpoints/small
    python experiments/make_mean.py ../shared/data models/zh/src/hplus_zh/zh

Takes texts that are spread evenly over files that are free to ship, encodes them as documents at
the full width, and writes mean.safetensors beside the heads and its hash into config.json. The
fingerprint stays as it is. A few minutes of a core.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import safetensors.numpy

from hplus import HPlus
from hplus.backbones.files import sha256
from hplus.checkpoint import MEAN
from hplus.types import F32

# Of several fields alike: a mean of one field is no better than none for the others.
ENGLISH = ("acl_abstracts", "elife_medicine_paragraphs", "openstax_paragraphs")
CHINESE = ("zh_cmrc2018", "zh_drcd")
TEXTS = 200
"""Of each file."""


def spread(data: Path, name: str) -> list[str]:
    """Texts of a file at even distances: lines of texts/, or the positives of pairs/."""
    if (path := data / "texts" / f"{name}.txt.gz").exists():
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        texts = [line.strip() for line in lines if line.strip()]
    else:
        rows = gzip.decompress((data / "pairs" / f"{name}.jsonl.gz").read_bytes()).splitlines()
        texts = [json.loads(row)["positive"] for row in rows]
    return texts[:: len(texts) // TEXTS][:TEXTS]


def mean_of(model: HPlus, texts: list[str]) -> F32:
    """The mean of the units' vectors, f32[d]; units of zeros, of unknown tokens, are left out."""
    vectors = model.encode_document(texts, width=model.dim).units.vectors
    mean: F32 = vectors[vectors.any(axis=1)].mean(axis=0, dtype=np.float64).astype(np.float32)
    return mean


def main() -> None:
    data, folder = map(Path, sys.argv[1:])
    model = HPlus(folder)
    names = CHINESE if "zh" in model.languages else ENGLISH
    mean = mean_of(model, [text for name in names for text in spread(data, name)])
    (folder / MEAN).write_bytes(safetensors.numpy.save({"mean": mean}))
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["files"][MEAN] = sha256(folder / MEAN)
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    (folder / "config.json").write_text(text, "utf-8")
    print(f"{folder / MEAN}: length {np.linalg.norm(mean):.3f}, from {', '.join(names)}")


if __name__ == "__main__":
    main()
