"""The retriever under LlamaIndex's own interface."""

from __future__ import annotations

from pathlib import Path

import pytest

from hplus import HPlus, Index

pytest.importorskip("llama_index.core", reason="this needs llama-index-core")


def test_it_finds_what_the_index_finds(folder: Path, served_model: HPlus) -> None:
    from hplus.integrations.llama_index import HPlusRetriever

    with Index.open(folder, model=served_model) as index:
        found = HPlusRetriever(index, k=3, where="year > 2000").retrieve("insulin therapy")
        expected = index.search("insulin therapy", k=3, where="year > 2000")
        assert [one.node.node_id for one in found] == [hit.id for hit in expected]
        assert [one.score for one in found] == [hit.score for hit in expected]
        assert [one.node.text for one in found] == [hit.text for hit in expected]
        assert found[0].node.metadata == expected[0].metadata
