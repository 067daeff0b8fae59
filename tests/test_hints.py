"""Mistakes that many make: each is answered with what happened and what to do."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from hplus import FilterError, HPlus, Index, InputError, ModelMismatchError, Terms
from hplus.cli import demo, main
from hplus.errors import CheckpointError
from hplus.filters.ast import Field
from hplus.filters.syntax import parse, spelled
from hplus_lab.config import read_config
from tiny import write_tiny


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("hints") / "encoder")


@pytest.fixture
def index(tmp_path: Path, encoder: Path) -> Index:
    made = Index.create(tmp_path / "i.hplus", HPlus(encoder, units="words"))
    made.add(
        [
            {"id": "a", "text": "kidney failure", "year": 2021, "Publication Year": 2001},
            {"id": "b", "text": "heart failure", "year": 2015, "authors": [{"name": "Li"}]},
        ]
    )
    return made


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("yaer = 3", "no document has a field yaer; did you mean year?"),
        ("not yaer = 3", "no document has a field yaer; did you mean year?"),
        ("YEAR = 3", "no document has a field YEAR; did you mean year?"),
        ("year = 2021 or yaer exists", "no document has a field yaer; did you mean year?"),
        ("PublicationYear > 1", "field PublicationYear; did you mean `Publication Year`?"),
        ("zzz = 1", "field zzz; known fields: `Publication Year`, authors, year"),
        ("authors.nmae = 'Li'", "no document has a field authors.nmae"),
        ("year = 3", ""),
        ("authors.name = 'Li'", ""),
        ("id = 'x'", ""),
        (None, ""),
    ],
)
def test_a_field_that_no_document_has(index: Index, where: str | None, said: str) -> None:
    found = index.search("failure", where=where)
    assert said in found.hint
    assert bool(said) == bool(found.hint)
    assert found.as_json().get("hint", "") == found.hint
    assert found.hint in str(found)
    assert index.more_like("a", where=where).hint == found.hint


def test_the_hint_follows_the_documents(index: Index) -> None:
    assert index.search("failure", where="stars = 3").hint
    index.update([{"id": "c", "text": "cell", "stars": 3}])
    assert not index.search("failure", where="stars = 3").hint
    index.delete("c")
    assert index.search("failure", where="stars = 3").hint


def test_an_index_without_documents_or_metadata(tmp_path: Path, encoder: Path) -> None:
    with Index.create(tmp_path / "e.hplus", HPlus(encoder, units="words")) as empty:
        assert empty.search("x", where="year = 3").hint == ""
        empty.add(["kidney"])
        assert "have no metadata" in empty.search("x", where="year = 3").hint


def test_quoted_names_of_fields(index: Index) -> None:
    for quote in "`\"'":
        (hit,) = index.search("failure", where=f"{quote}Publication Year{quote} > 2000")
        assert hit.id == "a"
    (hit,) = index.search("failure", where='"authors"."name" = "Li"')
    assert hit.id == "b"
    assert parse('"id" = "x"') == parse('`id` = "x"') != parse('id = "x"')
    with pytest.raises(FilterError, match="name of a field between the quotes"):
        parse('"" = 3')


@pytest.mark.parametrize("name", ["year", "Publication Year", "in", "id", "a`b\\c", "x\ny", "é-1"])
def test_a_field_is_spelled_as_it_is_read(name: str) -> None:
    for field in (Field((name,)), Field(("first", name))):
        assert parse(f"{spelled(field)} = 1") == parse_of(field)


def parse_of(field: Field) -> object:
    from hplus.filters.ast import Compare

    return Compare(field, "=", 1)


@pytest.mark.parametrize(
    ("made", "given", "said"),
    [
        (["heart failure"], None, "made with 1 terms, and none are given now; give the same list"),
        (None, ["heart failure"], "made with no terms, and 1 terms are given now; leave the terms"),
        (["a", "b"], ["heart"], "made with 2 terms, and others: 1 terms are given now; give the"),
    ],
)
def test_other_terms_are_called_terms(
    tmp_path: Path, encoder: Path, made: list[str] | None, given: list[str] | None, said: str
) -> None:
    def model(terms: list[str] | None) -> HPlus:
        return HPlus(encoder, units="words", terms=terms and Terms(terms))

    Index.create(tmp_path / "t.hplus", model(made)).close()
    with pytest.raises(ModelMismatchError, match=said):
        Index.open(tmp_path / "t.hplus", model=model(given))
    with pytest.raises(ModelMismatchError, match="made with model"):  # not the terms alone
        Index.open(tmp_path / "t.hplus", model=HPlus(encoder, units="runs"))


def test_an_index_that_is_a_file(tmp_path: Path, encoder: Path) -> None:
    file = tmp_path / "notes.jsonl"
    file.write_text('{"text": "x"}\n')
    with pytest.raises(InputError, match=r"is a file, expected the folder.*hplus index .*\.hplus"):
        Index.open(file)
    with pytest.raises(InputError, match=r"is a file.*choose another name, such as notes\.hplus"):
        Index.create(file, HPlus(encoder, units="words"))
    assert file.read_text() == '{"text": "x"}\n'


def test_a_null_text(index: Index, tmp_path: Path) -> None:
    file = tmp_path / "n.jsonl"
    file.write_text('{"id": "x", "text": "cell"}\n{"id": "y", "text": null}\n')
    with pytest.raises(InputError, match=r"n\.jsonl:2: the text is null.*--on-error skip"):
        index.update(file)


def test_a_setting_that_can_be_pasted(tmp_path: Path, encoder: Path) -> None:
    HPlus(encoder, units="words").save(tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"units": "crf"}))
    with pytest.raises(CheckpointError) as caught:
        HPlus(tmp_path / "m")
    line = re.search(r'put ("units": ".*?") into', str(caught.value))
    assert line
    path.write_text(json.dumps(config | json.loads(f"{{{line[1]}}}")))
    assert HPlus(tmp_path / "m").recipe.units == "runs"


def test_a_config_that_grows_by_its_hints(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("")
    for _ in ("name", "protocols", "systems", "sets"):
        with pytest.raises(InputError, match="add a line such as: ") as caught:
            read_config(path)
        line = str(caught.value).split("such as: ")[1]
        path.write_text(f"{path.read_text()}{line}\n")
    assert read_config(path).name == "mine"


def test_the_demo_shows_every_view_and_commands_that_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["hplus", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        assert not stop.value.code, err
        return out

    shown = run(*demo.EXAMPLE.removeprefix("Example: hplus ").split())
    views = ("global", "lexical", "phrase, all units", "merge to 32", "fused", "nDCG@10")
    for part in (*views, "$ hplus index", "--where", "--explain"):
        assert part in shown
    commands = re.findall(r"^\$ hplus (.*)$", shown, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["segment", "index", *["search"] * 4]
    for command in commands:
        printed = run(*shlex.split(command))
        if command.startswith("search") and "--explain" not in command:
            assert printed.splitlines()[0] in shown
