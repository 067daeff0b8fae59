"""The recipe: what a config says, and back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hplus import Budget, InputError
from hplus.backbones.encode import Reading
from hplus.recipe import Recipe

budgets = st.builds(
    Budget,
    st.none() | st.integers(1, 99),
    st.none() | st.floats(0.01, 1),
    st.sampled_from(["drop", "merge", "ward"]),
)
recipes = st.builds(
    Recipe,
    units=st.sampled_from(["runs", "words", "crf"]),
    importance=st.sampled_from(["idf", "head", "uniform"]),
    window=st.integers(3, 512),
    long=st.sampled_from(["stitch", "cut"]),
    pooling=st.sampled_from(["mean", "cls", "last"]),
    mean_over=st.sampled_from(["all", "text"]),
    attention=st.sampled_from(["bidirectional", "causal"]),
    patterns=st.booleans(),
    query_prompt=st.sampled_from(["", "query: "]),
    document_prompt=st.text(max_size=5),
    phrase_width=st.none() | st.integers(1, 384),
    query_budget=budgets,
    document_budget=budgets,
    fusion=st.dictionaries(
        st.sampled_from(["global", "phrase", "lexical"]), st.floats(0, 9), min_size=1
    ),
    trained=st.lists(st.sampled_from(["crf", "importance"]), unique=True).map(tuple),
)


@given(recipes)
def test_a_config_gives_the_recipe_back(recipe: Recipe) -> None:
    assert Recipe.from_config(recipe.to_config()) == recipe


def test_what_a_config_leaves_out_has_a_value() -> None:
    assert Recipe.from_config({}) == Recipe()


@pytest.mark.parametrize(
    "setting",
    [
        {"window": 0},
        {"window": None},
        {"window": True},
        {"phrase_width": "wide"},
        {"long": "wrap"},
        {"importance": "loud"},
        {"fusion": {}},
        {"units": None},
        {"pooling": "max"},
        {"mean_over": "half"},
        {"attention": ["causal"]},
        {"patterns": "no"},
        {"query_prompt": None},
        {"document_prompt": "\ud800"},
    ],
)
def test_a_setting_that_cannot_be_is_refused(setting: dict[str, object]) -> None:
    (name,) = setting
    with pytest.raises(
        InputError, match="fusion" if name == "fusion" else rf"expected.*{name}|{name}.*expected"
    ):
        Recipe(**setting)  # type: ignore[arg-type]


def test_a_reading_is_what_the_recipe_says_of_a_side() -> None:
    recipe = Recipe(window=64, long="cut", layer=2, pooling="cls", query_prompt="q: ")
    query, document = recipe.reading("query"), recipe.reading("document")
    assert query == Reading(64, "cut", 2, "q: ", "cls", "all")
    assert document == replace(query, prompt="")
    with pytest.raises(InputError, match="expected side to be one of query, document, got 'both'"):
        recipe.reading("both")  # type: ignore[arg-type]
