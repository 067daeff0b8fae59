"""Draw docs/explain.svg: what `hplus score … --explain` shows on a terminal.

python docs/make_picture.py
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console

from hplus import HPlus
from hplus.cli.explanation import print_explanation
from hplus.cli.score import print_table

QUERY = "first-line treatment of high blood pressure in pregnancy"
DOCUMENTS = [
    "In pregnant women with hypertension, labetalol is the usual initial therapy.",
    "Gestational diabetes is treated with diet first, and with insulin where that is not enough.",
]

if __name__ == "__main__":
    out = Console(record=True, width=112, file=io.StringIO(), force_terminal=True, highlight=False)
    scores = HPlus().score(QUERY, DOCUMENTS, explain=True)
    print_table(DOCUMENTS, scores, out)
    for rank, i in enumerate(scores.ranking().tolist(), start=1):
        assert scores.explanations is not None
        print_explanation(QUERY, DOCUMENTS[i], scores.explanations[i], f"{rank}", out)
    svg = out.export_svg(title=f'hplus score "{QUERY}" … --explain', unique_id="hplus")
    # The page must not fetch anything: the reader's own monospace font will do.
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL).replace("Fira Code", "monospace")
    Path(__file__).with_name("explain.svg").write_text(svg)
