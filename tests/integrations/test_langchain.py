"""The retriever under LangChain's own interface."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("langchain_core", reason="this needs langchain-core")

from hplus import Client, HPlus, Index
from hplus.integrations.langchain import HPlusRetriever
from service import on_loopback


def test_it_finds_what_the_index_finds(folder: Path, served_model: HPlus) -> None:
    with Index.open(folder, model=served_model) as index:
        options = {"where": "year > 2000", "explain": True}
        retriever = HPlusRetriever(index=index, k=3, options=options)
        found = retriever.invoke("insulin therapy")
        expected = index.search("insulin therapy", k=3, **options)
        assert [one.id for one in found] == [hit.id for hit in expected]
        for one, hit in zip(found, expected, strict=True):
            assert one.page_content == hit.text
            assert one.metadata["year"] == hit.metadata["year"]
            assert one.metadata["score"] == hit.score
            assert one.metadata["phrases"][0]["query"]
        awaited = asyncio.run(retriever.ainvoke("insulin therapy"))
        assert awaited == found
        several = retriever.batch(["insulin", "kidney"])
        assert [len(one) for one in several] == [3, 3]


def test_a_served_index(folder: Path, served_model: HPlus) -> None:
    with on_loopback(folder, model=served_model) as (address, _), Client(address) as client:
        found = HPlusRetriever(index=client, k=2).invoke("insulin therapy")
        assert len(found) == 2
