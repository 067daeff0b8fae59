"""Fixed expressions with function words ("shortness of breath"), from term lists and from texts:

    python experiments/make_expressions.py ../shared/data src/hplus/units/expressions.txt

*Terms* of three to five words with a preposition or an article between content words: all of MeSH
and WordNet; of Disease Ontology, ICD-10-CM, Mondo, EFO and the Computer Science Ontology, whose
names are longer and rarer, what occurs in the texts. Terms with "and" or "or" are mostly two
things ("nausea and vomiting"), except for WordNet's idioms ("wear and tear").

What authors of those texts treat as one word: *hyphenated* somewhere ("time-to-event"), with the
noun it often belongs to ("mother-to-child transmission"), or *abbreviated* where it stands ("years
of life lost (YLL)").

*Collocations* "noun of noun" of the texts, where what follows is seldom a further content word,
which would be a phrase cut short ("women of childbearing"). Either they hold together: each half
predicts the other. Or they hold together a little and are like the expressions of MeSH and
WordNet: both halves have the same place in one of those, or the second has it in several ("site
of infection": "source of infection", "chain of infection").

At last, the head of an expression in its other number, where texts have it ("causes of death").
Lower-cased and sorted. All lists and texts allow it to be shipped; docs/design.md names them.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from hplus.units.terms import Terms
from hplus.units.words import is_content

GENERAL = ("mesh", "wordnet_multiword")
SPECIAL = ("disease_ontology", "icd10cm", "mondo", "efo", "cso")
SPANS = ("craft_np", "oastm_np", "jnlpba", "bc5cdr", "ncbi_disease", "anatem", "bc2gm", "measeval")
TEXTS = ("elife_medicine_paragraphs", "openstax_paragraphs", "acl_abstracts")
PAIRS = ("elife_to_abstract", "elife_citance_abstract", "elife_heading_paragraph")
PAIRS += ("elife_to_digest", "openstax", "ontology_definitions", "acl_title_abstract")
PAIRS += ("wikipathways", "squad_dev", "medquad")
PREPOSITIONS = frozenset(
    """of in to for with on at by from under over per between within after before during
    against into through as than versus vs""".split()  # noqa: SIM905
)
ARTICLES = frozenset(("the", "a", "an"))
CONJUNCTIONS = frozenset(("and", "or"))
LINKS = PREPOSITIONS | ARTICLES | CONJUNCTIONS
# Heads that count or name a part of anything.
COUNTING = re.compile(
    r"(number|amount|percent|percentage|majority|minority|proportion|fraction|series|couple|pair|"
    r"piece|team|group|set|list|copy|copies|example|round|class|kind|type|sort|lack|use|role|"
    r"lot|deal|half|part|subset|subgroup|cohort|wealth|paucity|plenty|variety|term|burst|volume|"
    r"second|minute|hour|day|week|month|year|decade|(hundred|thousand|million|billion|ten|dozen)s)s?"
)
LONGEST = 5
"""Words of a term; what is abbreviated may have two more."""
WRITTEN = 2
"""Texts that hyphenate or abbreviate an expression, or have the other number of its head."""
OFTEN = 0.2
"""Least share of the texts with a hyphenated compound in which the same noun follows it."""
FROM = 0.3
"""Most "from" before "X to Y": "from left to right" is no expression."""
OCCURRENCES = 10
COHERENCE = 0.38
"""Least normalised pointwise mutual information of the two halves."""
LIKE_OCCURRENCES = 5
LIKE_COHERENCE = 0.1
"""The same for collocations like known expressions."""
LIKE_SECOND = 2
"""Known expressions that must end like it where none begins like it."""
COMPLETE = 0.7
"""Least share of occurrences that no content word follows."""
_PAIR = re.compile(r"(?<![\w-])(from )?(?=([a-z]{3,}) (of|to) ([a-z]{3,})(?![\w-])( [a-z]+)?)")
_WORD = re.compile(r"[a-z]{3,}")
_HYPHENATED = re.compile(r"(?<![\w-])([a-z]{2,}(?:-[a-z]{2,}){2,4})(?![\w-])( [a-z]{3,}(?![\w-]))?")
_HYPHENS = re.compile(rf"(?<=[a-z])-({'|'.join(sorted(LINKS))})(?:-(the|a|an))?-")
_ABBREVIATION = re.compile(r" \(([A-Z][A-Za-z/-]{1,7})\)")
_BEFORE = re.compile(r"(?<![\w'-])(?:[A-Za-z]['A-Za-z-]* )*[A-Za-z]['A-Za-z-]*\Z")


class Counts:
    """What the texts say about words, pairs "X of Y" and "X to Y", and how authors write."""

    def __init__(self, terms: Terms, texts: Iterable[str]) -> None:
        self.terms: set[str] = set()
        self.words: Counter[str] = Counter()
        self.pairs: Counter[tuple[str, str, str]] = Counter()
        self.continued: Counter[tuple[str, str, str]] = Counter()
        self.after_from: Counter[str] = Counter()
        self.hyphenated: Counter[str] = Counter()
        self.belongs: Counter[tuple[str, str]] = Counter()
        self.abbreviated: Counter[str] = Counter()
        for text in texts:
            self.terms |= {terms.patterns[index] for _, _, index in terms.find(text)}
            lower = text.lower()
            self.words.update(_WORD.findall(lower))
            for match in _PAIR.finditer(lower):
                pair = match[2], match[3], match[4]
                if is_content(pair[0]) and is_content(pair[2]):
                    self.pairs[pair] += 1
                    self.continued[pair] += bool(match[5]) and is_content(match[5].strip())
                    self.after_from[" ".join(pair)] += match[1] is not None
            compounds = set(hyphenated(lower))
            self.hyphenated.update({compound for compound, _ in compounds})
            self.belongs.update(compounds)
            self.abbreviated.update(set(long_forms(text)))
        self.total = sum(self.words.values())

    def coherence(self, pair: tuple[str, str, str]) -> float:
        """Normalised pointwise mutual information, at most 1."""
        together, by_chance = self.pairs[pair], self.words[pair[0]] * self.words[pair[2]]
        return math.log(together * self.total / by_chance) / math.log(self.total / together)

    def often_after_from(self, expression: str) -> bool:
        """Whether "from" mostly opens it."""
        first, link, *last = expression.split()
        together = self.pairs[first, link, " ".join(last)]
        return link == "to" and self.after_from[expression] > FROM * together


def main() -> None:
    data, out = map(Path, sys.argv[1:])
    counts = Counts(Terms(sorted(candidates(data, SPECIAL))), texts(data))
    general = candidates(data, GENERAL)
    listed = general | idioms(data) | counts.terms
    written = {
        *(own for own, times in counts.hyphenated.items() if times >= WRITTEN),
        *(
            own + noun
            for (own, noun), times in counts.belongs.items()
            if times >= max(WRITTEN, OFTEN * counts.hyphenated[own])
        ),
        *(own for own, times in counts.abbreviated.items() if times >= WRITTEN),
    }
    written = {
        own
        for own in written
        if is_expression(own, PREPOSITIONS | CONJUNCTIONS, LONGEST + 2)
        and not counts.often_after_from(own)
    }
    found = collocations(counts, general)
    kept = listed | written | found
    kept |= other_numbers(counts, kept)
    out.write_text("".join(f"{term}\n" for term in sorted(kept)), "utf-8")
    print(
        f"{len(listed):,} terms, {len(written):,} written as one, {len(found):,} collocations; "
        f"{len(kept):,} expressions in {out}"
    )


def candidates(data: Path, lists: Sequence[str]) -> set[str]:
    """Terms that can be expressions. WordNet's need a preposition: it has "take a hop"."""
    return {
        term
        for name in lists
        for term in terms_of(data, name)
        if is_expression(
            term, PREPOSITIONS if name == "wordnet_multiword" else PREPOSITIONS | ARTICLES
        )
    }


