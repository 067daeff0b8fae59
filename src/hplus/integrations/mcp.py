"""An index as tools of the Model Context Protocol: `search`, `read` and `explain`, over stdio.

A model that searches pays for every token it reads, so answers are cut to `max_tokens` (counted by
the index's own tokenizer) at the phrases that matched, and say where in the document they are;
`read` gives more of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

from hplus.any_index import AnyIndex
from hplus.errors import HPlusError, InputError, MissingDocumentError, MissingExtraError
from hplus.search.explained import readable
from hplus.search.snippets import excerpt
from hplus.types import Hit

try:
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from pydantic import Field
except ModuleNotFoundError:
    raise MissingExtraError("the tools need mcp: pip install 'hplus[mcp]'") from None

LEAST_TOKENS, MOST_TOKENS = 20, 20_000
MaxTokens = Annotated[
    int, Field(ge=LEAST_TOKENS, le=MOST_TOKENS, description="Tokens of text, at most.")
]
# Characters of an excerpt for each token it may have: words are longer, so it is cut after.
CHARACTERS = 6


def server_of(index: AnyIndex, name: str) -> MCPServer[Any]:
    """The tools over an open index."""
    server = MCPServer(
        name=f"hplus-{name}",
        instructions="Search documents by phrases. Cite ids; read a document for more of its text.",
    )

    @server.tool()
    @told
    def search(
        query: Annotated[str, Field(min_length=1, max_length=8_192)],
        k: Annotated[int, Field(ge=1, le=50)] = 5,
        where: Annotated[
            str | None, Field(description="A filter on metadata, such as: year >= 2020")
        ] = None,
        max_tokens: MaxTokens = 1_500,
        cursor: Annotated[str | None, Field(description="`next` of the answer before.")] = None,
    ) -> dict[str, Any]:
        """Find documents by phrases: each with the phrases that matched and where they are."""
        first = _offset(cursor)
        index.refresh()
        found = index.search(query, k=k + 1, where=where, from_=first, explain=True)
        shown: list[dict[str, Any]] = []
        left = max_tokens
        for hit in found[:k]:
            if shown and left < LEAST_TOKENS:
                break
            row, used = _shown(index, hit, min(left, max(LEAST_TOKENS, max_tokens // k)))
            shown.append(row)
            left -= used
        more = len(shown) < len(found)
        return {
            "hits": shown,
            **({"next": str(first + len(shown))} if more else {}),
            **({"hint": found.hint} if found.hint else {}),
        }

    @server.tool()
    @told
    def read(
        id: str,
        start: Annotated[int, Field(ge=0)] = 0,
        end: Annotated[int | None, Field(description="Characters, not tokens.")] = None,
        max_tokens: MaxTokens = 2_000,
    ) -> dict[str, Any]:
        """Characters start to end of a document; `next` is where the rest begins, if it was cut."""
        index.refresh()
        document = index.get(id)
        if document is None:
            raise MissingDocumentError(f"no document {id!r} in the index")
        text = document.text[start:end]
        cut = _cut(index, text, max_tokens)
        rest = {} if len(cut) == len(text) else {"next": start + len(cut)}
        return {"id": id, "text": cut, "start": start, "end": start + len(cut),
                "length": len(document.text), "metadata": document.metadata, **rest}  # fmt: skip

    @server.tool()
    @told
    def explain(query: Annotated[str, Field(min_length=1)], id: str) -> dict[str, Any]:
        """Why a document scores as it does for a query: views, phrases and exact words."""
        index.refresh()
        (hit,) = index.rerank(query, [id], explain=True)
        assert hit.explanation is not None
        found = readable(hit.explanation, hit.text)
        return {
            "id": id,
            "score": hit.score,
            "sum": found.sum,
            "phrases": _phrases(hit),
            "exact": found.exact,
            "dropped": found.dropped,
        }

    return server


def serve(index: AnyIndex, name: str) -> None:
    """Answer on standard input and output until the input ends."""
    server_of(index, name).run("stdio")


def told(tool: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """A mistake is told to the model that made it, in the library's own sentence."""

    @wraps(tool)
    def run(**given: Any) -> dict[str, Any]:
        try:
            return tool(**given)
        except HPlusError as error:
            raise ToolError(str(error)) from None

    return run


def _offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 9):
        raise InputError(f"expected the `next` of an answer as cursor, got {cursor!r:.100}")
    return int(cursor)


def _shown(index: AnyIndex, hit: Hit, tokens: int) -> tuple[dict[str, Any], int]:
    """A hit in so many tokens, and how many it took."""
    assert hit.explanation is not None
    lines = readable(hit.explanation, hit.text).lines
    text = excerpt(hit.text, [line.document_spans for line in lines], CHARACTERS * tokens).text
    cut = _cut(index, text, tokens)
    row = {"id": hit.id, "score": round(hit.score, 4), "text": cut, "phrases": _phrases(hit),
           "metadata": hit.metadata, "length": len(hit.text)}  # fmt: skip
    return row, _count(index, cut)


def _phrases(hit: Hit) -> list[dict[str, Any]]:
    """What each unit of the query matched, most first, with its characters in the document."""
    assert hit.explanation is not None
    return [
        {
            "query": line.text,
            "matched": line.found,
            "spans": [list(span) for span in line.document_spans],
            "similarity": round(line.similarity, 3),
            "share": line.thousandths / 1000,
        }
        for line in readable(hit.explanation, hit.text).lines
    ]


def _count(index: AnyIndex, text: str) -> int:
    return len(index.model.checkpoint.backbone.tokenizer.tokens([text]).ids)


def _cut(index: AnyIndex, text: str, tokens: int) -> str:
    """The text up to so many tokens."""
    spans = index.model.checkpoint.backbone.tokenizer.tokens([text]).spans
    return text if len(spans) <= tokens else text[: int(spans[tokens - 1][1])]
