"""The training benchmark: our loops on a CPU, TRL's settings, what is counted, the rows."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_our_loop_runs_as_it_is_and_counts_no_warm_up() -> None:
    from training import CASES
    from training_sides import Ours, SFTCase

    case = CASES["smoke"]
    assert isinstance(case, SFTCase)
    settings = {"device": "cpu", "overrides": {"batch.activation_checkpointing": "full"}}
    measured = Ours().sft(case, 1, 2, settings)
    assert measured.seconds > 0


@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_our_update_runs_on_a_made_up_group(checkpointing: str) -> None:
    from training import CASES
    from training_sides import GRPOCase, Ours

    case = CASES["grpo_smoke"]
    assert isinstance(case, GRPOCase)
    settings = {"device": "cpu", "checkpointing": checkpointing, "kernels": "plain"}
    measured = Ours().grpo(case, 2, {**settings, "microbatch_tokens": 32})
    assert measured.seconds > 0


def test_useful_products_are_counted_once() -> None:
    from training_sides import SHAPES, SFTCase

    short, long = (SFTCase(shape="1.5B", rows=r, length=n) for r, n in ((8, 2048), (2, 8192)))
    weights = 6 * SHAPES["1.5B"].num_parameters * 16384
    # A layer has two products of n x n / 2 x 1536 forward, and backward twice as many.
    attention = 3 * 28 * 2 * 2 * (2048**2 / 2) * 1536 * 8
    assert short.tokens == long.tokens == 16384
    assert short.flops == pytest.approx(weights + attention, rel=1e-12)
    assert long.flops == pytest.approx(weights + 4 * attention, rel=1e-12)


def test_rows_compare_with_each_side_and_say_what_each_used() -> None:
    from training import CASES, DEFAULTS, OURS, TUNED, mfu, sft_rows
    from training_sides import Measured, SFTCase

    case = CASES["sft_2048"]
    assert isinstance(case, SFTCase)
    measured = {
        OURS: [Measured(seconds=0.3, peak_gib=60.0) for _ in range(3)],
        TUNED: [Measured(seconds=s, peak_gib=65.0) for s in (0.35, 0.36, 0.4)],
        DEFAULTS: [Measured(seconds=0.6, peak_gib=40.0)],
    }
    rows = {row["name"]: row for row in sft_rows(case, measured)}
    against = rows["SFT, 1.5B, 8 x 2,048 tokens, against TRL tuned"]
    assert against["value"] == pytest.approx(16384 / 0.3)
    assert against["ratio"] == pytest.approx(1.2)
    assert "(350.0 to 400.0 of 3)" in against["note"]
    assert rows["SFT, 1.5B, 8 x 2,048 tokens: MFU, by ours"]["value"] == mfu(case, 0.3)
    assert rows["SFT, 1.5B, 8 x 2,048 tokens: peak memory, by TRL tuned"]["value"] == 65.0
    assert mfu(case, 0.3) == pytest.approx(54.0, abs=0.2)


@pytest.mark.parametrize("tuned", [False, True])
def test_what_tuning_of_the_peer_changes(tuned: bool) -> None:
    from training import CASES
    from training_sides import GRPOCase, SFTCase, trl_grpo_settings, trl_sft_settings

    case, group = CASES["sft_2048"], CASES["grpo_memory"]
    assert isinstance(case, SFTCase)
    assert isinstance(group, GRPOCase)
    found = trl_sft_settings(case, 5, tuned=tuned)
    assert (found["max_steps"], found["max_length"]) == (5, 2048)
    for key in ("use_liger_kernel", "gradient_checkpointing", "packing"):
        assert (key in found) == tuned
    update = trl_grpo_settings(group, 2, rows=2, tuned=tuned)
    assert update["gradient_accumulation_steps"] * update["per_device_train_batch_size"] == 8


def test_variants_are_timed_on_any_device(capsys: pytest.CaptureFixture[str]) -> None:
    from training_sides import SFTCase
    from training_variants import measure_variants

    case = SFTCase(shape="tiny", rows=2, length=32)
    names = ["before", "plain"]
    assert measure_variants(names, device="cpu", seconds=60.0, case=case) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in names)
    assert measure_variants(["none"], device="cpu", seconds=1.0, case=case) == 1


@pytest.mark.parametrize(
    "name",
    ["measurement", "grpo_cases", "grpo_step", "training", "training_sides", "training_variants"],
)
def test_examples_in_the_scripts_are_true(name: str) -> None:
    module = __import__(name)
    assert doctest.testmod(module).failed == 0
