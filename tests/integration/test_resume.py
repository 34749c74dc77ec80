"""Contract 7: a run that was stopped ends exactly where one that was not stopped ends."""

from __future__ import annotations

import json
import os
import shutil
import signal

import pytest
from safetensors.torch import load_file
from tiny_runs import (
    LORA,
    dpo_arguments,
    expert_arguments,
    grpo_arguments,
    one_step_off_arguments,
    sft_arguments,
)
from warm_process import WarmProcess

from tiny import save_tiny
from workings.cli.main import main
from workings.tracking.rollouts import read_groups

EXACT = ("train/learning_rate", "train/loss", "train/grad_norm", "train/epoch", "train/reward")
KINDS = {
    "sft": sft_arguments,
    "grpo": grpo_arguments,
    "ahead": one_step_off_arguments,
    "sft-lora": lambda model, output, **kw: sft_arguments(model, output, LORA, **kw),
    "dpo": dpo_arguments,
    "dpo-lora": lambda model, output, **kw: dpo_arguments(model, output, LORA, **kw),
    "expert": expert_arguments,
    "expert-lora": lambda model, output, **kw: expert_arguments(model, output, LORA, **kw),
    "grpo-lora": lambda model, output, **kw: grpo_arguments(model, output, LORA, **kw),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def straight(model, tmp_path_factory):
    """One run of each kind that is not stopped, made when first asked for."""
    made = {}

    def run(kind):
        if kind not in made:
            output = tmp_path_factory.mktemp(f"straight-{kind}")
            assert main(KINDS[kind](model, output, name="run")) == 0
            made[kind] = output / "run"
        return made[kind]

    return run


@pytest.fixture(scope="module")
def processes():
    process = WarmProcess("killed_run")
    yield process
    process.close()


@pytest.fixture
def ended(processes, tmp_path):
    """How a run ended to which something happened at a chosen moment."""

    def run(arguments, moment, at):
        given = [moment, str(at), *arguments]
        return processes.run("killed_run", given, output=tmp_path / "output.txt")

    return run


@pytest.fixture
def killed(ended):
    """Let a run be killed at a chosen moment."""

    def run(arguments, moment, at):
        end = ended(arguments, moment, at)
        assert end.returncode == -signal.SIGKILL, end.output

    return run


def rows_of(folder):
    """What was trained and recorded, without wall-clock times."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [
        (row["step"], {name: row[name] for name in row if name in EXACT or "eval/" in name})
        for row in rows
    ]


def without_times(rows):
    return [
        (step, {name: value for name, value in row.items() if "second" not in name})
        for step, row in rows
    ]


def same_end(first, second):
    """Weights bit for bit, the same rows in the same order, rewards, rates and rollouts."""
    for name in ("model.safetensors", "adapter_model.safetensors"):
        one, other = first / "final" / name, second / "final" / name
        assert one.exists() == other.exists()
        if one.exists():
            weights, others = load_file(one), load_file(other)
            assert weights.keys() == others.keys()
            assert all(weights[key].equal(others[key]) for key in weights)
    assert without_times(rows_of(first)) == without_times(rows_of(second))
    names = sorted(path.name for path in (first / "rollouts").glob("*.parquet"))
    assert names == sorted(path.name for path in (second / "rollouts").glob("*.parquet"))
    for name in names:
        groups, others = (
            read_groups(first / "rollouts" / name),
            read_groups(second / "rollouts" / name),
        )
        for group, other in zip(groups, others, strict=True):
            assert group.problem.id == other.problem.id
            for rollout, again in zip(group.rollouts, other.rollouts, strict=True):
                assert list(rollout.ids) == list(again.ids)
                assert rollout.reward == again.reward
                assert rollout.weight_version == again.weight_version


@pytest.mark.parametrize(
    ("kind", "moment", "at"),
    [
        # GRPO: 2 updates of 4 microbatches a step, scored once more before the first update.
        ("grpo", "sample", 4),  # in mid-step, while sampling
        ("grpo", "forward", 48 + 8 + 3),  # in mid-accumulation
        ("grpo", "saved", 1),  # between two steps
        ("grpo", "saving", 2),  # while a checkpoint is written
        ("grpo-lora", "forward", 48 + 8 + 3),
        # The next batch sampled ahead, in another process; a checkpoint is two files of tensors.
        pytest.param("ahead", "forward", 48 + 8 + 3, marks=pytest.mark.slow),  # while it samples
        pytest.param("ahead", "collect", 4, marks=pytest.mark.slow),  # while it is waited for
        pytest.param("ahead", "saved", 1, marks=pytest.mark.slow),  # with the batch ahead stored
        # While the batch ahead of the second checkpoint is written.
        pytest.param("ahead", "saving", 4, marks=pytest.mark.slow),
        # SFT: 4 microbatches a step, 3 steps an epoch.
        ("sft", "forward", 4 * 4 + 3),  # in mid-accumulation
        ("sft", "forward", 4 * 6 + 1),  # at an epoch boundary, before the third epoch's first step
        ("sft", "saving", 3),
        ("sft-lora", "forward", 4 * 4 + 3),
        # DPO: 4 microbatches of two pairs a step, 3 steps an epoch.
        ("dpo", "forward", 4 * 4 + 3),  # in mid-accumulation
        ("dpo", "saving", 3),
        ("dpo-lora", "forward", 4 * 6 + 1),  # at an epoch boundary
        # Expert iteration: samples of a round, its updates, an evaluation; saved every second step
        # of a round, the first of which takes seven steps, and at its end.
        ("expert", "sample", 3),  # while the second round is sampled
        ("expert", "saved", 4),  # between two rounds
        ("expert", "saved", 6),  # in the middle of the second round
        ("expert", "forward", 14 + 12 + 7),  # in mid-accumulation of its second pass
        ("expert-lora", "forward", 14 + 12 + 7),
    ],
)
def test_a11a_kill_9_and_resume_ends_the_same(model, straight, killed, tmp_path, kind, moment, at):
    arguments = KINDS[kind](model, tmp_path, name="run")
    killed(arguments, moment, at)
    assert main([*arguments, "--resume"]) == 0
    same_end(straight(kind), tmp_path / "run")


@pytest.mark.parametrize("kind", ["grpo", "sft"])
def test_a11a_stopped_at_an_epoch_boundary(model, straight, killed, tmp_path, kind):
    """Three steps are an epoch; the run stops there and is resumed with the full number."""
    arguments = KINDS[kind](model, tmp_path, name="run")
    stop_at_epoch = [*arguments, "checkpoint.every_steps=3"]
    killed(stop_at_epoch, "saved", 1)
    assert main([*arguments, "--resume"]) == 0
    same_end(straight(kind), tmp_path / "run")


@pytest.mark.parametrize(("number", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_signals_finish_the_step_and_save(model, straight, ended, tmp_path, number, code):
    arguments = grpo_arguments(model, tmp_path, name="run")
    end = ended(arguments, number, 3)
    assert end.returncode == code, end.output
    assert "after step 3, which is saved" in end.output
    assert (tmp_path / "run" / "checkpoints" / "step_000003").is_dir()
    assert main([*arguments, "--resume"]) == 0
    same_end(straight("grpo"), tmp_path / "run")


@pytest.mark.parametrize("part", ["policy_step", "grade_groups"])
def test_expert_iteration_stops_politely_in_a_round(model, straight, tmp_path, monkeypatch, part):
    """In an update of the second round, or while its samples are graded."""
    from workings.training import expert_iteration

    calls, function = [], getattr(expert_iteration, part)
    wanted = {"policy_step": 9, "grade_groups": 2}[part]

    def stopping(*args, **kwargs):
        calls.append(part)
        if len(calls) == wanted:
            os.kill(os.getpid(), signal.SIGTERM)
        return function(*args, **kwargs)

    monkeypatch.setattr(expert_iteration, part, stopping)
    arguments = expert_arguments(model, tmp_path, name="run")
    assert main(arguments) == 143
    assert len(calls) == wanted
    assert main([*arguments, "--resume"]) == 0
    same_end(straight("expert"), tmp_path / "run")


def test_expert_iteration_without_the_samples_of_its_round_is_refused(
    model, killed, tmp_path, capsys
):
    arguments = expert_arguments(model, tmp_path, name="run")
    killed(arguments, "saved", 6)
    shutil.rmtree(tmp_path / "run" / "kept")
    assert main([*arguments, "--resume"]) == 1
    error = capsys.readouterr().err
    assert "holds the samples that the round in progress trains on" in error
    earlier = tmp_path / "run" / "checkpoints" / "step_000007"
    assert main([*arguments, "--resume", str(earlier)]) == 0


def test_a11b_more_steps_after_resume_all_run(model, tmp_path):
    assert main(sft_arguments(model, tmp_path, "max_steps=2", name="run")) == 0
    assert main([*sft_arguments(model, tmp_path, "max_steps=5", name="run"), "--resume"]) == 0
    steps = [step for step, row in rows_of(tmp_path / "run") if "train/loss" in row]
    assert steps == [1, 2, 3, 4, 5]


def test_a11c_resuming_a_finished_run_says_so(model, tmp_path, capsys):
    arguments = sft_arguments(model, tmp_path, "max_steps=2", name="run")
    assert main(arguments) == 0
    assert main([*arguments, "--resume"]) == 3
    assert "is finished: it stopped at step 2" in capsys.readouterr().err


def test_a11d_a_damaged_checkpoint_is_skipped_for_the_one_before(model, straight, killed, tmp_path):
    arguments = grpo_arguments(model, tmp_path, name="run")
    killed(arguments, "sample", 8)  # after the checkpoints of steps 2 and 4
    newest = tmp_path / "run" / "checkpoints" / "step_000004"
    weights = newest / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8] + b"\0" * 8)
    assert main([*arguments, "--resume"]) == 0
    log = (tmp_path / "run" / "run.log").read_text()
    assert "step_000004 is damaged" in log
    assert "step_000002" in log
    same_end(straight("grpo"), tmp_path / "run")


def test_no_whole_checkpoint_is_an_error(model, tmp_path, capsys):
    arguments = sft_arguments(model, tmp_path, "max_steps=2", name="run")
    assert main(arguments) == 0
    shutil.rmtree(tmp_path / "run" / "final")
    for folder in (tmp_path / "run" / "checkpoints").iterdir():
        (folder / "optimizer.pt").unlink()
    assert main([*arguments, "--resume"]) == 1
    assert "is whole" in capsys.readouterr().err


def test_a_run_is_never_overwritten(model, tmp_path, capsys):
    arguments = sft_arguments(model, tmp_path, "max_steps=1", name="run")
    assert main(arguments) == 0
    assert main(arguments) == 2
    assert "--resume goes on with it" in capsys.readouterr().err


def test_a_full_disk_keeps_the_previous_checkpoint(model, straight, tmp_path, monkeypatch, capsys):
    import errno

    from workings.training import checkpointer

    saved, save = [], checkpointer.save_tensors

    def full_the_second_time(path, obj):
        if len(saved) == 1:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        saved.append(path)
        save(path, obj)

    monkeypatch.setattr(checkpointer, "save_tensors", full_the_second_time)
    arguments = sft_arguments(model, tmp_path, name="run")
    assert main(arguments) == 1
    assert "no space left on the disk" in capsys.readouterr().err
    kept = sorted(p.name for p in (tmp_path / "run" / "checkpoints").iterdir())
    assert kept == ["step_000002"]
    monkeypatch.setattr(checkpointer, "save_tensors", save)
    assert main([*arguments, "--resume"]) == 0
    same_end(straight("sft"), tmp_path / "run")
