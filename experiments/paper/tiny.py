"""A stand-in for the paper's run: a random Qwen3 of two layers, and pairs of the demo corpus.

python experiments/paper/tiny.py WORK

writes WORK/qwen3 and WORK/pairs.jsonl; docs/train-your-own.md shows how both stages then run on
two processes.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import torch
import transformers

from hplus.backbones import mini
from hplus.evaluate.data import demo_folder, read_beir


def main(work: Path) -> None:
    """Both files; nothing is trained or fetched."""
    place = mini.folder()
    vocabulary = json.loads((place / "config.json").read_text())["vocab_size"]
    config = transformers.Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
    )
    torch.manual_seed(13)
    transformers.Qwen3Model(config).save_pretrained(work / "qwen3")
    shutil.copyfile(place / "tokenizer.json", work / "qwen3" / "tokenizer.json")
    data = read_beir(demo_folder("en"))
    texts = dict(zip(data.document_ids, data.documents, strict=True))
    with (work / "pairs.jsonl").open("w", encoding="utf-8") as file:
        for name, query in zip(data.query_ids, data.queries, strict=True):
            for document, grade in data.judgements[name].items():
                if grade > 0:
                    row = {"query": query, "positive": texts[document]}
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    main(folder)
