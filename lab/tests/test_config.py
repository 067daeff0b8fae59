"""Configs: every mistake is reported with the file, before anything is encoded."""

from __future__ import annotations

from pathlib import Path

import pytest

from hplus import InputError
from hplus_lab.config import System, read_config

TABLE = (
    'name = "demo"\nprotocols = ["full-corpus", "pool-sensitivity"]\n'
    'sets = ["demo-en:test", "demo-zh:test"]\n'
    '[[systems]]\nname = "tiny"\nmodel = "folder"\n'
    '[[systems]]\nname = "words"\nmodel = "folder"\nunits = "words"\n'
)


def test_a_config(tmp_path: Path) -> None:
    path = tmp_path / "table.toml"
    path.write_text(TABLE)
    found = read_config(path)
    assert found.protocols == ("full-corpus", "pool-sensitivity")
    assert found.sets == ("demo-en:test", "demo-zh:test")
    words = System("words", "folder", {"units": "words"})
    assert found.systems == (System("tiny", "folder"), words)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (('name = "demo"\n', ""), "'name' is missing"),
        (("full-corpus", "full"), "unknown protocol 'full'; known"),
        (("demo-en:test", "demo-en"), "expected a set as FOLDER:SPLIT, got 'demo-en'"),
        (('name = "tiny"\n', ""), "expected a system with a name"),
        (('name = "demo"', 'name = "demo"\ncolour = 1'), "unknown key 'colour'"),
        (('name = "demo"', "name = demo"), "is not TOML"),
        (
            ('name = "demo"', 'name = "demo"\nlimit = "a"'),
            "limit: expected a number of 0 or more, got 'a'",
        ),
        (('name = "demo"', 'name = "demo"\nlanguages = "en"'), "a table of languages"),
        (('name = "demo"', 'name = "demo"\nseen = ["demo-em"]'), "seen: .*demo-em.* are not tasks"),
        (
            ('name = "demo"', 'name = "demo"\nseen = "demo-en"'),
            "seen: expected a list of strings",
        ),
        (('name = "demo"', 'name = "demo"\ndev = [1]'), r"expected a list of strings, got \[1\]"),
        (('"demo-zh:test"', '"demo-en:test"'), "named more than once"),
        (('"demo-zh:test"', '"mine:test"'), r"the language of \['mine'\] is not known"),
        (
            ('name = "tiny"\n', 'name = "tiny"\nmodel = 3\n[[systems]]\nname = "b"\n'),
            "expected a string, got 3",
        ),
        (('name = "tiny"\n', 'name = "tiny"\n[[systems]]\nname = "tiny"\n'), "two systems"),
        (('name = "tiny"\n', 'name = "tiny"\nlong = "cut"\n'), "leave `long` out"),
    ],
)
def test_mistakes_in_a_config(tmp_path: Path, change: tuple[str, str], complaint: str) -> None:
    path = tmp_path / "table.toml"
    assert change[0] in TABLE
    path.write_text(TABLE.replace(*change, 1))
    with pytest.raises(InputError, match=rf"table\.toml.*{complaint}"):
        read_config(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_config(tmp_path / "gone.toml")
