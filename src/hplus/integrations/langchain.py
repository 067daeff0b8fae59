"""A LangChain retriever over an index, embedded or served.

retriever = HPlusRetriever(index=Index.open("med.hplus"), k=5, options={"where": "year > 2020"})
retriever.invoke("type 2 diabetes")
"""

from __future__ import annotations

from typing import Any

from hplus.errors import MissingExtraError
from hplus.search.results import Results

try:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import Field
except ModuleNotFoundError:
    raise MissingExtraError("this needs langchain-core: pip install langchain-core") from None


class HPlusRetriever(BaseRetriever):
    """Documents by phrases; their metadata also has the score, and, with `explain` among the
    options, `phrases`: what each unit of the query matched.

    index: an `Index` or a `Client`; options: those of its `search`.
    """

    index: Any
    k: int = 10
    options: dict[str, Any] = Field(default_factory=dict)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        del run_manager
        return documents_of(self.index.search(query, k=self.k, **self.options))


def documents_of(found: Results) -> list[Document]:
    """Results as documents of LangChain."""
    documents = []
    for hit in found:
        more: dict[str, Any] = {"score": hit.score}
        if hit.explanation is not None:
            more["phrases"] = [
                {
                    "query": match.text,
                    "matched": match.document_text,
                    "similarity": match.similarity,
                }
                for match in hit.explanation.phrase
            ]
        documents.append(
            Document(page_content=hit.text, metadata={**hit.metadata, **more}, id=hit.id)
        )
    return documents
