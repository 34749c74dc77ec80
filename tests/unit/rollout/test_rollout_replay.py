"""ExGRPO's buffer: entry, buckets, draws, age, and the exact state."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from workings.errors import CheckpointError, ConfigError, EngineError, TrainingError
from workings.models.tensors import load_tensors, save_tensors
from workings.rollout.replay import ReplayBuffer, bucket_shares, bucket_weight
from workings.rollout.replay_batch import (
    BatchPlan,
    Candidate,
    choose_replays,
    mix_replay,
    plan_batch,
    replay_started,
    solve_rate,
)
from workings.rollout.stored import StoredRollout, stored_rollout
from workings.types import Problem, Prompt, Rollout, RolloutGroup

N = 8


def prompt(name: str) -> Prompt:
    return Prompt(problem=Problem(id=name, question="q", answer="1"), ids=(1, 2), text="q")


def rollout(place: int, right: bool, *, version: int = 0, **changes: Any) -> Rollout:
    row = Rollout(
        ids=(10 + place, 3, version),
        sampling_logprobs=(-0.5, -0.25, -1.0),
        kept_mass=(1.0, 0.5, 1.0),
        mask=(True,) * 3,
        off_policy=(False,) * 3,
        text=f"{place}/{version}",
        finish_reason="eos",
        weight_version=version,
        reward=float(right),
    )
    return replace(row, **changes)


def group(name: str, num_right: int, *, version: int = 0, size: int = N) -> RolloutGroup:
    rows = tuple(rollout(place, place < num_right, version=version) for place in range(size))
    return RolloutGroup(prompt=prompt(name), rollouts=rows)


def is_right(row: Rollout) -> bool:
    return row.reward == 1.0


def buffer_of(*groups: RolloutGroup, step: int = 0, **settings: Any) -> ReplayBuffer:
    buffer = ReplayBuffer(num_generations=N, **settings)
    buffer.add(groups, step=step, is_right=is_right)
    return buffer


# ------------------------------------------------------------------------------------- buckets


def test_exgrpo_weights_of_the_code() -> None:
    shares = bucket_shares(range(1, 8), 8)
    published = [0.0044, 0.054, 0.242, 0.3991, 0.242, 0.054, 0.0044]
    assert [round(share, 4) for share in shares.values()] == published
    density = [math.exp(-((k - 4) ** 2) / 2) / math.sqrt(2 * math.pi) for k in range(1, 8)]
    assert [bucket_weight(k, 8) for k in range(1, 8)] == pytest.approx(density, rel=1e-12)


def test_the_weights_of_the_paper_are_nearly_flat() -> None:
    """N(accuracy; 0.5, 1) on the scale of 0 to 1 is sigma = n in counts."""
    shares = bucket_shares(range(1, 8), 8, sigma=8.0)
    assert round(shares[1], 3) == 0.137
    assert round(shares[4], 3) == 0.147


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [
        ("linear", [0.125, 0.5, 0.875]),
        ("sqrt", [math.sqrt(0.125), math.sqrt(0.5), math.sqrt(0.875)]),
        ("linear_clip", [0.125, 0.5, 0.5]),
    ],
)
def test_other_weightings(weighting: Any, expected: list[float]) -> None:
    assert [bucket_weight(k, 8, weighting=weighting) for k in (1, 4, 7)] == expected


def test_densities_that_vanish_are_equal_shares() -> None:
    assert bucket_shares([1, 7], 8, sigma=0.05) == {1: 0.5, 7: 0.5}


# --------------------------------------------------------------------------------------- entry


@pytest.mark.parametrize("num_right", range(N + 1))
def test_the_entry_rule(num_right: int) -> None:
    buffer = buffer_of(group("a", num_right))
    assert len(buffer) == (0 < num_right < 8)
    assert len(buffer.candidates("a")) == (num_right if num_right < 8 else 0)
    assert (buffer.retired == {"a"}) == (num_right == 8)


def test_bounds_are_open_below_and_closed_above() -> None:
    groups = [group(str(k), k) for k in range(N + 1)]
    buffer = buffer_of(*groups, lower=2, upper=5)
    assert sorted(buffer.draw(9, seed=0, step=0)) == ["3", "4", "5"]


def test_only_own_right_rows_are_stored_and_each_once() -> None:
    mixed = group("a", 3)
    others = (
        rollout(90, True, source="replay"),
        rollout(91, True, source="demonstration"),
    )
    mixed = replace(mixed, rollouts=(*mixed.rollouts[:6], *others))
    buffer = buffer_of(mixed)
    assert [kept.text for kept in buffer.candidates("a")] == ["0/0", "1/0", "2/0"]
    assert buffer.metrics(0)["replay/bucket/4"] == 1.0, "the replayed row counts, a teacher's not"
    buffer.add([mixed], step=1, is_right=is_right)
    assert len(buffer.candidates("a")) == 3


def test_the_latest_count_is_the_bucket_and_a_failure_changes_nothing() -> None:
    buffer = buffer_of(group("a", 6))
    buffer.add([group("a", 2, version=1)], step=1, is_right=is_right)
    assert buffer.metrics(1)["replay/bucket/2"] == 1.0
    assert len(buffer.candidates("a")) == 8
    buffer.add([group("a", 0, version=2)], step=2, is_right=is_right)
    assert buffer.metrics(2)["replay/bucket/2"] == 1.0
    assert len(buffer.candidates("a")) == 8


def test_a_solved_question_is_retired_for_good() -> None:
    buffer = buffer_of(group("a", 4), group("b", 4))
    buffer.add([group("a", 8)], step=1, is_right=is_right)
    assert buffer.retired == {"a"}
    assert buffer.draw(5, seed=0, step=2) == ["b"]
    buffer.add([group("a", 4)], step=2, is_right=is_right)
    assert len(buffer) == 1


def test_a_group_with_an_unusable_gold_is_passed_over() -> None:
    bad = group("a", 4)
    bad = replace(bad, rollouts=(replace(bad.rollouts[0], reward=None), *bad.rollouts[1:]))
    assert len(buffer_of(bad)) == 0


def test_recorded_logprobs_are_the_behaviours_or_the_trainers() -> None:
    first = group("a", 1)
    kept = buffer_of(first).candidates("a")[0]
    assert kept.logprobs == pytest.approx((-0.5, -0.25 - math.log(0.5), -1.0), abs=1e-7)
    buffer = ReplayBuffer(num_generations=N)
    old = [[(-0.5, -0.75, -2.0)] * N]
    buffer.add([first], step=0, is_right=is_right, old_logprobs=old)
    assert buffer.candidates("a")[0].logprobs == (-0.5, -0.75, -2.0)
    silent = rollout(0, True, sampling_logprobs=(math.nan,) * 3)
    with pytest.raises(ConfigError, match="3 tokens and 0 known log-probabilities") as caught:
        stored_rollout(silent, step=0, logprobs=None, problem_id="a")
    assert "sampling.logprobs" in str(caught.value.hint)


# --------------------------------------------------------------------------------------- draws


def test_draws_follow_the_weights_and_never_repeat() -> None:
    groups = [group(f"{k}-{number}", k) for k in range(1, 8) for number in range(20)]
    buffer = buffer_of(*groups)
    counts: Counter[str] = Counter()
    for step in range(300):
        drawn = buffer.draw(2, seed=0, step=step)
        assert len(set(drawn)) == 2
        counts.update(name[0] for name in drawn)
    for k, share in bucket_shares(range(1, 8), 8).items():
        error = math.sqrt(share * (1 - share) / 600)
        assert counts[str(k)] / 600 == pytest.approx(share, abs=4.5 * error)


def test_draws_are_a_function_of_seed_step_and_content() -> None:
    groups = [group(f"{k}-{number}", k) for k in (3, 4, 5) for number in range(6)]
    buffer, backwards = buffer_of(*groups), buffer_of(*groups[::-1])
    assert buffer.draw(5, seed=1, step=2) == backwards.draw(5, seed=1, step=2)
    others = [buffer.draw(5, seed=seed, step=step) for seed, step in ((1, 3), (2, 2))]
    assert buffer.draw(5, seed=1, step=2) not in others


def test_an_empty_bucket_leaves_its_share_to_the_others() -> None:
    groups = [group("rare", 4), *(group(f"b{number}", 1) for number in range(3))]
    buffer = buffer_of(*groups)
    assert sorted(buffer.draw(10, seed=0, step=0)) == ["b0", "b1", "b2", "rare"]
    assert buffer.draw(10, seed=0, step=0, among={"b1", "x"}) == ["b1"]
    assert buffer_of().draw(3, seed=0, step=0) == []


# ---------------------------------------------------------------------------------------- age


def test_rollouts_leave_by_age() -> None:
    buffer = buffer_of(group("a", 2), group("b", 1), max_age=3)
    buffer.add([group("a", 1, version=2)], step=2, is_right=is_right)
    assert buffer.metrics(3)["replay/age/max"] == 3.0
    buffer.evict(3)
    assert (len(buffer), buffer.num_rollouts) == (2, 4)
    buffer.evict(4)
    assert (len(buffer), buffer.num_rollouts) == (1, 1), "a question without a rollout leaves too"
    assert buffer.metrics(4)["replay/age/mean"] == 2.0


def test_the_oldest_leave_where_there_are_too_many() -> None:
    buffer = buffer_of(group("a", 3), max_rollouts=4)
    buffer.add([group("b", 2, version=1)], step=1, is_right=is_right)
    assert [len(buffer.candidates(name)) for name in "ab"] == [2, 2]
    assert [kept.text for kept in buffer.candidates("a")] == ["1/0", "2/0"]


def test_metrics() -> None:
    metrics = buffer_of(group("a", 3), group("b", 3), group("c", 8), step=5).metrics(7)
    assert metrics["replay/questions"] == 2.0
    assert metrics["replay/rollouts"] == 6.0
    assert metrics["replay/retired"] == 1.0
    assert metrics["replay/age/mean"] == metrics["replay/age/max"] == 2.0
    assert [metrics[f"replay/bucket/{k}"] for k in range(1, 8)] == [0, 0, 2, 0, 0, 0, 0]


# ------------------------------------------------------------------------------------- batches


def test_the_share_of_a_batch() -> None:
    buffer = buffer_of(*(group(f"q{number}", 4) for number in range(10)))

    def plan(ratio: float, size: int = 8, **settings: Any) -> BatchPlan:
        return plan_batch(
            buffer, prompts_per_step=size, experience_ratio=ratio, seed=0, step=0, **settings
        )

    half = plan(0.5)
    assert (half.num_fresh, len(half.replayed)) == (4, 4)
    assert half.samples_wanted(8) == [8] * 4 + [7] * 4
    assert (plan(0.5, 7).num_fresh, plan(0.0).num_fresh, plan(1.0).num_fresh) == (4, 8, 0)
    assert plan(1.0, 40).num_fresh == 30, "fresh prompts take the places of what is not there"
    assert plan(0.5, started=False) == BatchPlan(num_fresh=8)
    with pytest.raises(ConfigError, match=r"experience_ratio=1\.5"):
        plan(1.5)


def test_the_start_is_delayed_and_then_for_good() -> None:
    batch = [group("a", 2), group("b", 4)]
    assert solve_rate(batch, is_right=is_right) == 6 / 16
    assert solve_rate([], is_right=is_right) == 0.0
    assert replay_started(6 / 16, threshold=0.35, started=False)
    assert not replay_started(0.35, threshold=0.35, started=False)
    assert replay_started(0.0, threshold=0.35, started=True)


def test_the_trace_with_the_lowest_score_is_chosen() -> None:
    buffer = buffer_of(group("a", 3), group("b", 2))
    seen: list[list[str]] = []

    def score(candidates: Sequence[Candidate]) -> list[float]:
        seen.append([f"{c.prompt.problem.id}{c.rollout.text}" for c in candidates])
        return [3.0, 1.0, 2.0, 5.0, 5.0]

    def choose(**settings: Any) -> list[str]:
        rows = choose_replays(buffer, [prompt("a"), prompt("b")], seed=0, step=0, **settings)
        return [row.text for row in rows]

    assert choose(score=score) == ["1/0", "0/0"]
    assert seen == [["a0/0", "a1/0", "a2/0", "b0/0", "b1/0"]], "all are scored in one call"
    assert choose(score=score, select="highest") == ["0/0", "0/0"]
    assert choose(score=None) == choose(score=None)
    drawn = {
        choose_replays(buffer, [prompt("a")], score=None, seed=0, step=step)[0].text
        for step in range(40)
    }
    assert drawn == {"0/0", "1/0", "2/0"}
    assert choose_replays(buffer, [], score=score, seed=0, step=0) == []
    with pytest.raises(TrainingError, match="5 candidates for replay got 1 scores"):
        choose(score=lambda rows: [0.0])
    with pytest.raises(TrainingError, match="4 of them finite"):
        choose(score=lambda rows: [0.0, 0.0, math.nan, 0.0, 0.0])
    with pytest.raises(TrainingError, match="'x' has no rollout to replay"):
        choose_replays(buffer, [prompt("x")], score=None, seed=0, step=0)


def test_one_replayed_row_and_seven_fresh_ones() -> None:
    kept = buffer_of(group("a", 1)).candidates("a")[0]
    fresh = [group("b", 2), group("a", 0, version=9, size=7)]
    whole, mixed = mix_replay(fresh, [None, kept], num_generations=8)
    assert whole == fresh[0]
    assert mixed.rollouts[:7] == fresh[1].rollouts
    row = mixed.rollouts[7]
    assert (row.ids, row.text, row.source) == ((10, 3, 0), "0/0", "replay")
    assert all(row.off_policy)
    assert all(row.mask)
    assert all(map(math.isnan, row.sampling_logprobs))
    assert row.recorded_logprobs == kept.logprobs
    assert row.weight_version == 0
    with pytest.raises(EngineError, match="expected 8 in all"):
        mix_replay(fresh, [kept, kept], num_generations=8)
    with pytest.raises(EngineError, match="1 choices of a replay for 2 groups"):
        mix_replay(fresh, [kept], num_generations=8)


# --------------------------------------------------------------------------------------- state


def test_pitfall_15_the_state_is_exact(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"max_age": 6, "max_rollouts": 40}
    groups = [group(f"q{number}", 1 + number % 8, version=number) for number in range(20)]
    buffer = buffer_of(*groups, step=3, **settings)
    save_tensors(tmp_path / "replay.pt", buffer.to_state())
    again = ReplayBuffer(num_generations=N, **settings)
    again.load_state(load_tensors(tmp_path / "replay.pt"))
    assert again.to_state() == buffer.to_state()
    assert again.retired == buffer.retired != frozenset()
    more = [group(f"q{number}", 3, version=50) for number in range(5, 15)]
    for kept in (buffer, again):
        kept.add(more, step=8, is_right=is_right)
    for step in range(5):
        assert again.draw(6, seed=1, step=step) == buffer.draw(6, seed=1, step=step)
    assert again.to_state() == buffer.to_state()
    assert again.metrics(9) == buffer.metrics(9)


def test_a_state_that_is_none_is_refused() -> None:
    buffer = buffer_of(group("a", 1))
    state = buffer.to_state()
    with pytest.raises(CheckpointError, match="not the state of a replay buffer"):
        buffer.load_state({"version": 99})
    with pytest.raises(CheckpointError, match="not the state of a replay buffer"):
        buffer.load_state([])
    with pytest.raises(CheckpointError, match="damaged: KeyError"):
        buffer.load_state({**state, "entries": [{"problem_id": "a"}]})
    assert len(buffer) == 1, "what it held stays"
    with pytest.raises(ValueError, match="4 bytes of ids and 8"):
        StoredRollout(
            packed_ids=b"1234",
            packed_logprobs=b"12345678",
            text="",
            finish_reason="eos",
            weight_version=0,
            step=0,
        )


def test_settings_that_cannot_be_are_refused() -> None:
    def refused(match: str, **settings: Any) -> None:
        with pytest.raises(ConfigError, match=match):
            ReplayBuffer(**{"num_generations": N, **settings})

    refused("num_generations=1; replay needs 2", num_generations=1)
    refused("with 5 < k <= 5 of 8", lower=5, upper=5)
    refused("with 0 < k <= 9 of 8", upper=9)
    refused("bucket_sigma=0", sigma=0.0)
    refused("replay max_age=0", max_age=0)
    refused("unknown bucket weighting 'flat'", weighting="flat")
