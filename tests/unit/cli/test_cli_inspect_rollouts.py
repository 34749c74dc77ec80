"""`workings inspect rollouts`: saved and fresh batches, and the cause of flat rewards."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cli_runs import grpo_arguments

from workings.cli.main import main
from workings.cli.rollout_text import describe_batch, describe_group, marks_of
from workings.types import Grade, Problem, Prompt, Rollout, RolloutGroup, Verdict

Captured = pytest.CaptureFixture[str]


def _rollout(text: str, reward: float | None, **values: object) -> Rollout:
    fields: dict[str, object] = {
        "ids": [5] * len(text),
        "sampling_logprobs": [0.0] * len(text),
        "kept_mass": [1.0] * len(text),
        "mask": [True] * len(text),
        "off_policy": [False] * len(text),
        "text": text,
        "finish_reason": "stop",
        "weight_version": 0,
        "reward": reward,
        "components": {} if reward is None else {"format": 1.0, "answer": reward},
        "grade": Grade(verdict=Verdict.EQUAL if reward else Verdict.DIFFERENT, extracted="4"),
    }
    return Rollout(**{**fields, **values})  # type: ignore[arg-type]


def _group(*rollouts: Rollout) -> RolloutGroup:
    problem = Problem(id="sums/1", question="2+2", answer="4")
    return RolloutGroup(
        prompt=Prompt(problem=problem, ids=(1, 2), text="2+2\n<think>"), rollouts=rollouts
    )


# ------------------------------------------------------------------------------------- text


def test_a_batch_in_words() -> None:
    right, wrong = _rollout("</think> <answer>4</answer>", 1.0), _rollout("</think>", 0.0)
    cut = _rollout("abc", 0.0, finish_reason="length")
    groups = [_group(right, wrong, cut, cut), _group(cut, cut, cut, cut)]
    assert describe_batch(groups, reward="r1_zero", more=["more"]).splitlines() == [
        "samples      8 of 2 problems",
        "rewards      mean 0.125, lowest 0, highest 1; 1 of 2 groups flat",
        "components   format mean 1 (1 to 1), answer mean 0.125 (0 to 1)",
        "answers      different 7, equal 1",
        "lengths      6.6 tokens in the mean, 3 to 27; 75% cut at the token limit",
        "diversity    50% of a problem's completions are distinct; "
        "1 of 2 groups say one thing only",
        "tags         </think> in 25%, </think> <answer> in 12%, </answer> in 12%",
        "more",
        "",
        "flat groups: 1 of 2 groups are flat, the others teach; nothing is wrong.",
    ]


def test_a_group_shows_equal_completions_once() -> None:
    right, wrong = _rollout("so\n4", 1.0), _rollout("5", 0.0, finish_reason="length")
    text = describe_group(
        _group(wrong, right, wrong), number=2, reward="r1_zero", advantages=[-0.5, 1.0, -0.5]
    )
    assert text.splitlines() == [
        "",
        "group 2: sums/1, gold answer '4'",
        "  prompt: '2+2\\n<think>'",
        "  samples 1, 3: reward 0 (format 1, answer 0), advantage -0.50, different (read '4'), "
        "1 tokens, cut at the limit",
        "  | 5",
        "  sample 2: reward 1 (format 1, answer 1), advantage +1.00, equal (read '4'), 4 tokens, "
        "stop",
        "  | so",
        "  | 4",
    ]


def test_the_middle_of_a_long_completion_is_left_out() -> None:
    text = "\n".join(f"line {n}" for n in range(40))
    shown = describe_group(_group(_rollout(text, 0.0)), number=1, reward="r1_zero")
    assert "  | line 11\n  | ... 22 lines ...\n  | line 34\n" in shown


def test_a_constant_reward_without_tags_is_explained() -> None:
    components = {
        "match_format_exactly": 0.0,
        "match_format_approximately": -3.0,
        "check_answer": -2.0,
        "check_numbers": -1.5,
    }
    grade = Grade(verdict=Verdict.NO_ANSWER)
    rollouts = [_rollout(t, -6.5, components=components, grade=grade) for t in ("a", "b")]
    text = describe_batch([_group(*rollouts)], reward="tags")
    assert "the tag format is not learnt yet" in text
    assert "-6.5 (no tags) up to about step 20, -3 to 0 up to step 50, 0 to +5" in text
    assert "<end_working_out> in 0%" in text


def test_rewards_without_usable_golds() -> None:
    bad = _rollout("a", None, grade=Grade(verdict=Verdict.BAD_GOLD))
    text = describe_batch([_group(bad, bad)], reward="r1_zero")
    assert "rewards      none; no gold answer could be used" in text
    assert "every gold answer is unusable" in text


def test_marks_of_each_reward() -> None:
    assert marks_of("r1_zero") == ("</think>", "</think> <answer>", "</answer>")
    assert marks_of("question_only") == ("\\boxed{",)
    assert marks_of("think_boxed") == ("</think>", "\\boxed{")
    assert marks_of("tags") == ("<end_working_out>", "<SOLUTION>", "</SOLUTION>")


# ---------------------------------------------------------------------------------- commands


def test_the_last_step_of_a_run(grpo_run: Path, capsys: Captured) -> None:
    assert main(["inspect", "rollouts", str(grpo_run), "--limit", "2"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith(f"{grpo_run}, step 2\nsamples      16 of 4 problems\n")
    assert "overlong mean" in out
    assert "\ngroup 2: arithmetic/" in out
    assert "group 3" not in out
    assert "advantage" in out


def test_another_step_and_one_that_is_not_there(grpo_run: Path, capsys: Captured) -> None:
    assert main(["inspect", "rollouts", str(grpo_run), "--step", "1"]) == 0
    assert f"{grpo_run}, step 1\n" in capsys.readouterr().out
    assert main(["inspect", "rollouts", str(grpo_run), "--step", "9"]) == 2
    err = capsys.readouterr().err
    assert "holds no rollouts of step 9\n\nhint: it has 2 steps between 1 and 2\n" in err


def test_only_files_of_a_step_are_rollouts(
    grpo_run: Path, tmp_path: Path, capsys: Captured
) -> None:
    run = tmp_path / "run"
    shutil.copytree(grpo_run, run)
    for name in ("step_best", "step_000001_old"):
        shutil.copy(run / "rollouts/step_000001.parquet", run / f"rollouts/{name}.parquet")
    assert main(["inspect", "rollouts", str(run)]) == 0
    assert f"{run}, step 2\n" in capsys.readouterr().out
    assert main(["inspect", "rollouts", str(run), "--step", "9"]) == 2
    assert "it has 2 steps between 1 and 2" in capsys.readouterr().err


def test_a_cut_file_of_rollouts_is_named(grpo_run: Path, tmp_path: Path, capsys: Captured) -> None:
    run = tmp_path / "run"
    shutil.copytree(grpo_run, run)
    file = run / "rollouts/step_000002.parquet"
    file.write_bytes(file.read_bytes()[:-20])
    assert main(["inspect", "rollouts", str(run)]) == 2
    err = capsys.readouterr().err
    assert f"error: {file} cannot be read: " in err
    assert "hint: it is no parquet file, or was cut" in err


def test_a_run_without_rollouts(sft_run: Path, capsys: Captured) -> None:
    assert main(["inspect", "rollouts", str(sft_run)]) == 2
    assert f"error: {sft_run} holds no rollouts\n" in capsys.readouterr().err


def test_fresh_samples_say_why_rewards_are_flat(
    tiny_folder: Path, tmp_path: Path, capsys: Captured
) -> None:
    settings = grpo_arguments(tiny_folder, tmp_path, "reward.overlong_buffer=0")[1:]
    assert main(["inspect", "rollouts", *settings, "--limit", "1"]) == 0
    out, err = capsys.readouterr()
    assert "samples      4 of 1 problems" in out
    assert "tokenised    tokens of each tag: </think> 8, </think> <answer> 17, </answer> 9" in out
    assert "All rewards of every group are equal" in out
    assert "likely cause: " in out
    assert "note: sampling: temperature 1, max_tokens 10, stop at EOS and 'a' and 'e'" in err
    assert not (tmp_path / "grpo").exists()


def test_a_low_temperature_is_named_as_the_cause(
    tiny_folder: Path, tmp_path: Path, capsys: Captured
) -> None:
    settings = grpo_arguments(tiny_folder, tmp_path, "sampling.temperature=0.0001")[1:]
    assert main(["inspect", "rollouts", *settings, "--limit", "1"]) == 0
    out = capsys.readouterr().out
    assert "  samples 1, 2, 3, 4: reward " in out
    assert "all completions of a prompt are identical: the temperature is too low" in out


def test_a_step_is_for_saved_rollouts(tiny_folder: Path, tmp_path: Path, capsys: Captured) -> None:
    settings = grpo_arguments(tiny_folder, tmp_path)[1:]
    assert main(["inspect", "rollouts", *settings, "--step", "1"]) == 2
    assert "--step is for the saved rollouts" in capsys.readouterr().err
