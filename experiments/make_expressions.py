"""Fixed expressions with function words ("shortness of breath"), from term lists and from texts:

    python experiments/make_expressions.py ../shared/data src/hplus/units/expressions.txt

*Terms* of MeSH, WordNet, Disease Ontology, ICD-10-CM, Mondo or EFO (free to ship), of three to five
words, with a preposition or an article between two content words and no "and" or "or", which occur
in the texts that hplus-mini learned from; all of MeSH and WordNet as short as "range of motion".
*Collocations* "noun of noun" of those texts that hold
together: each half predicts the other, and what follows is seldom a further content word, which
would be a phrase cut short ("women of childbearing"). Lower-cased and sorted.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from hplus.units.terms import Terms
from hplus.units.words import is_content

LISTS = ("mesh", "wordnet_multiword", "disease_ontology", "icd10cm", "mondo", "efo")
GENERAL = LISTS[:2]
SPANS = ("craft_np", "oastm_np", "jnlpba", "bc5cdr", "ncbi_disease", "anatem", "bc2gm", "measeval")
TEXTS = ("elife_medicine_paragraphs", "openstax_paragraphs", "acl_abstracts")
PAIRS = ("elife_to_abstract", "elife_to_digest", "openstax", "ontology_definitions")
PAIRS += ("wikipathways", "squad_dev", "medquad")
LINKS = frozenset(("of", "in", "to", "for", "with", "on", "at", "by", "from", "the", "a", "an"))
# Heads that count or name a part of anything.
COUNTING = re.compile(
    r"(number|amount|percent|percentage|majority|minority|proportion|fraction|series|couple|pair|"
    r"piece|team|group|set|list|copy|copies|example|round|class|kind|type|sort|lack|use|role|"
    r"(hundred|thousand|million|billion|ten|dozen|second|minute|hour|day|week|month|year)s)s?"
)
OCCURRENCES = 10
COHERENCE = 0.38
"""Least normalised pointwise mutual information of the two halves."""
COMPLETE = 0.7
"""Least share of occurrences that no content word follows."""
_OF = re.compile(r"(?<![\w-])(?=([a-z]{3,}) of ([a-z]{3,})(?![\w-])( [a-z]+)?)")
_WORD = re.compile(r"[a-z]{3,}")


def main() -> None:
    data, out = map(Path, sys.argv[1:])
    terms = Terms(sorted(candidates(data, LISTS)))
    frequency: Counter[int] = Counter()
    words: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    continued: Counter[tuple[str, str]] = Counter()
    for text in texts(data):
        frequency.update({index for _, _, index in terms.find(text)})
        lower = text.lower()
        words.update(_WORD.findall(lower))
        for match in _OF.finditer(lower):
            pairs[match[1], match[2]] += 1
            continued[match[1], match[2]] += match[3] is not None and is_content(match[3].strip())
    listed = {terms.patterns[index] for index in frequency}
    listed |= set(filter(is_short, candidates(data, GENERAL)))
    total = sum(words.values())
    found = {
        f"{first} of {second}"
        for (first, second), count in pairs.items()
        if count >= OCCURRENCES
        and is_content(first)
        and is_content(second)
        and not COUNTING.fullmatch(first)
        and not first.endswith(("ed", "ing"))
        and coherence(count, words[first], words[second], total) >= COHERENCE
        and 1 - continued[first, second] / count >= COMPLETE
    }
    kept = sorted(listed | found)
    out.write_text("".join(f"{term}\n" for term in kept), "utf-8")
    print(f"{len(listed):,} terms, {len(found):,} collocations; {len(kept):,} expressions in {out}")


def candidates(data: Path, lists: Sequence[str]) -> set[str]:
    """Terms that can be expressions."""
    wanted: set[str] = set()
    for name in lists:
        with gzip.open(data / "terms" / f"{name}.txt.gz", "rt", encoding="utf-8") as lines:
            wanted |= {term for line in lines if is_expression(term := line.strip().lower())}
    return wanted


def is_expression(term: str) -> bool:
    """Whether function words stand between content words, and none at the edges."""
    words = term.split()
    return (
        3 <= len(words) <= 5
        and re.fullmatch(r"[a-z' -]+", term) is not None
        and is_content(words[0])
        and is_content(words[-1])
        and any(word in LINKS for word in words[1:-1])
        and not {"and", "or"} & set(words)
    )


def is_short(term: str) -> bool:
    """Two single words and "of": common enough to need no proof that texts use it."""
    words = term.split()
    return len(words) == 3 and words[1] == "of"


def coherence(together: int, first: int, second: int, total: int) -> float:
    """Normalised pointwise mutual information, at most 1."""
    return math.log(together * total / (first * second)) / math.log(total / together)


def texts(data: Path) -> Iterator[str]:
    """Every distinct text once."""
    seen: set[int] = set()
    for text in _texts(data):
        if hash(text) not in seen:
            seen.add(hash(text))
            yield text


def _texts(data: Path) -> Iterator[str]:
    for name in TEXTS:
        with gzip.open(data / "texts" / f"{name}.txt.gz", "rt", encoding="utf-8") as lines:
            yield from lines
    for name in SPANS:
        with gzip.open(data / "spans" / name / "train.jsonl.gz", "rt", encoding="utf-8") as rows:
            yield from (json.loads(row)["text"] for row in rows)
    for name in PAIRS:
        with gzip.open(data / "pairs" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as rows:
            yield from (json.loads(row)["positive"] for row in rows)


if __name__ == "__main__":
    main()
