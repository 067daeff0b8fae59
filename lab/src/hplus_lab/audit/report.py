"""The figures of an audit, for machines and for people.

Boundary F1 has a 95 % bootstrap interval over items. The CRF is compared with every other
construction by a paired bootstrap over the same items; the p values of one audit are one family,
corrected by Holm's method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hplus.evaluate.statistics import holm, interval, paired_difference
from hplus_lab.audit.compare import Audit
from hplus_lab.audit.constructions import NEEDED
from hplus_lab.audit.gains import Correlation
from hplus_lab.audit.reference import FLAGS

COLUMNS = (
    "units",
    "boundary F1",
    "95 % interval",
    "span F1",
    "multi-token",
    "term recall",
    "CRF ahead by",
    "95 % interval",
    "p (Holm)",
)
FLAG_COLUMNS = (
    "items with",
    *(name.replace("over_", "over-").replace("_", " ") for name in FLAGS),
    "any of them",
)

Summary = dict[str, Any]


def summarise(audit: Audit, correlation: Correlation | None = None, **about: Any) -> Summary:
    """All figures, rounded to four places, after the fields `about`; undefined ones are None."""
    judged = ~np.isnan(audit.rows["crf"].boundary_f1)
    values = {name: {"items": row.boundary_f1[judged]} for name, row in audit.rows.items()}
    ahead = {
        name: paired_difference(values["crf"], own) for name, own in values.items() if name != "crf"
    }
    corrected = holm([found.p for found in ahead.values()])
    rows: dict[str, Any] = {}
    for name, row in audit.rows.items():
        spread = interval(values[name])
        rows[name] = {
            "boundary_f1": spread.mean,
            "low": spread.low,
            "high": spread.high,
            "exact_f1": row.exact_f1,
            "multi_f1": row.multi_f1,
            "term_recall": row.term_recall,
            "units_a_text": row.units,
            "flags": {**row.flags, "any": row.flagged},
        }
    for (name, found), p in zip(ahead.items(), corrected, strict=True):
        rows[name]["crf_ahead"] = {**vars(found), "holm": p}
    return {
        **about,
        "items": audit.items,
        "items_without_gaps": int((~judged).sum()),
        "tokens": audit.tokens,
        "tokens_beyond_window": audit.unseen,
        "rows": _rounded(rows),
        "absent": {name: f"needs {what}" for name, what in NEEDED.items() if name not in rows},
        "agreement": _rounded(vars(audit.agreement)) if audit.agreement else None,
        "gains": _rounded(vars(correlation)) if correlation else None,
    }


def table(summary: Summary) -> list[list[str]]:
    """The lines of the table under `COLUMNS`."""
    lines = []
    for name, row in summary["rows"].items():
        line = [name, _figure(row["boundary_f1"]), _spread(row)]
        line += [_figure(row[measure]) for measure in ("exact_f1", "multi_f1", "term_recall")]
        ahead = row.get("crf_ahead")
        line += [f"{ahead['mean']:+.3f}", _spread(ahead), f"{ahead['holm']:.4f}"] if ahead else []
        lines.append(line + [""] * (len(COLUMNS) - len(line)))
    return lines


def flag_table(summary: Summary) -> list[list[str]]:
    """The lines of the table of errors under `FLAG_COLUMNS`: how many items show each."""
    return [
        [name, *(f"{row['flags'][flag]:g}" for flag in (*FLAGS, "any"))]
        for name, row in summary["rows"].items()
    ]


def notes(summary: Summary) -> list[str]:
    """What the tables are based on, in sentences."""
    lines = [
        f"{summary['items']:,} items, {summary['gold']} reference {summary['reference']}, "
        f"model {summary['model']} ({summary['fingerprint'][:12]}).",
        "Items without a token gap that counts, and so without boundary F1: "
        f"{summary['items_without_gaps']:,}. Tokens beyond the model's window, which count for no "
        f"construction: {summary['tokens_beyond_window']:,} of {summary['tokens']:,}.",
        f"Holm's family: the CRF against the {len(summary['rows']) - 1} other constructions.",
    ]
    lines += [f"No row {name}: it {why}." for name, why in summary["absent"].items()]
    if both := summary["agreement"]:
        a, b = both["boundaries"]
        lines.append(
            f"Annotators A and B over {both['items']:,} items: Cohen's kappa "
            f"{_figure(both['kappa'])} (undefined for {both['undefined']:,}), boundary F1 "
            f"{_figure(both['boundary_f1'])}, exact span F1 {_figure(both['exact_f1'])}; "
            f"{a:.1f} and {b:.1f} boundaries per item."
        )
    if gains := summary["gains"]:
        lines.append(
            f"Boundary F1 of the CRF and gain of Phrase over Token over {gains['items']:,} "
            f"queries: Spearman's rho {_figure(gains['rho'])}, p {_figure(gains['p'])}."
        )
    return lines


def markdown(summaries: Sequence[Summary]) -> str:
    """All audits as one page."""
    parts = [
        "# Boundary audit",
        "Boundary F1: mean over items, over gaps between tokens (words; Han characters). Span F1, "
        "multi-token span F1 and term recall: over all items together. A term is recalled when it "
        "lies whole inside one unit. In a partial reference only boundaries inside and at the "
        "edges of marked spans count, and only units that meet one. Random spans have the CRF's "
        "lengths and are the mean of five seeds; equal chunks are as many as the CRF's units.",
    ]
    for summary in summaries:
        parts.append(f"## {' '.join(filter(None, (summary['set'], summary['split'])))}")
        parts.append("\n".join(f"- {line}" for line in notes(summary)))
        parts.append(_page_table(COLUMNS, table(summary)))
        parts.append(_page_table(FLAG_COLUMNS, flag_table(summary)))
    return "\n\n".join(parts) + "\n"


def _page_table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(columns) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (columns, rule, *lines))


def _figure(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"


def _spread(found: dict[str, float]) -> str:
    return f"{found['low']:.3f} to {found['high']:.3f}"


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(inner) for inner in value]
    if isinstance(value, float):
        # Adding zero turns -0.0 into 0.0; JSON has no nan.
        return None if math.isnan(value) else round(value, 4) + 0.0
    return value
