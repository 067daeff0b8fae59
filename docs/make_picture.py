"""Draw docs/explain.svg: what `hplus score … --explain` shows on a terminal.

python docs/make_picture.py
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console

from hplus import HPlus
from hplus.cli.score import print_explanation, print_table

QUERY = "metformin dose in type 2 diabetes with chronic kidney disease"
DOCUMENTS = [
    "In adults with type 2 diabetes and an eGFR of 30 to 45, metformin is halved to 500 mg twice "
    "a day; below 30 it is stopped.",
    "Type 1 diabetes with acute kidney injury: insulin doses fall as the kidneys clear less of it.",
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
