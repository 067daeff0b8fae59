"""The recipe: every choice that turns states into views, as a checkpoint's config states it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hplus.backbones.encode import Long
from hplus.errors import InputError
from hplus.units.select import Budget
from hplus.views.fusion import check_alphas


@dataclass(frozen=True)
class Recipe:
    """Settings of a model; what is left out of a config gets the value given here.

    units: "crf" (trained), or a rule of `hplus.units.controls`. importance: "head" (trained),
    "idf", or "uniform". layer: the one whose states the heads read, None the last. long:
    "stitch" or "cut". Widths None mean all of the backbone's.
    """

    name: str = "unnamed"
    units: str = "runs"
    importance: str = "uniform"
    layer: int | None = None
    window: int = 256
    long: Long = "stitch"
    global_width: int | None = None
    phrase_width: int | None = None
    query_budget: Budget = field(default_factory=Budget)
    document_budget: Budget = field(default_factory=Budget)
    fusion: Mapping[str, float] = field(
        default_factory=lambda: {"global": 0.5, "phrase": 1.0, "lexical": 0.2}
    )
    trained: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("window", "layer", "global_width", "phrase_width"):
            value = getattr(self, name)
            if not (value is None and name != "window") and (type(value) is not int or value < 1):
                raise InputError(f"{name} {value!r} asked; a number of 1 or more is expected")
        if not isinstance(self.units, str):
            raise InputError(f"units {self.units!r} asked; the name of a rule is expected")
        for name in ("query_budget", "document_budget"):
            if not isinstance(getattr(self, name), Budget):
                raise InputError(f"{name} {getattr(self, name)!r} asked; give a Budget(…)")
        if self.long not in ("stitch", "cut"):
            raise InputError(f"long={self.long!r} asked; long texts are 'stitch'ed or 'cut'")
        if self.importance not in ("head", "idf", "uniform"):
            raise InputError(f"importance {self.importance!r} asked; known: head, idf, uniform")
        check_alphas(self.fusion)

    def to_config(self) -> dict[str, Any]:
        """As JSON in `config.json`."""
        return {
            "name": self.name,
            "units": self.units,
            "importance": self.importance,
            "layer": self.layer,
            "window": self.window,
            "long": self.long,
            "widths": {"global": self.global_width, "phrase": self.phrase_width},
            "budgets": {
                "query": _budget_config(self.query_budget),
                "document": _budget_config(self.document_budget),
            },
            "fusion": dict(self.fusion),
            "trained": list(self.trained),
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Recipe:
        """From `config.json`, already parsed; a wrong type raises TypeError or ValueError."""
        widths = config.get("widths", {})
        budgets = config.get("budgets", {})
        plain = {
            name: config[name]
            for name in ("name", "units", "importance", "layer", "window", "long", "fusion")
            if name in config
        }
        return cls(
            **plain,
            global_width=widths.get("global"),
            phrase_width=widths.get("phrase"),
            query_budget=Budget(**budgets.get("query", {})),
            document_budget=Budget(**budgets.get("document", {})),
            trained=tuple(config.get("trained", ())),
        )


def _budget_config(budget: Budget) -> dict[str, Any]:
    return {"count": budget.count, "share": budget.share, "policy": budget.policy}