def idioms(data: Path) -> set[str]:
    """Of WordNet, two single words and "and" or "or"."""
    return {
        term
        for term in terms_of(data, "wordnet_multiword")
        if is_expression(term, CONJUNCTIONS, longest=3)
    }


def terms_of(data: Path, name: str) -> Iterator[str]:
    """The terms of a list, in lower case."""
    with gzip.open(data / "terms" / f"{name}.txt.gz", "rt", encoding="utf-8") as lines:
        yield from (line.strip().lower() for line in lines)


def is_expression(term: str, links: frozenset[str], longest: int = LONGEST) -> bool:
    """Whether function words stand between content words, one of `links` among them, and none at
    the edges. MeSH's "cookbooks as topic" is a heading that nobody writes."""
    words = term.split()
    return (
        3 <= len(words) <= longest
        and re.fullmatch(r"[a-z' -]+", term) is not None
        and is_content(words[0])
        and is_content(words[-1])
        and not {words[0], words[-1]} & LINKS
        and not links.isdisjoint(words[1:-1])
        and (not CONJUNCTIONS & set(words) or links >= CONJUNCTIONS)
        and re.search(r" as topics?\b", term) is None
    )


def hyphenated(lower: str) -> Iterator[tuple[str, str]]:
    """Compounds with hyphens, spelled with spaces, and the word after each (or nothing).

    >>> list(hyphenated("mother-to-child transmission, end-of-life"))
    [('mother to child', ' transmission'), ('end of life', '')]
    """
    for match in _HYPHENATED.finditer(lower):
        compound = match[1].replace("-", " ")
        if not LINKS.isdisjoint(compound.split()[1:-1]):
            yield compound, match[2] or ""


