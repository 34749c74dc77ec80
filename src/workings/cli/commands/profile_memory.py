"""`workings profile memory`: the largest microbatch that fits, by making real steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workings.cli.console import write_data, write_note
from workings.cli.folders import run_folder
from workings.cli.profile.heat_map import draw_batch_by_length, draw_batch_by_setting
from workings.cli.profile.memory_files import (
    TRIALS,
    append_largest,
    largest_table,
    short_label,
    write_trials,
)
from workings.cli.profile.memory_search import Found, search, variants
from workings.cli.profile.trial import ProfiledRun
from workings.config.dpo import DPOConfig
from workings.config.kinds import AnyRun, TrainingRun
from workings.errors import ConfigError
from workings.evaluation.plots_memory import LARGEST

MEMORY_FOLDER = "profile/memory"


def run(
    config: AnyRun,
    *,
    lengths: Sequence[int],
    most_rows: int,
    num_steps: int,
    limit_gib: float | None,
    compare: bool,
) -> int:
    """Search; the table goes to stdout, files and figures below the run's folder."""
    profiled = _profiled(config)
    folder = run_folder(profiled) / MEMORY_FOLDER
    limit_bytes = _limit(profiled, limit_gib)
    wanted = sorted(set(lengths)) or _lengths_of(profiled)
    founds: list[Found] = []
    for variant in variants(profiled, compare=compare):
        founds.append(
            search(
                variant,
                wanted,
                most_rows=most_rows,
                num_steps=num_steps,
                limit_bytes=limit_bytes,
                say=write_note,
            )
        )
        write_trials(folder / TRIALS, founds)
    append_largest(folder / LARGEST, founds, wanted)
    _draw(founds, wanted, profiled)
    write_data(largest_table(founds, wanted))
    write_data(_advice(founds[0], wanted))
    write_data(_settled(profiled, longest=max(wanted)))
    write_note(f"trials, rows and figures are in {folder}")
    return 0


def _profiled(config: AnyRun) -> ProfiledRun:
    if isinstance(config, TrainingRun | DPOConfig):
        return config
    raise ConfigError(
        f"a {config.kind} run has no training step of its own",
        hint="profile an sft, dpo, grpo or expert-iteration run",
    )


def _limit(config: ProfiledRun, limit_gib: float | None) -> int | None:
    """The limit in bytes; on a CPU without one it is the memory that is free now."""
    from workings.cli.doctor.memory import free_memory
    from workings.models.placement import choose_device

    if limit_gib is not None:
        return int(limit_gib * 2**30)
    if choose_device(config.model.device).device.type == "cuda":
        return None
    free, _ = free_memory("cpu")
    return free


def _lengths_of(config: Any) -> list[int]:
    """The longest row that the run allows, its half and its quarter."""
    prompt = config.data.max_prompt_length or 0
    response = config.data.max_response_length
    if hasattr(config, "sampling"):
        response = config.sampling.max_tokens
    longest = prompt + (response or 2048)
    return sorted({max(2, longest // 4), max(2, longest // 2), longest})


def _draw(founds: Sequence[Found], lengths: Sequence[int], config: ProfiledRun) -> None:
    folder = run_folder(config) / MEMORY_FOLDER
    for number, found in enumerate(founds, start=1):
        if not found.trials:
            continue
        name = "batch_by_length" if len(founds) == 1 else f"batch_by_length_{number}.png"
        draw_batch_by_length(
            found, lengths, folder / name, title=f"Peak memory, GiB: {short_label(found)}"
        )
    if len(founds) > 1:
        draw_batch_by_setting(
            founds, lengths, folder / "batch_by_setting", title="Largest microbatch"
        )


def _settled(config: ProfiledRun, *, longest: int) -> str:
    """What the run takes where it is left as it is."""
    from workings.cli.doctor.memory import training_memory
    from workings.cli.doctor.model_files import read_model_files

    present = config.batch.microbatch_tokens
    if present != "auto":
        return f"the run has batch.microbatch_tokens={present}"
    prompt = config.data.max_prompt_length or longest
    found = training_memory(
        read_model_files(config.model), config, longest_prompt=prompt, longest_row=longest
    )
    return f"the run as it is takes {found.choice}"


def _advice(found: Found, lengths: Sequence[int]) -> str:
    best = found.largest(max(lengths))
    if best is None:
        return f"not one row of {max(lengths)} tokens fits; see `workings doctor` for the parts"
    return f"batch.microbatch_tokens={best.num_tokens} fits rows of up to {max(lengths)} tokens"
