"""`hplus mcp`: an index as tools for language models."""

from __future__ import annotations

from hplus.cli.common import Place, open_index
from hplus.cli.search import OtherModel

EXAMPLE = "Example: hplus mcp notes.hplus"


def mcp(folder: Place, model: OtherModel = None) -> None:
    """Offer an index to language models: the tools search, read and explain, over stdio (MCP)."""
    from hplus.engines import name_of
    from hplus.integrations.mcp import serve

    with open_index(folder, model) as index:
        _ = index.model  # loaded before the first question
        serve(index, name_of(folder))
