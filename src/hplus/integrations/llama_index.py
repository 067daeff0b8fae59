"""A LlamaIndex retriever over an index, embedded or served.

retriever = HPlusRetriever(Index.open("med.hplus"), k=5, where="year > 2020")
retriever.retrieve("type 2 diabetes")
"""

from __future__ import annotations

from typing import Any

from hplus.errors import MissingExtraError
from hplus.index import Index

try:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
except ModuleNotFoundError:
    raise MissingExtraError("this needs llama-index-core: pip install llama-index-core") from None


class HPlusRetriever(BaseRetriever):  # type: ignore[misc,unused-ignore]
    """Nodes by phrases. index: an `Index` or a `Client`; options: those of its `search`."""

    def __init__(self, index: Index | Any, *, k: int = 10, **options: Any) -> None:
        super().__init__()
        self._index, self._k, self._options = index, k, options

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = self._index.search(query_bundle.query_str, k=self._k, **self._options)
        return [
            NodeWithScore(
                node=TextNode(id_=hit.id, text=hit.text, metadata=hit.metadata), score=hit.score
            )
            for hit in found
        ]
