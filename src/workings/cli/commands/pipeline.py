"""`workings pipeline`: SFT, then GRPO from its result."""

from __future__ import annotations

import gc
from pathlib import Path

import torch

from workings.cli.console import write_data, write_note
from workings.cli.runs import run_grpo, run_sft
from workings.config.run import GRPOConfig, PipelineConfig
from workings.errors import AlreadyFinished, ConfigError


def run(config: PipelineConfig, *, resume: str | None) -> int:
    """Run both phases, or the one that is not skipped; the final model's folder goes to stdout."""
    final = Path(config.sft.output_dir).expanduser() / config.sft.name / "final"
    if not config.skip_sft:
        final = _sft_phase(config, resume)
    elif not final.is_dir():
        raise ConfigError(
            f"skip_sft is set, but SFT has saved nothing in {final}",
            hint="run it once without skip_sft, or set grpo.model.name_or_path and use "
            "workings grpo",
        )
    if not config.skip_grpo:
        _, final = run_grpo(after_sft(config.grpo, final), resume=_started(config.grpo, resume))
    write_data(str(final))
    return 0


def after_sft(grpo: GRPOConfig, final: Path) -> GRPOConfig:
    """The GRPO run that starts from what SFT saved: its model, or its adapter on the base."""
    if (final / "adapter_config.json").is_file():
        start = {"adapter": str(final)}
    else:
        start = {"name_or_path": str(final)}
    return grpo.model_copy(update={"model": grpo.model.model_copy(update=start)})


def _sft_phase(config: PipelineConfig, resume: str | None) -> Path:
    try:
        _, final = run_sft(config.sft, resume=_started(config.sft, resume))
    except AlreadyFinished as finished:
        write_note(str(finished.message))
        final = Path(config.sft.output_dir).expanduser() / config.sft.name / "final"
    # The phases share no tensors: what SFT held is given back before GRPO loads its model.
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return final


def _started(phase: object, resume: str | None) -> str | None:
    """Resume a phase only where it has been started."""
    folder = Path(phase.output_dir).expanduser() / phase.name  # type: ignore[attr-defined]
    return resume if (folder / "config.yaml").is_file() else None
