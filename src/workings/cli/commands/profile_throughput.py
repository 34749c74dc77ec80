"""`workings profile throughput`: a few real steps of a run, timed; nothing is saved."""

from __future__ import annotations

import json
import shutil
from typing import Any

import torch

from workings.cli.console import write_data, write_note
from workings.cli.folders import run_folder
from workings.cli.grpo_runs import run_grpo
from workings.cli.preference_runs import run_dpo
from workings.cli.profile.throughput import measure, throughput_table
from workings.cli.runs import run_sft
from workings.config.dpo import DPOConfig
from workings.config.grpo import GRPOConfig
from workings.config.kinds import AnyRun
from workings.config.sft import SFTConfig
from workings.errors import ConfigError
from workings.models.placement import choose_device
from workings.tracking.environment import environment_report
from workings.tracking.jsonl import FILE_NAME, read_metrics
from workings.training.flops import peak_flops

STEPS_FOLDER, RESULT = "profile/throughput", "profile/throughput.json"


def run(
    config: AnyRun, *, num_steps: int, num_warmup: int, peak_tflops: float | None, as_json: bool
) -> int:
    """Time the steps; the table or the JSON goes to stdout, the JSON into the run's folder too."""
    timed = _timed(config, num_warmup + num_steps)
    shutil.rmtree(run_folder(timed), ignore_errors=True)  # that of an earlier profile
    if isinstance(timed, GRPOConfig):
        run_grpo(timed)
    elif isinstance(timed, SFTConfig):
        run_sft(timed)
    else:
        run_dpo(timed)
    rows = [r for r in read_metrics(run_folder(timed) / FILE_NAME) if r["kind"] == "train"]
    measured = rows[num_warmup:]
    if not measured:
        raise ConfigError(
            f"the run ended after {len(rows)} steps, and {num_warmup} of them are warm-up",
            hint="give it more rows, or lower --warmup",
        )
    peak, device = _peak(timed.model.device, peak_tflops)
    samples = timed.rollout_batch_size if isinstance(timed, GRPOConfig) else 0
    found = measure(measured, samples_per_step=samples, peak_flops=peak)
    result = {
        "run": timed.kind,
        "model": timed.model.name_or_path,
        "device": device,
        "peak_tflops": None if peak is None else peak / 1e12,
        "num_warmup": num_warmup,
        **found.to_json(),
        "environment": environment_report(),
    }
    target = run_folder(config) / RESULT  # type: ignore[arg-type]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    write_data(json.dumps(result, indent=2) if as_json else throughput_table(found))
    if peak is None:
        write_note(f"the peak of {device} is not known, so there is no MFU; give --peak-tflops")
    if not any(row["train/model_flops"] for row in measured):
        write_note(
            "no row had an advantage, so nothing was trained; batch.skip_zero_advantage=false "
            "trains every row all the same"
        )
    write_note(f"stored in {target}")
    return 0


def _timed(config: AnyRun, num_steps: int) -> SFTConfig | GRPOConfig | DPOConfig:
    """The run with so many steps, nothing evaluated and nothing saved, beside the run itself."""
    if not isinstance(config, SFTConfig | GRPOConfig | DPOConfig):
        raise ConfigError(
            f"a {config.kind} run is not timed by steps", hint="profile an sft, dpo or grpo run"
        )
    never: dict[str, Any] = {"every_steps": 0, "at_start": False, "at_end": False}
    changes: dict[str, Any] = {
        "name": f"{config.name}/{STEPS_FOLDER}",
        "max_steps": num_steps,
        "evaluation": config.evaluation.model_copy(update=never),
        "checkpoint": config.checkpoint.model_copy(update={"every_steps": 0, "at_end": False}),
        "tracking": config.tracking.model_copy(update={"wandb": False, "tensorboard": False}),
    }
    if not isinstance(config, GRPOConfig):
        changes["max_seconds"] = None
    return config.model_copy(update=changes)


def _peak(name: str, peak_tflops: float | None) -> tuple[float | None, str]:
    """The device's peak in FLOP/s, as given or as known, and what the device is."""
    device = choose_device(name).device
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU"
    if peak_tflops is not None:
        return peak_tflops * 1e12, card
    return (peak_flops(card) if device.type == "cuda" else None), card
