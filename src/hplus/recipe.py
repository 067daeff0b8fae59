"""The recipe: every choice that turns states into views, as a checkpoint's config states it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from hplus.arguments import chosen
from hplus.backbones import Attention
from hplus.backbones.encode import Long, MeanOver, Pooling, Reading
from hplus.backbones.tokenizer import LONE_SURROGATE
from hplus.errors import InputError
from hplus.units.select import Budget
from hplus.views.fusion import check_alphas

Side = Literal["query", "document"]
_CHOICES = {
    "importance": ("head", "idf", "uniform"),
    "lexical": ("importance", "head"),
    "long": get_args(Long),
    "pooling": get_args(Pooling),
    "mean_over": get_args(MeanOver),
    "attention": get_args(Attention),
}
# What a config names as the recipe does.
_PLAIN = (
    "name",
    "units",
    "importance",
    "lexical",
    "layer",
    "window",
    "long",
    "pooling",
    "mean_over",
    "attention",
    "patterns",
    "fusion",
)


@dataclass(frozen=True)
class Recipe:
    """Settings of a model; what a config leaves out has the value given here.

    units: "crf" (trained), or a rule of `hplus.units.rules`. importance: "head" (trained),
    "idf", or "uniform". lexical: the weights of the lexical view, those of "importance" or of a
    "head" of its own (`hplus.heads.lexical`). layer: the one whose states the heads read, None
    the last. long: "stitch" or "cut". pooling ("mean", "cls", "last"), mean_over ("all" or
    "text") and the two prompts: as the encoder was trained, see `Reading`. attention:
    "bidirectional", or "causal" for a Qwen3 that was trained so. patterns: the CRF's units are
    settled by the patterns of spelling (`hplus.units.patterns`). Widths None mean all of the
    backbone's.
    """

    name: str = "unnamed"
    units: str = "runs"
    importance: str = "uniform"
    lexical: str = "importance"
    layer: int | None = None
    window: int = 256
    long: Long = "stitch"
    pooling: Pooling = "mean"
    mean_over: MeanOver = "all"
    attention: Attention = "bidirectional"
    patterns: bool = False
    query_prompt: str = ""
    document_prompt: str = ""
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
                raise InputError(f"expected {name} of 1 or more, got {value!r}")
        if not isinstance(self.units, str):
            raise InputError(f"expected the name of a rule for units, got {self.units!r}")
        if not isinstance(self.patterns, bool):
            raise InputError(f"expected patterns to be true or false, got {self.patterns!r}")
        for name in ("query_budget", "document_budget"):
            if not isinstance(getattr(self, name), Budget):
                raise InputError(f"expected {name} as a Budget(…), got {getattr(self, name)!r}")
        for name, known in _CHOICES.items():
            chosen(name, getattr(self, name), known)
        for name in ("query_prompt", "document_prompt"):
            prompt = getattr(self, name)
            if not isinstance(prompt, str) or LONE_SURROGATE.search(prompt):
                raise InputError(f"expected {name} to be text, got {prompt!r}")
        check_alphas(self.fusion)

    def reading(self, side: Side) -> Reading:
        """How texts of one side are read.

        >>> Recipe(query_prompt="query: ").reading("query").prompt
        'query: '
        """
        chosen("side", side, get_args(Side))
        return Reading(
            window=self.window,
            long=self.long,
            layer=self.layer,
            prompt=self.query_prompt if side == "query" else self.document_prompt,
            pooling=self.pooling,
            mean_over=self.mean_over,
        )

    def to_config(self) -> dict[str, Any]:
        """As JSON in `config.json`."""
        return {
            "name": self.name,
            "units": self.units,
            "importance": self.importance,
            "lexical": self.lexical,
            "layer": self.layer,
            "window": self.window,
            "long": self.long,
            "pooling": self.pooling,
            "mean_over": self.mean_over,
            "attention": self.attention,
            "patterns": self.patterns,
            "prompts": {"query": self.query_prompt, "document": self.document_prompt},
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
        prompts = config.get("prompts", {})
        return cls(
            **{name: config[name] for name in _PLAIN if name in config},
            query_prompt=prompts.get("query", ""),
            document_prompt=prompts.get("document", ""),
            global_width=widths.get("global"),
            phrase_width=widths.get("phrase"),
            query_budget=Budget(**budgets.get("query", {})),
            document_budget=Budget(**budgets.get("document", {})),
            trained=tuple(config.get("trained", ())),
        )


def _budget_config(budget: Budget) -> dict[str, Any]:
    return {"count": budget.count, "share": budget.share, "policy": budget.policy}
