"""The profile commands: a search by trials in a process of their own, its files, timed steps."""

from __future__ import annotations

import contextlib
import csv
import json
import multiprocessing
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch

from workings.cli.commands import profile_memory, profile_throughput
from workings.cli.main import main
from workings.cli.profile import memory_search
from workings.cli.profile.memory_files import TRIAL_COLUMNS
from workings.cli.profile.memory_search import search, variants
from workings.cli.profile.throughput import Spread, measure
from workings.cli.profile.trial import Trial, TrialProcess, _serve
from workings.config.dpo import DPOConfig
from workings.config.grpo import GRPOConfig
from workings.config.pipeline import PipelineConfig
from workings.config.sft import SFTConfig
from workings.errors import ConfigError, ModelError, TrainingError

MEBIBYTE = 2**20


def sft(model: Path | str = "tiny", **settings: Any) -> SFTConfig:
    return SFTConfig.model_validate(
        {
            "name": "r",
            "model": {"name_or_path": str(model), "device": "cpu"},
            "data": {"train": {"path": "arithmetic", "limit": 40}, "template": "question_only"},
            **settings,
        }
    )


class FakeProcess:
    """A device on which a batch fits if it has at most `budget` tokens; offloading doubles it."""

    made: list[Any] = []  # noqa: RUF012 - the tests read it

    def __init__(self, run: Any, *, limit_bytes: int | None, num_steps: int) -> None:
        self.budget = 4096 * (2 if run.optimizer.offload else 1)
        self.budget //= 4 if run.model.attention == "eager" else 1
        self.report = {"device": "fake", "num_parameters": 7, "held_bytes": MEBIBYTE}
        self.made.append((run, limit_bytes, num_steps))

    def __enter__(self) -> FakeProcess:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def trial(self, num_rows: int, length: int) -> Trial:
        fits = num_rows * length <= self.budget
        peak = num_rows * length * MEBIBYTE if fits else 0
        return Trial(num_rows=num_rows, length=length, fits=fits, peak_bytes=peak, step_seconds=0.5)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeProcess]:
    monkeypatch.setattr(memory_search, "TrialProcess", FakeProcess)
    FakeProcess.made.clear()
    return FakeProcess


def found_by(run: Any, lengths: list[int], **settings: Any) -> Any:
    [variant] = variants(run, compare=False)
    said: list[str] = []
    return search(
        variant,
        lengths,
        **{"most_rows": 64, "num_steps": 2, "limit_bytes": None, "say": said.append, **settings},
    )


def test_the_largest_batch_of_every_length(fake: Any) -> None:
    found = found_by(sft(), [2048, 100, 512, 8192])
    largest = {length: found.largest(length) for length in (100, 512, 2048, 8192)}
    assert {n: t and t.num_rows for n, t in largest.items()} == {
        100: 40,
        512: 8,
        2048: 2,
        8192: None,
    }
    # A longer row never allows more, so nothing beyond the last answer is tried.
    assert max(t.num_rows for t in found.trials if t.length == 2048) <= 8
    assert len(found.trials) < 30


def test_pairs_of_dpo_stay_together(fake: Any) -> None:
    run = DPOConfig.model_validate(
        {"name": "r", "model": {"name_or_path": "t"}, "data": {"train": {"path": "p"}}}
    )
    found = found_by(run, [700])
    assert {trial.num_rows % 2 for trial in found.trials} == {0}
    assert found.largest(700).num_rows == 4


def test_the_comparison_is_every_combination() -> None:
    compared = variants(sft(optimizer={"offload": True, "offload_gradients": True}), compare=True)
    assert len({variant.label for variant in compared}) == 8
    for variant in compared:
        optimizer = variant.run.optimizer
        assert optimizer.offload == variant.settings["optimizer.offload"]
        assert optimizer.offload_gradients == optimizer.offload
        type(variant.run).model_validate(variant.run.model_dump())


