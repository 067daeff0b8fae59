"""The configuration: every file we ship can be read, and no misspelt setting passes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hplus.errors import InputError
from hplus.train.config import read_config

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
PAPER = [EXPERIMENTS / "paper" / f"stage{stage}.toml" for stage in (1, 2)]


OURS = [EXPERIMENTS / f"{name}.toml" for name in ("small-v2", "small-heads", "mini-v2")]


@pytest.mark.parametrize("path", [*PAPER, *OURS], ids=lambda path: path.name)
def test_shipped_configurations_can_be_read(path: Path) -> None:
    loss = read_config(path).loss
    heads = (loss.global_, loss.units, loss.lexical, loss.states)
    assert any(head.weight for head in heads)


def test_the_papers_configuration_has_nothing_of_ours() -> None:
    first, second = map(read_config, PAPER)
    for config in (first, second):
        assert config.loss.global_.widths == (64, 128, 256, 512, 1024)
        assert config.student.mode == "full"
        loss = config.loss
        assert loss.units.weight == loss.boundaries.weight == loss.states.weight == 0
        lexical = (loss.lexical.head, loss.lexical.log, loss.lexical.repeats)
        assert lexical == (False, False, "sum")
        assert not any(h.min_max for h in (loss.global_, loss.token, loss.lexical))
    assert all(
        head.nce == head.distillation == 1
        for head in (second.loss.global_, second.loss.token, second.loss.lexical)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("student.mod=top", "unknown setting 'mod'; known: cached, checkpointing"),
        ("student.mode=half", "expected one of full, lora, top, heads, got 'half'"),
        ("schedule.steps=0", "schedule.steps must be 1 or more"),
        ("schedule.steps=many", "steps: expected int, got 'many'"),
        ("schedule.validate_every=0", "schedule.validate_every must be 1 or more"),
        ("schedule.save_every=0", "schedule.save_every must be 1 or more"),
        ("schedule.patience=-1", "schedule.patience must be 0 (never) or more"),
        ("schedule.seed=-1", "schedule.seed must be 0 or more"),
        ("schedule.clip=0", "schedule.clip must be above 0"),
        ("schedule.head_learning_rate=0", "schedule.head_learning_rate must be above 0"),
        ("data.sources.notes=-1", "data.sources must be 0 or more"),
        ("loss.units.budgets=[]", "loss.units.budgets needs numbers of 0 or more"),
        ("loss.units.draws=0", "loss.units.draws must be 1 or more"),
        ("loss.units.widths=[-8]", "loss.units.widths needs numbers of 0 or more"),
        ("dev.budgets=[]", "dev.budgets needs numbers of 0 or more"),
        ("dev.widths=[-1]", "dev.widths needs numbers of 0 or more"),
        ("loss.token.tau=-1", "tau must be above 0, or 0 to have it measured"),
        ("student.cached=true", "cached needs layers above 0"),
        ("data.groups=x", "groups: expected a list, got 'x'"),
        ("loss.lexical.head=true", "needs lexical under student.heads"),
        ("loss", "expected section.name=value, got 'loss'"),
    ],
)
def test_a_wrong_setting_is_one_sentence(change: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("[student]\nheads = []\n")
    with pytest.raises(InputError, match=re.escape(message)):
        read_config(path, [change])


def test_a_file_that_is_no_toml(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is missing; expected a TOML file"):
        read_config(tmp_path / "none.toml")
    (tmp_path / "a.toml").write_text("[student")
    with pytest.raises(InputError, match="is not TOML"):
        read_config(tmp_path / "a.toml")
