"""Which samples of a round are trained, what is counted, and the file that remembers them."""

from __future__ import annotations

import math

import pytest

from workings.errors import CheckpointError
from workings.training.kept import KeptFiles, keep_right, kept_metrics, kept_rows
from workings.types import Problem, Prompt, Rollout, RolloutGroup


def rollout(ids, reward, *, logprob=-1.0, mass=1.0):
    length = len(ids)
    return Rollout(
        ids=tuple(ids),
        sampling_logprobs=(logprob,) * length,
        kept_mass=(mass,) * length,
        mask=(True,) * length,
        off_policy=(False,) * length,
        text=" ".join(map(str, ids)),
        finish_reason="eos",
        weight_version=0,
        reward=reward,
    )


def group(name, *rollouts):
    problem = Problem(id=name, question=name, answer="4")
    return RolloutGroup(
        prompt=Prompt(problem=problem, ids=(1, len(name)), text=name), rollouts=rollouts
    )


def ids_of(kept):
    return [(g.problem.id, r.ids) for g in kept.groups for r in g.rollouts]


GROUPS = [
    group("a", rollout([5, 6], 1.0), rollout([5, 7], 0.0), rollout([5, 6], 1.0)),
    group("b", rollout([8], 0.0), rollout([9], None)),
    group("c", rollout([5, 6], 0.5), rollout([7], 1.0), rollout([8], 1.0)),
]


def test_what_is_right_is_kept_once_and_in_order():
    kept = keep_right(GROUPS)
    assert ids_of(kept) == [("a", (5, 6)), ("c", (5, 6)), ("c", (7,)), ("c", (8,))]
    assert (kept.num_right, kept.num_duplicates, kept.num_over_limit) == (5, 1, 0)
    assert kept.num_rows == 4
    assert all(g.rollouts for g in kept.groups)


def test_the_threshold_is_exclusive():
    assert ids_of(keep_right(GROUPS, above=0.5)) == [("a", (5, 6)), ("c", (7,)), ("c", (8,))]
    assert keep_right(GROUPS, above=1.0).num_rows == 0
    below = keep_right(GROUPS, above=-1.0)
    assert ("b", (8,)) in ids_of(below)
    assert ("b", (9,)) not in ids_of(below)  # without a reward


def test_duplicates_may_stay():
    kept = keep_right(GROUPS, drop_duplicates=False)
    assert ids_of(kept)[:2] == [("a", (5, 6))] * 2
    assert kept.num_duplicates == 0


def test_a_question_has_at_most_so_many():
    kept = keep_right(GROUPS, max_per_question=1)
    assert ids_of(kept) == [("a", (5, 6)), ("c", (5, 6))]
    assert (kept.num_duplicates, kept.num_over_limit) == (1, 2)


def test_a_question_drawn_twice_counts_as_one():
    twice = [GROUPS[0], group("a", rollout([5, 6], 1.0), rollout([1], 1.0), rollout([2], 1.0))]
    assert ids_of(keep_right(twice)) == [("a", (5, 6)), ("a", (1,)), ("a", (2,))]
    limited = keep_right(twice, max_per_question=2)
    assert ids_of(limited) == [("a", (5, 6)), ("a", (1,))]
    assert (limited.num_right, limited.num_duplicates, limited.num_over_limit) == (5, 2, 1)


def test_rows_are_the_sampled_ids_after_their_prompt():
    rows = kept_rows(keep_right(GROUPS).groups)
    assert [row.key for row in rows] == [0, 1, 2, 3]
    assert [row.group for row in rows] == [0, 1, 1, 1]
    assert [tuple(row.response_ids) for row in rows] == [(5, 6), (5, 6), (7,), (8,)]
    assert all(tuple(row.prompt_ids) == (1, 1) for row in rows)
    assert [row.num_trained for row in rows] == [2, 2, 1, 1]


def test_metrics_of_a_round():
    metrics = kept_metrics(GROUPS, keep_right(GROUPS, max_per_question=2))
    assert metrics == pytest.approx(
        {
            "kept_rows": 3,
            "kept_fraction": 3 / 8,
            "pass_rate": 5 / 7,
            "questions_solved": 2 / 3,
            "duplicates_dropped": 1,
            "over_limit_dropped": 1,
            "empty_iterations": 0,
            "kept_length/mean": 5 / 3,
            "token_entropy": 1.0,
        }
    )


def test_entropy_counts_what_was_cut_and_leaves_out_what_was_not_scored():
    groups = [
        group("a", rollout([5], 0.0, logprob=-2.0, mass=0.5), rollout([6], 0.0, logprob=math.nan))
    ]
    metrics = kept_metrics(groups, keep_right(groups))
    assert metrics["token_entropy"] == pytest.approx(2.0 + math.log(0.5))
    assert metrics["empty_iterations"] == 1
    assert "kept_length/mean" not in metrics
    unscored = [group("a", rollout([6], 0.0, logprob=math.nan))]
    assert "token_entropy" not in kept_metrics(unscored, keep_right(unscored))


# ------------------------------------------------------------------------------------ the files


def test_rows_come_back_as_they_were(tmp_path):
    files = KeptFiles(tmp_path / "kept")
    kept = keep_right(GROUPS)
    files.write(8, kept.groups)
    assert kept_rows(files.read(8)) == kept_rows(kept.groups)
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["step_000008.parquet"]


def test_nothing_kept_is_stored_too(tmp_path):
    files = KeptFiles(tmp_path)
    files.write(3, ())
    assert files.read(3) == []


def test_what_a_resumed_run_samples_again_is_removed(tmp_path):
    files = KeptFiles(tmp_path)
    for step in (1, 8, 17):
        files.write(step, keep_right(GROUPS).groups)
    files.truncate_after(8)
    assert files.read(8)
    with pytest.raises(CheckpointError, match=r"step_000017.parquet is missing") as caught:
        files.read(17)
    assert caught.value.hint == "resume from a checkpoint at the end of a round"