def test_files_and_figures_of_a_comparison(
    fake: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = sft(output_dir=str(tmp_path), batch={"microbatch_tokens": 8192})
    code = profile_memory.run(
        run, lengths=(512, 256), most_rows=32, num_steps=2, limit_gib=3.0, compare=True
    )
    assert code == 0
    folder = tmp_path / "r" / "profile" / "memory"
    with (folder / "trials.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert tuple(rows[0]) == TRIAL_COLUMNS
    assert {row["fits"] for row in rows} == {"true", "false"}
    lines = [json.loads(line) for line in (folder / "largest.jsonl").read_text().splitlines()]
    assert len(lines) == 16
    by_setting = {
        (line["optimizer"], line["attention"], line["sequence_length"]): line["max_batch_size"]
        for line in lines
        if line["activation_checkpointing"] == "none"
    }
    assert by_setting["adamw", "sdpa", 512] == 8
    assert by_setting["adamw offloaded", "sdpa", 512] == 16
    assert by_setting["adamw", "eager", 512] == 2
    assert {limit for _, limit, _ in fake.made} == {3 * 2**30}
    drawn = {path.name for path in folder.iterdir() if path.stat().st_size > 0}
    assert {f"batch_by_length_{n}.png" for n in range(1, 9)} <= drawn
    assert {f"batch_by_setting.{kind}" for kind in ("png", "svg", "pdf", "caption.txt")} <= drawn
    out = capsys.readouterr().out
    assert "offload=true, activation_checkpointing=none, attention=sdpa" in out
    assert "\nbatch.microbatch_tokens=4096 fits rows of up to 512 tokens\n" in out
    assert out.endswith("the run has batch.microbatch_tokens=8192\n")
    # Nothing that would keep a run of this name from starting.
    assert not (tmp_path / "r" / "config.yaml").exists()
    profile_memory.run(run, lengths=(512,), most_rows=4, num_steps=1, limit_gib=3.0, compare=False)
    assert len((folder / "largest.jsonl").read_text().splitlines()) == 17


def test_nothing_that_fits_is_0(fake: Any, tmp_path: Path, capsys: Any) -> None:
    run = sft(output_dir=str(tmp_path), batch={"microbatch_tokens": 8192})
    profile_memory.run(run, lengths=(9000,), most_rows=4, num_steps=1, limit_gib=1.0, compare=False)
    [line] = (tmp_path / "r/profile/memory/largest.jsonl").read_text().splitlines()
    assert json.loads(line)["max_batch_size"] == 0
    assert "not one row of 9000 tokens fits" in capsys.readouterr().out


def test_a_pipeline_has_no_step_of_its_own() -> None:
    run = PipelineConfig(
        sft=sft(name="a"),
        grpo=GRPOConfig(**{**sft().model_dump(include={"model", "data"}), "name": "b"}),
    )
    for command, settings in (
        (profile_memory.run, {"lengths": (), "most_rows": 1, "limit_gib": 1.0, "compare": False}),
        (profile_throughput.run, {"num_warmup": 0, "peak_tflops": None, "as_json": False}),
    ):
        with pytest.raises(ConfigError, match="a pipeline run"):
            command(run, num_steps=1, **settings)  # type: ignore[operator]


def test_the_command_line(fake: Any, tiny_folder: Path, tmp_path: Path, capsys: Any) -> None:
    arguments = ["-c", "sft", "name=r", f"output_dir={tmp_path}", "data.train.path=arithmetic"]
    arguments += [f"model.name_or_path={tiny_folder}", "model.device=cpu"]
    assert main(["profile", "memory", *arguments, "--lengths", "512", "--limit-gib", "1"]) == 0
    out = capsys.readouterr().out
    assert "batch.microbatch_tokens=4096" in out
    assert "the run as it is takes microbatches of 8,192 tokens" in out
    assert main(["profile", "memory", *arguments, "--lengths", "a,b"]) == 2
    assert "--lengths a,b; expected numbers above 1" in capsys.readouterr().err


@contextlib.contextmanager
def served(run: Any, *, limit_bytes: int | None = None) -> Iterator[Connection]:
    """The process's side in a thread, where nothing has to be imported again."""
    ours, theirs = multiprocessing.Pipe()
    thread = threading.Thread(target=_serve, args=(theirs, run, limit_bytes))
    thread.start()
    try:
        yield ours
    finally:
        ours.close()
        thread.join(30)
    assert not thread.is_alive()


@pytest.mark.parametrize("kind", ["sft", "grpo"])
def test_the_process_reports_and_makes_trials(kind: str, tiny_folder: Path) -> None:
    run: Any = sft(tiny_folder)
    if kind == "grpo":
        shared = run.model_dump(include={"name", "model", "data"})
        run = GRPOConfig.model_validate({**shared, "engine": {"max_batch_size": 4}})
    with served(run) as pipe:
        report = pipe.recv()
        assert report["fits"]
        assert report["num_trained"] == report["num_parameters"] > 20_000
        assert report["held_bytes"] > 0
        pipe.send((2, 16, 3))
        answer = pipe.recv()
        assert answer["fits"]
        assert answer["peak_bytes"] >= report["held_bytes"] // 2
        assert answer["step_seconds"] > 0


def test_a_step_that_runs_out_of_memory_does_not_fit(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*arguments: Any, **settings: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    with served(sft(tiny_folder)) as pipe:
        pipe.recv()
        monkeypatch.setattr("workings.training.step.response_scores", no_memory)
        pipe.send((2, 16, 1))
        assert pipe.recv() == {"fits": False}


def test_an_error_of_the_run_is_handed_on(tmp_path: Path) -> None:
    with served(sft(tmp_path / "none")) as pipe:
        error = pipe.recv()
    assert isinstance(error, ModelError)
    assert error.hint is not None


@pytest.mark.slow
def test_real_trials_under_a_limit(tiny_folder: Path) -> None:
    run = sft(tiny_folder)
    with TrialProcess(run, limit_bytes=None, num_steps=1) as process:
        small = process.trial(1, 16)
        assert small.fits
        assert small.peak_bytes >= process.report["held_bytes"]
        # 30,000 tokens cost about 100 MiB: a limit that is hit while the step computes.
        limit = small.peak_bytes + 40 * MEBIBYTE
        wide = process.trial(120, 250)
        assert wide.fits
        assert wide.peak_bytes > limit
        process._pipe.send("nonsense")  # type: ignore[union-attr]
        with pytest.raises(TrainingError, match=r"ended by itself \(exit code 1\)"):
            process.trial(1, 16)
    with TrialProcess(run, limit_bytes=limit, num_steps=1) as process:
        assert not process.trial(120, 250).fits
        again = process.trial(1, 16)
        assert again.fits
        assert again.peak_bytes < limit


# ------------------------------------------------------------------------------- throughput


def row(**values: float) -> dict[str, float]:
    return {
        "train/step_time": 10.0,
        "train/tokens_per_sec": 50.0,
        "train/model_flops": 8e12,
        "train/peak_memory_gb": 3.0,
        **values,
    }


def test_speeds_by_hand() -> None:
    rows = [
        row(**{"timing/rollout": 6.0, "timing/train": 4.0, "train/completion_length/mean": 30.0}),
        row(**{"timing/rollout": 5.0, "timing/train": 2.0, "train/completion_length/mean": 40.0}),
        row(**{"timing/rollout": 4.0, "timing/train": 1.0, "train/completion_length/mean": 10.0}),
    ]
    found = measure(rows, samples_per_step=16, peak_flops=1e13)
    assert found.train_tflops == Spread(median=4.0, low=2.0, high=8.0)
    assert found.mfu == Spread(median=0.4, low=0.2, high=0.8)
    assert found.sampled_tokens_per_second == Spread(median=80.0, low=40.0, high=128.0)
    assert found.phases["rollout"] == Spread(median=5.0, low=4.0, high=6.0)
    supervised = measure([row()], samples_per_step=0, peak_flops=None)
    assert supervised.mfu is None
    assert supervised.sampled_tokens_per_second is None
    assert supervised.phases == {"train": Spread(median=10.0, low=10.0, high=10.0)}
    assert supervised.train_tflops.median == 0.8


def test_real_steps_are_timed_and_nothing_is_saved(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        *("profile", "throughput", "-c", "grpo", "name=r", f"output_dir={tmp_path}"),
        *(f"model.name_or_path={tiny_folder}", "model.device=cpu", "data.train.path=arithmetic"),
        *("data.template=question_only", "reward.name=question_only", "prompts_per_step=2"),
        *("num_generations=2", "sampling.max_tokens=6", "batch.skip_zero_advantage=false"),
        *("tracking.console=false", "--steps", "2", "--warmup", "1", "--peak-tflops", "0.01"),
    ]
    assert main([*arguments, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result == json.loads((tmp_path / "r/profile/throughput.json").read_text())
    assert result["num_steps"] == 2
    assert set(result["phases"]) == {"rollout", "reward", "score", "train", "sync"}
    assert result["mfu"]["median"] == pytest.approx(result["train_tflops"]["median"] / 0.01)
    assert result["train_tflops"]["median"] > 0
    assert not list(tmp_path.rglob("*.safetensors"))
    assert not (tmp_path / "r" / "config.yaml").exists()
    assert main(arguments) == 0  # the steps of the first profile are replaced
    out = capsys.readouterr().out
    assert "sampled tokens/s" in out
    assert "MFU in training" in out
