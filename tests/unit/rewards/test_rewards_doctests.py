"""The examples in the docstrings of the room hold."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import workings.rewards as room

MODULES = [module.name for module in pkgutil.iter_modules(room.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"{room.__name__}.{name}"))
    assert result.failed == 0
