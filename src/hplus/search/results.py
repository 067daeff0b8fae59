"""Results of a search: a sequence of hits that knows how to become JSON, a table, and HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from hplus.search.explained import readable
from hplus.search.page import explanation, figures, marked, page
from hplus.search.snippets import snippet
from hplus.terminal import visible
from hplus.types import Hit

# Characters of a query that the caption of a table shows: it may be a whole document.
CAPTION = 200


@dataclass(frozen=True)
class Results(Sequence[Hit]):
    """Hits, best first, and how they were found: the path of each branch, how many candidates were
    scored by every view.

    from_: how many better hits were left out before the first one. hint: what may be wrong with the
    request, such as a field in its filter that no document has.
    """

    query: str
    hits: list[Hit]
    paths: dict[str, str]
    candidates: int
    from_: int = 0
    hint: str = ""

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, i: Any) -> Any:
        return self.hits[i]

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def as_json(self) -> dict[str, Any]:
        """Plain data; explanations and snippets with their marks where they were asked for."""
        hits = []
        for hit in self.hits:
            row = dict(vars(hit))
            if hit.passage is None:
                del row["passage"]
            if hit.explanation is None:
                del row["explanation"]
            else:
                row["explanation"] = asdict(hit.explanation)
                row["snippet"] = asdict(snippet(hit))
            hits.append(row)
        hint = {"hint": self.hint} if self.hint else {}
        return {
            "query": self.query,
            "hits": hits,
            "paths": self.paths,
            "candidates": self.candidates,
            **hint,
        }

    def __str__(self) -> str:
        """A table: rank, id, score, the score of each view, and a line of text."""
        lines = [
            f"{rank:>2}  {hit.id}  {hit.score:.3f}  {_views(hit)}\n    {snippet(hit).text}"
            for rank, hit in enumerate(self.hits, start=self.from_ + 1)
        ]
        return visible("\n".join([*lines, self.summary(), *filter(None, [self.hint])]))

    def summary(self) -> str:
        """How many candidates there were, and which way each branch took."""
        noun = "candidate" if self.candidates == 1 else "candidates"
        paths = ", ".join(f"{branch} {path}" for branch, path in self.paths.items())
        return f"{self.candidates:,} {noun}; {paths}"

    def _repr_html_(self) -> str:
        """A table for notebooks, phrases that matched on coloured ground."""
        rows = "".join(
            f"<tr><td>{rank}</td><td>{escape(hit.id)}</td><td>{hit.score:.3f}</td>"
            f"<td>{escape(_views(hit))}</td>"
            f'<td style="text-align:left">{marked(snippet(hit))}{self._why(hit)}</td></tr>'
            for rank, hit in enumerate(self.hits, start=self.from_ + 1)
        )
        head = "".join(f"<th>{name}</th>" for name in ("", "id", "score", "views", "text"))
        return visible(
            f"<table><caption>{escape(self._caption())}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{rows}</tbody></table><p>{escape(self.summary())}</p>"
        )

    def as_html(self) -> str:
        """A page of its own: every hit explained, as far as the search was asked to."""
        parts = []
        for rank, hit in enumerate(self.hits, start=self.from_ + 1):
            if hit.explanation is None:
                parts.append(
                    f"<p><strong>{rank} {escape(hit.id)}</strong> {marked(snippet(hit))}</p>"
                )
            else:
                label = f"{rank} {hit.id}"
                parts.append(explanation(self.query, hit.text, hit.explanation, label))
        return page(self._caption(), [*parts, f"<p>{escape(self.summary())}</p>"])

    def _caption(self) -> str:
        query = " ".join(self.query.split())
        return query if len(query) <= CAPTION else query[:CAPTION] + " …"

    def _why(self, hit: Hit) -> str:
        if hit.explanation is None:
            return ""
        found = readable(hit.explanation, hit.text)
        return f"<details><summary>{escape(found.sum)}</summary>{figures(found)}</details>"


def _views(hit: Hit) -> str:
    return "  ".join(f"{view} {score:.3f}" for view, score in hit.views.items())
