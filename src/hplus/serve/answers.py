"""Answers as JSON: results for programs, and readable ones for the page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from fastapi import Response

from hplus.search.average import Average
from hplus.search.explained import readable, rounded
from hplus.search.results import Results
from hplus.search.snippets import excerpt, likest
from hplus.types import Encoded, Hit, Units


def as_response(value: Any, headers: Mapping[str, str] | None = None) -> Response:
    """A value as JSON; the schema is not checked again on the way out."""
    return Response(as_json(value), 200, headers, "application/json")


def as_json(value: Any) -> bytes:
    """The one way that values are written."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def readable_results(
    found: Results, query: Encoded | None = None, usual: Average | None = None
) -> dict[str, Any]:
    """Results for people: what a page shows, without the texts, which may be long."""
    hits = [
        {
            "id": hit.id,
            "score": hit.score,
            "views": hit.views,
            "metadata": hit.metadata,
            "shown": shown(hit),
            **({} if hit.passage is None else {"passage": hit.passage}),
        }
        for hit in found
    ]
    units = {} if query is None else {"units": query_units(found.query, query)}
    ground = {} if usual is None else {"average": average_document(usual)}
    return {**replace(found, hits=[]).as_json(), **units, **ground, "hits": hits}


def shown(hit: Hit) -> dict[str, Any]:
    """One hit explained: all scores in thousandths; those of lines, light and words add up to the
    shares of their views, and these to the score."""
    if hit.explanation is None:
        return {"excerpt": asdict(excerpt(hit.text, []))}
    found = readable(hit.explanation, hit.text)
    lines = []
    for line in found.lines:
        row = asdict(line)
        row["merged"] = len(row.pop("document_spans"))
        lines.append(row)
    texts, thousandths = found.light
    count, rest = found.rest
    return {
        "fused": found.fused,
        "shares": found.shares,
        "lines": lines,
        "light": {"texts": texts, "thousandths": thousandths},
        "words": [{"text": text, "thousandths": own} for text, own in found.words],
        "rest": {"count": count, "thousandths": rest},
        "dropped": found.dropped,
        "excerpt": asdict(
            excerpt(
                hit.text, [likest(line.text, hit.text, line.document_spans) for line in found.lines]
            )
        ),
    }


def average_document(usual: Average) -> dict[str, Any]:
    """An average document in the figures of `shown`: thousandths that add up in the same way."""
    units = usual.query.units
    total = round(1000 * sum(usual.shares.values()))
    shares = dict(zip(usual.shares, rounded(list(usual.shares.values()), total), strict=True))
    gives = rounded(usual.gives.tolist(), shares.get("phrase", 0))
    return {
        "documents": usual.documents,
        "fused": total,
        "shares": shares,
        "units": [
            {"spans": units.spans_of(i), "similarity": similarity, "thousandths": gives[i]}
            for i, similarity in enumerate(usual.similarities.tolist())
        ],
    }


def query_units(text: str, query: Encoded) -> list[dict[str, Any]]:
    """The units of a query, heaviest first, those that a budget dropped last."""
    return [*_units(text, query.units, kept=True), *_units(text, query.dropped, kept=False)]


def _units(text: str, units: Units, *, kept: bool) -> list[dict[str, Any]]:
    return [
        {
            "text": " … ".join(text[start:end] for start, end in units.spans_of(i)),
            "spans": units.spans_of(i),
            "weight": weight,
            "kept": kept,
        }
        for i, weight in enumerate(units.weights.tolist())
    ]
