"""All recipes by name."""

from __future__ import annotations

from collections.abc import Mapping

from workings.data.preparation.dapo_math import DAPO_MATH
from workings.data.preparation.luffy_recipes import LUFFY_RECIPES
from workings.data.preparation.math_traces import MATH_SFT
from workings.data.preparation.openmathreasoning import MINI, OMR12K
from workings.data.preparation.recipe import Recipe
from workings.errors import ConfigError, unknown_name

BENCHMARKS = "benchmarks"
"""Prepared by `benchmarks.py`: many sets, and no training data."""

RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe for recipe in (*OMR12K, MINI, DAPO_MATH, MATH_SFT, *LUFFY_RECIPES)
}


def recipe_named(name: str) -> Recipe:
    """The recipe; ConfigError names the nearest where there is none."""
    if name not in RECIPES:
        raise ConfigError(unknown_name("recipe", name, [*RECIPES, BENCHMARKS]))
    return RECIPES[name]
