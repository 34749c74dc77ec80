"""A few seconds of the fuzzer on every run; `fuzz_grading.py --minutes 30` does more."""

from __future__ import annotations

import fuzz_grading
import fuzz_inputs
import pytest


def test_a_few_seconds_of_fuzzing_find_no_fault() -> None:
    num_inputs, faults = fuzz_grading.fuzz(20_261_128, seconds=5)
    assert num_inputs > 100
    assert not faults, "\n".join(map(str, faults))


def test_an_input_is_a_function_of_its_seed_and_number() -> None:
    def inputs() -> list[tuple[str, ...]]:
        return [tuple(map(fuzz_grading.describe, fuzz_grading.calls(3, n))) for n in range(40)]

    assert inputs() == inputs()
    assert len(set(inputs())) > 30


def test_a_raise_and_a_slow_call_are_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str, policy: str = "boxed") -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr(fuzz_grading, "_TARGETS", (fuzz_grading._extraction,))
    monkeypatch.setattr(fuzz_grading, "extract_answer", broken)
    fault = fuzz_grading.fault_of(1, 2)
    assert fault is not None
    assert fault.place.startswith("RecursionError at ")
    assert fault.what.endswith("too deep")
    assert "--replay 1:2" in str(fault)
    monkeypatch.setattr(fuzz_grading, "extract_answer", lambda text, policy="boxed": None)
    monkeypatch.setattr(fuzz_grading, "SLOW_SECONDS", -1.0)
    slow = fuzz_grading.fault_of(1, 2)
    assert slow is not None
    assert "took" in slow.what


def test_work_that_grows_with_the_square_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_inputs, "hard", lambda random, length: "x" * length)
    monkeypatch.setattr(fuzz_grading, "_GROWING", {"some": (len, 2000)})
    monkeypatch.setattr(fuzz_grading, "_seconds", lambda function, text: len(text) / 1000)
    fuzz_grading._grows_linearly("some", 0)
    monkeypatch.setattr(fuzz_grading, "_seconds", lambda function, text: len(text) ** 2 / 1e6)
    with pytest.raises(AssertionError, match=r"some: .* s, 4 times the text .* s"):
        fuzz_grading._grows_linearly("some", 0)