def long_forms(text: str) -> Iterator[str]:
    """What a text abbreviates, by initials; function words may have none.

    >>> list(long_forms("as years of life lost (YLL) and its limit-of-detection (LoD)"))
    ['years of life lost', 'limit of detection']
    """
    for match in _ABBREVIATION.finditer(text):
        before = _BEFORE.search(text, max(0, match.start() - 100), match.start())
        if before is None:
            continue
        # "graft-versus-host disease" is written with spaces as well; other hyphens stay.
        words = _HYPHENS.sub(r" \1 \2 ", before[0].lower()).split()
        place = len(words)
        for letter in reversed([own.lower() for own in match[1] if own.isupper()]):
            place -= 1
            while place >= 0 and words[place][0] != letter and words[place] in LINKS:
                place -= 1
            if place < 0 or words[place][0] != letter:
                break
        else:
            yield " ".join(words[place:])


def collocations(counts: Counts, known: set[str]) -> set[str]:
    """Pairs "noun of noun" that hold together, or a little and like known expressions."""
    short = [words for words in map(str.split, known) if len(words) == 3 and words[1] == "of"]
    firsts = Counter(first for first, _, _ in short)
    seconds = Counter(second for _, _, second in short)
    found = set()
    for pair, together in counts.pairs.items():
        first, link, second = pair
        if (
            link != "of"
            or together < LIKE_OCCURRENCES
            or COUNTING.fullmatch(first)
            or first.endswith(("ed", "ing"))
            or 1 - counts.continued[pair] / together < COMPLETE
        ):
            continue
        coherence = counts.coherence(pair)
        like = seconds[second] >= LIKE_SECOND or (firsts[first] and seconds[second])
        if (together >= OCCURRENCES and coherence >= COHERENCE) or (
            like and coherence >= LIKE_COHERENCE
        ):
            found.add(" ".join(pair))
    return found


def other_numbers(counts: Counts, known: set[str]) -> set[str]:
    """Pairs of the texts that differ from a known expression in a plural s of the first noun."""
    found = set()
    for (first, link, second), together in counts.pairs.items():
        other = first.removesuffix("s") if first.endswith("s") else f"{first}s"
        if together >= WRITTEN and link == "of" and f"{other} of {second}" in known:
            found.add(f"{first} of {second}")
    return found


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
