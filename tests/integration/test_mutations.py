"""Every probe of the faults that are easiest to bring back fails when its fault is there.

A probe that cannot fail proves nothing. Each fault of `faults_put_back` is switched on in the
library, and the probe that is for it is run: first without the fault, then with it.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from faults_put_back import FAULTS, Fault, Patch
from two_ranks import RankFailure, RankPool

from workings.errors import WorkingsError
from workings.training.distributed import Ranks

TESTS = Path(__file__).parents[1]
NOTICED = (AssertionError, WorkingsError, pytest.fail.Exception)
HANG_SECONDS = 8.0


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankPool]:
    pool = RankPool(tmp_path_factory.mktemp("ranks"))
    yield pool
    pool.close()


@cache
def module_of(path: str) -> ModuleType:
    """A test file as a module; those of this folder by their name, which rank processes know."""
    file = TESTS / path
    if file.parent == Path(__file__).parent:
        return importlib.import_module(file.stem)
    spec = importlib.util.spec_from_file_location(f"probes_in_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def probe_of(fault: Fault) -> Callable[..., Any]:
    path, _, name = fault.test.partition("::")
    probe: Callable[..., Any] = getattr(module_of(path), name)
    return probe


def on_rank_with_fault(
    ranks: Ranks, number: int, function: Callable[..., Any], arguments: Sequence[Any]
) -> Any:
    with pytest.MonkeyPatch.context() as monkeypatch:
        FAULTS[number].put_back(Patch(monkeypatch))
        return function(ranks, *arguments)


class FaultyPool:
    """A pool whose ranks have a fault."""

    def __init__(self, pool: RankPool, number: int) -> None:
        self._pool = pool
        self._number = number

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        try:
            return self._pool.run(
                on_rank_with_fault, self._number, function, arguments, limit_seconds=HANG_SECONDS
            )
        except RankFailure as failure:
            if {"error", "gone"} & set(failure.endings):
                raise RuntimeError("the faulty ranks broke instead of being wrong") from failure
            raise


@pytest.mark.parametrize(
    "number",
    range(len(FAULTS)),
    ids=[f"{fault.probe}-{fault.put_back.__name__}" for fault in FAULTS],
)
def test_the_probe_notices_its_fault(
    number: int, pool: RankPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = FAULTS[number]
    probe = probe_of(fault)
    wanted = inspect.signature(probe).parameters

    def run(folder: str, pool: Any) -> None:
        (tmp_path / folder).mkdir()
        given: dict[str, Any] = {"tmp_path": tmp_path / folder, "pool": pool}
        probe(**fault.arguments, **{name: given[name] for name in wanted if name in given})

    run("right", pool)
    if fault.on_ranks:
        with pytest.raises(NOTICED):
            run("wrong", FaultyPool(pool, number))
        return
    fault.put_back(Patch(monkeypatch))
    with pytest.raises(NOTICED):
        run("wrong", pool)


def test_every_probe_of_the_list_has_its_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The faults whose probes have to be shown to fail; see docs/reference/faults.md."""
    monkeypatch.syspath_prepend(str(TESTS.parent / "docs"))
    from generators.fault_list import LATER, PROBES

    listed = {
        key
        for key in PROBES
        if re.fullmatch(r"(A1|A2|A5|A7|A8|A12)[a-e]|D12|D14", key) and key not in LATER
    }
    assert {fault.probe for fault in FAULTS} == listed
