"""Units recognised by their spelling: numbers with units, abbreviations, hyphen compounds."""

from __future__ import annotations

import re

from hplus.types import Span
from hplus.units.rules import compounds
from hplus.units.words import HAN

# Not inside a name: the 6 of "IL-6 h" is not a duration.
_DIGITS = r"\d+(?:[.,]\d+)*"
_NUMBER = rf"(?<![\w.,/–-])[<>≤≥~±=]?\s?[-−]?{_DIGITS}(?:\s?(?:-|–|/|to|±|×|x)\s?{_DIGITS})?"
_SYMBOL = (
    r"(?:%|‰|°\s?[CFK]?|"
    r"(?:[kMGcdmµμunpf]?(?:g|l|L|m|s|mol|M|Hz|Pa|J|W|V|A|N|eV|cal|Da|bp|b|B|Gy|Sv|Bq|Ω|T))|"
    r"mmHg|mm\s?Hg|rpm|U|IU|mIU|kb|Mb|kDa|min|h|hr|hrs|d|wk|yr|"
    r"hours?|minutes?|seconds?|days?|weeks?|months?|years?|"
    r"milligrams?|micrograms?|grams?|kilograms?|litres?|liters?|metres?|meters?|kilometers?|"
    r"inches|feet|miles|percent|degrees)"
)
_POWER = r"(?:\^?[-−]?[1-4²³⁻¹]+)?"
_QUANTITY = re.compile(
    rf"{_NUMBER}\s?-?\s?{_SYMBOL}{_POWER}(?:\s?[/·]\s?(?:{_SYMBOL}){_POWER}|\s?/\s?[a-z]{{1,6}})*"
    r"(?![\w])"
)
_HAN = re.compile(f"[{HAN}]")
_ABBREVIATION = re.compile(r"(?=\S*[A-Z]\S*(?:[A-Z]|\d))[A-Za-z0-9α-ω'’/+.-]{2,}")


def quantities(text: str) -> list[Span]:
    """Numbers with their units: "5 mg/kg", "10-20 mmHg", "37 °C", "95 %".

    >>> text = "Give 5 mg/kg for 12 weeks at 37 °C."
    >>> [text[a:b] for a, b in quantities(text)]
    ['5 mg/kg', '12 weeks', '37 °C']
    """
    return [
        Span(match.start() + len(match[0]) - len(match[0].lstrip()), match.end())
        for match in _QUANTITY.finditer(text)
    ]


def spelled_compounds(text: str) -> list[Span]:
    """Words joined by a sign without spaces, and abbreviations: "COX-2", "HbA1c",
    "double-blind". Not in Chinese, where a sign would join two characters of longer words.

    >>> text = "A double-blind trial of anti-TNF in RA"
    >>> [text[a:b] for a, b in spelled_compounds(text)]
    ['double-blind', 'anti-TNF', 'RA']
    """
    return [
        span
        for span, content in compounds(text)
        if not _HAN.search(text, *span)
        and (content > 1 or (content and _ABBREVIATION.fullmatch(text[span.start : span.end])))
    ]
