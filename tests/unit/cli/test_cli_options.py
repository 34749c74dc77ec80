"""`--some-key value` means `some_key=value` for every setting of a run."""

from __future__ import annotations

import pytest

from workings.cli.options import overrides_from, with_resume_value
from workings.config.compose import compose
from workings.config.fields import settings_of
from workings.config.kinds import RUN_TYPES
from workings.config.overrides import read_overrides
from workings.errors import ConfigError


def _error(arguments: list[str], kind: str = "grpo") -> str:
    with pytest.raises(ConfigError) as caught:
        overrides_from(arguments, kind)
    return str(caught.value)


@pytest.mark.parametrize("kind", list(RUN_TYPES))
def test_an_option_is_an_override_for_every_setting(kind: str) -> None:
    """Both spellings, dashes and underscores, read to the same assignment."""
    for path, setting in settings_of(kind).items():
        if "*" in path or setting.section is not None or setting.open:
            continue
        value = "true" if setting.is_flag else "3"
        wanted = read_overrides([f"{path}={value}"], kind, []).assignments
        for name in (path, path.replace("_", "-")):
            for arguments in ([f"--{name}", value], [f"--{name}={value}"]):
                (new,) = read_overrides(overrides_from(arguments, kind), kind, []).assignments
                assert (new.path, new.value) == (wanted[0].path, wanted[0].value)


def test_overrides_pass_through_in_order() -> None:
    arguments = ["max_steps=3", "--seed", "1", "+model.lora.rank=8", "~data", "model=smollm2"]
    assert overrides_from(arguments, "grpo") == [
        *("max_steps=3", "seed=1", "+model.lora.rank=8", "~data", "model=smollm2")
    ]


def test_a_flag_may_stand_alone() -> None:
    assert overrides_from(["--skip-sft"], "pipeline") == ["skip-sft=true"]
    assert overrides_from(["--skip-sft", "max_steps=3"], "pipeline") == [
        *("skip-sft=true", "max_steps=3")
    ]
    assert overrides_from(["--skip-sft", "--skip-grpo", "false"], "pipeline") == [
        *("skip-sft=true", "skip-grpo=false")
    ]
    assert overrides_from(["--bf16", "--seed", "3"], "sft") == ["bf16=true", "seed=3"]


@pytest.mark.parametrize("value", ["-1", "-0.5", "0", "a=b", "a b"])
def test_a_value_may_look_like_anything_but_an_option(value: str) -> None:
    assert overrides_from(["--name", value], "grpo") == [f"name={value}"]


def test_a_group_may_be_an_option() -> None:
    overrides = overrides_from(["--model", "smollm2", "--tracker", "wandb"], "grpo")
    run = compose(["cs336_grpo"], overrides, kind="grpo")
    assert (run.model.name_or_path, run.tracking.wandb) == ("smollm2", True)


def test_the_options_of_earlier_programs() -> None:
    arguments = [
        *("--max-steps", "5", "--learning-rate", "1e-5", "--unique-train-examples", "128"),
        *("--group-size", "16", "--model_name_or_path", "a/b", "--temperature", "0.9"),
    ]
    run = compose(["cs336_grpo"], overrides_from(arguments, "grpo"), kind="grpo")
    assert (run.max_steps, run.optimizer.learning_rate, run.data.train.limit) == (5, 1e-5, 128)
    assert (run.num_generations, run.model.name_or_path) == (16, "a/b")
    assert run.sampling.temperature == 0.9


def test_messages() -> None:
    assert _error(["--max-stepz", "3", "--max-stepz"]).startswith("unknown key 'max-stepz'")
    assert _error(["--max-stepz"]) == (
        "unknown key 'max-stepz'; did you mean 'max_steps'?\n\n"
        "hint: `workings grpo --help` lists every setting"
    )
    assert _error(["--max-steps"]) == (
        "--max-steps has no value; expected a whole number, at least 0"
    )
    assert _error(["--max-steps", "--seed", "3"]).startswith("--max-steps has no value")
    assert (
        _error(["--group-size"]) == "--group-size has no value; expected a whole number, at least 1"
    )
    assert _error(["--gradient-accumulation-steps"]) == (
        "--gradient-accumulation-steps has no value"
    )
    assert _error(["-x"]) == (
        "unknown option '-x'\n\nhint: settings are written --key value or key=value"
    )


@pytest.mark.parametrize(
    ("given", "spelled"),
    [
        (["--resume"], ["--resume", "latest"]),
        (["--resume", "latest"], ["--resume", "latest"]),
        (["--resume", "runs/x"], ["--resume", "runs/x"]),
        (["--resume", "max_steps=3"], ["--resume", "latest", "max_steps=3"]),
        (["--resume", "--dry-run"], ["--resume", "latest", "--dry-run"]),
        (["--resume=runs/a=b"], ["--resume=runs/a=b"]),
        (["max_steps=3"], ["max_steps=3"]),
    ],
)
def test_resume_may_stand_alone(given: list[str], spelled: list[str]) -> None:
    assert with_resume_value(given) == spelled
