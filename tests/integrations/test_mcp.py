"""The tools, called by the real client of the protocol: in this process, and over stdio."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from hplus import HPlus, Index

pytest.importorskip("mcp", reason="the tools need hplus[mcp]")


def ask(index: Index, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """What the tools answer; an error is its text."""

    from mcp.client import Client

    from hplus.integrations.mcp import server_of

    async def run() -> list[Any]:
        async with Client(server_of(index, "med")) as client:
            return [answered(await client.call_tool(name, given)) for name, given in calls]

    return asyncio.run(run())


def answered(result: Any) -> Any:
    if result.is_error:
        return result.content[0].text
    return json.loads(result.content[0].text)


@pytest.fixture
def index(folder: Path, served_model: HPlus) -> Any:
    with Index.open(folder, model=served_model) as opened:
        yield opened


def test_searching_page_by_page(index: Index) -> None:
    everything = [hit.id for hit in index.search("heart failure", k=10)]
    seen: list[str] = []
    cursor: dict[str, Any] = {}
    while True:
        (answer,) = ask(index, ("search", {"query": "heart failure", "k": 2, **cursor}))
        seen += [hit["id"] for hit in answer["hits"]]
        if "next" not in answer:
            break
        cursor = {"cursor": answer["next"]}
    assert seen == everything


def test_phrases_are_where_they_are_said_to_be(index: Index) -> None:
    (answer,) = ask(index, ("search", {"query": "chronic heart failure", "where": "year < 2021"}))
    assert answer["hits"]
    for hit in answer["hits"]:
        assert hit["phrases"]
        text = index[hit["id"]].text
        for phrase in hit["phrases"]:
            cited = " … ".join(dict.fromkeys(text[a:b] for a, b in phrase["spans"]))
            assert cited == phrase["matched"]


def test_answers_keep_to_their_tokens(index: Index, served_model: HPlus) -> None:
    long = "the cell " * 2000 + "heart failure " + "of a gene " * 2000
    index.add([{"id": "long", "text": long}])
    tokens = served_model.checkpoint.backbone.tokenizer.tokens
    for most in (20, 200):
        given = {"query": "heart failure", "k": 5, "max_tokens": most}
        (answer,) = ask(index, ("search", given))
        assert answer["hits"]
        assert sum(len(tokens([hit["text"]]).ids) for hit in answer["hits"]) <= most
        parts, start = [], 0
        for _ in range(3):
            read = {"id": "long", "start": start, "max_tokens": most}
            (part,) = ask(index, ("read", read))
            assert len(tokens([part["text"]]).ids) <= most
            parts.append(part["text"])
            start = part["next"]
        assert long.startswith("".join(parts))
    (end,) = ask(index, ("read", {"id": "a", "start": 8, "end": 15}))
    assert end["text"] == "therapy"
    assert "next" not in end


def test_explaining(index: Index) -> None:
    (answer,) = ask(index, ("explain", {"query": "heart failure", "id": "b"}))
    assert answer["score"] == pytest.approx(index.search("heart failure", k=1)[0].score, abs=1e-4)
    assert answer["sum"].startswith(f"{answer['score']:.3f} = global ")


def test_mistakes_are_told_to_the_model(index: Index) -> None:
    answers = ask(
        index,
        ("search", {"query": "x", "where": "year =="}),
        ("search", {"query": "x", "cursor": "../etc"}),
        ("read", {"id": "none"}),
        ("explain", {"query": "x", "id": "none"}),
        ("search", {"query": ""}),
    )
    for said, part in zip(
        answers, ("not an operator", "cursor", "no document", "no document", "query"), strict=True
    ):
        assert isinstance(said, str), said
        assert part in said


def test_the_command_over_stdio(folder: Path, model_folder: Path) -> None:
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    async def run() -> None:
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "hplus", "mcp", str(folder), "--model", str(model_folder)],
            env=dict(os.environ),
        )
        async with Client(stdio_client(server)) as client:
            tools = (await client.list_tools()).tools
            assert {tool.name for tool in tools} == {"search", "read", "explain"}
            found = answered(await client.call_tool("search", {"query": "insulin dose", "k": 1}))
            assert len(found["hits"]) == 1

    asyncio.run(run())
