"""Values of earlier programs that mean something only together with other settings.

`gradient_accumulation_steps` is the usual example: the rows of one optimizer step are a setting
here, how they are cut is `batch`. `settle` runs after everything is composed, so a file and the
command line may each give one half of such a pair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from workings.config.older_luffy import LUFFY_RULES
from workings.config.older_objective import OBJECTIVE_RULES
from workings.config.settled import Given, Settled
from workings.config.trees import put
from workings.errors import ConfigError


def settle(older: Mapping[str, Any], values: Mapping[str, Any], kind: str) -> list[Settled]:
    """The settings that earlier values stand for; a rule sees what the rules before it found."""
    around = deepcopy(dict(values))
    found: list[Settled] = []
    for rule in _RULES[kind]:
        given = Given(older, around, kind)
        for settled in rule(given):
            put(around, settled.path, settled.value)
            found.append(replace(settled, names=tuple(given.used)))
    return found


def _sft_rows(given: Given) -> list[Settled]:
    """rows of a step = rows of a forward pass x accumulation steps."""
    if "rows_per_forward" not in given and "accumulation" not in given:
        return []
    steps = (
        given.whole("accumulation", "gradient_accumulation_steps") if "accumulation" in given else 1
    )
    if "rows_per_forward" in given:
        rows = given.whole("rows_per_forward", "per_device_train_batch_size")
        source = f"{rows} rows per forward pass x {steps} accumulation steps"
    else:
        rows = given.setting("batch_size")
        source = f"batch_size={rows} x {steps} accumulation steps"
    return [
        Settled(
            path="batch_size",
            value=rows * steps,
            source=source,
            scales="rows_per_forward" not in given,
        ),
        Settled(path="batch.microbatch_rows", value=rows, source=source),
    ]


def _dpo_rows(given: Given) -> list[Settled]:
    """As for SFT, in pairs, of which each is two rows of a forward pass."""
    return [
        replace(each, value=2 * each.value, source=f"2 responses a pair, {each.source}")
        if each.path == "batch.microbatch_rows"
        else each
        for each in _sft_rows(given)
    ]


def _grpo_rows(given: Given) -> list[Settled]:
    """With rows per forward pass, their product is the rollout batch; else the batch is cut."""
    if "rows_per_forward" in given:
        return _grpo_rows_from_forward(given)
    if "accumulation" not in given:
        return []
    steps = given.whole("accumulation", "gradient_accumulation_steps")
    rollout = given.setting("prompts_per_step") * given.setting("num_generations")
    update = given.setting("train_batch_size") or rollout
    if update % steps:
        raise ConfigError(
            f"gradient_accumulation_steps={steps} does not divide the {update} rows of an update",
            hint="the rows of an update are train_batch_size, or prompts_per_step * "
            "num_generations if that is not set",
        )
    source = f"{update} rows of an update / {steps} accumulation steps"
    return [Settled(path="batch.microbatch_rows", value=update // steps, source=source)]


def _grpo_rows_from_forward(given: Given) -> list[Settled]:
    rows = given.whole("rows_per_forward", "per_device_train_batch_size")
    steps = (
        given.whole("accumulation", "gradient_accumulation_steps") if "accumulation" in given else 1
    )
    samples = given.setting("num_generations")
    if rows * steps % samples:
        raise ConfigError(
            f"per_device_train_batch_size * gradient_accumulation_steps = {rows} * {steps} = "
            f"{rows * steps} must be a multiple of num_generations={samples}, so that no group is "
            "split over two updates"
        )
    source = f"{rows} rows per forward pass x {steps} accumulation steps"
    return [
        Settled(path="prompts_per_step", value=rows * steps // samples, source=source),
        Settled(path="batch.microbatch_rows", value=rows, source=source),
    ]


def _grpo_rollout(given: Given) -> list[Settled]:
    if "rollout_rows" not in given:
        return []
    rows = given.whole("rollout_rows", "rollout_batch_size")
    samples = given.setting("num_generations")
    if rows % samples:
        raise ConfigError(
            f"rollout_batch_size={rows} must be a multiple of num_generations={samples}"
        )
    source = f"rollout_batch_size={rows} / num_generations={samples}"
    return [Settled(path="prompts_per_step", value=rows // samples, source=source)]


def _grpo_update(given: Given) -> list[Settled]:
    if "prompts_per_update" not in given:
        return []
    prompts = given.whole("prompts_per_update", "ppo_mini_batch_size")
    samples = given.setting("num_generations")
    source = f"{prompts} prompts x num_generations={samples}"
    return [Settled(path="train_batch_size", value=prompts * samples, source=source)]


def _total_length(path: str, prompt_path: str) -> Callable[[Given], list[Settled]]:
    def rule(given: Given) -> list[Settled]:
        if "max_length" not in given:
            return []
        total = given.whole("max_length", "max_seq_length")
        prompt = given.setting(prompt_path)
        if prompt is None:
            raise ConfigError(
                f"max_seq_length={total} limits prompt and response together, which are two limits "
                "here",
                hint=f"set {prompt_path} as well, or set {path} instead",
            )
        if not isinstance(prompt, int) or total <= prompt:
            raise ConfigError(
                f"max_seq_length={total} leaves no room for a response after {prompt_path}={prompt}"
            )
        source = f"max_seq_length={total} - {prompt_path}={prompt}"
        return [Settled(path=path, value=total - prompt, source=source)]

    return rule


def _train_share(given: Given) -> list[Settled]:
    if "train_share" not in given:
        return []
    share = given.raw("train_share")
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise ConfigError(
            f"train_validation_split={share!r}; expected a number, above 0, at most 1"
        )
    return [
        Settled(
            path="data.validation_fraction",
            value=round(1 - share, 12),
            source=f"train_validation_split={share:g}",
        )
    ]


_RULES: dict[str, tuple[Callable[[Given], list[Settled]], ...]] = {
    "sft": (
        _sft_rows,
        _total_length("data.max_response_length", "data.max_prompt_length"),
        _train_share,
    ),
    "dpo": (
        _dpo_rows,
        _total_length("data.max_response_length", "data.max_prompt_length"),
        _train_share,
    ),
    "grpo": (
        _grpo_rollout,
        _grpo_rows,
        _grpo_update,
        *OBJECTIVE_RULES,
        *LUFFY_RULES,
        _total_length("sampling.max_tokens", "data.max_prompt_length"),
        _train_share,
    ),
    "expert-iteration": (
        _sft_rows,
        _total_length("sampling.max_tokens", "data.max_prompt_length"),
        _train_share,
    ),
    "sample": (),
    "serve": (),
    "eval": (_total_length("sampling.max_tokens", "max_prompt_length"),),
}
