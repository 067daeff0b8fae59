"""`hplus mcp`: an index as tools for language models."""

from __future__ import annotations

from hplus.cli.index import Folder
from hplus.cli.search import OtherModel

EXAMPLE = "Example: hplus mcp notes.hplus"


def mcp(folder: Folder, model: OtherModel = None) -> None:
    """Offer an index to language models: the tools search, read and explain, over stdio (MCP)."""
    from hplus.index import Index
    from hplus.integrations.mcp import serve

    with Index.open(folder, model=model) as index:
        _ = index.model  # loaded before the first question
        serve(index, folder.resolve().stem)
