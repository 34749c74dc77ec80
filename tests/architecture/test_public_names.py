"""The public names: listed here, documented, and loaded on first use."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import workings

PUBLIC = (
    # records
    *(
        "Demonstration",
        "Grade",
        "Message",
        "PreferencePair",
    ),
    *(
        "Problem",
        "Prompt",
        "Rollout",
        "RolloutGroup",
    ),
    *(
        "Sample",
        "Verdict",
    ),
    # errors
    *(
        "AlreadyFinished",
        "CheckpointError",
        "ConfigError",
        "DataError",
    ),
    *(
        "EngineError",
        "GradingError",
        "ModelError",
        "StoppedBySignal",
    ),
    *(
        "TemplateError",
        "TrainingError",
        "WorkingsError",
    ),
    # configuration
    *(
        "compose",
        "dump_yaml",
    ),
    # data
    *(
        "BatchSampler",
        "Loaded",
        "PromptSampler",
        "PromptTemplate",
    ),
    *(
        "encode_demonstrations",
        "encode_preferences",
        "encode_prompts",
        "encode_traces",
    ),
    *(
        "load_demonstrations",
        "load_preferences",
        "load_problems",
        "load_template",
    ),
    *("teacher_traces",),
    # models
    *(
        "LoadedModel",
        "add_lora",
        "export_model",
        "load_model",
    ),
    *("named_full_weights",),
    # sampling
    *(
        "Engine",
        "PagedEngine",
        "ProcessEngine",
        "ReplayBuffer",
        "Request",
        "SamplingParams",
    ),
    *(
        "ScriptedEngine",
        "ServerEngine",
        "TransformersEngine",
        "VLLMEngine",
        "collect_groups",
        "mix_demonstrations",
    ),
    # grading
    *(
        "Grader",
        "GradingPolicy",
        "grade",
    ),
    # rewards
    *(
        "Component",
        "Reward",
        "TagRewards",
        "build_reward",
    ),
    *(
        "grade_groups",
        "question_only_reward_fn",
        "r1_zero_reward_fn",
    ),
    # objectives
    *(
        "StepTotals",
        "correction_weights",
        "gdpo_advantages",
        "group_advantages",
    ),
    *(
        "kl_penalty",
        "level_log_ratio",
        "mixed_loss",
        "preference_loss",
    ),
    *(
        "sft_loss",
        "surrogate_loss",
        "token_logprobs",
        "token_weights",
    ),
    *("weighted_loss",),
    # training
    *(
        "Checkpointer",
        "Guidance",
        "MicroBatch",
        "Reference",
    ),
    *(
        "Replay",
        "RunPaths",
        "StopRequest",
        "TrainResult",
    ),
    *(
        "TrainRow",
        "assign_credit",
        "build_adamw",
        "pack",
    ),
    *(
        "policy_gradient_loss",
        "policy_step",
        "score",
        "step_totals",
    ),
    *(
        "supervised_loss",
        "train_dpo",
        "train_expert_iteration",
        "train_grpo",
        "train_one_step_off",
    ),
    *("train_sft",),
    # evaluation
    *(
        "EvaluationResult",
        "evaluate",
        "filter_correct",
        "paired_difference",
    ),
    *(
        "pass_at_k",
        "wilson_interval",
    ),
    # tracking
    *(
        "Recorder",
        "read_metrics",
    ),
)


def undocumented(objects: dict[str, Any]) -> list[str]:
    """Names whose object has no docstring of its own."""
    inherited = {inspect.getdoc(object), inspect.getdoc(dict), inspect.getdoc(Exception)}
    return [
        name
        for name, value in objects.items()
        if value.__doc__ is None or value.__doc__ in inherited
    ]


def imported_for_types(source: str) -> dict[str, str]:
    """Name to module, of what a file imports under TYPE_CHECKING."""
    return {
        alias.name: node.module or ""
        for block in ast.walk(ast.parse(source))
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_the_list_is_what_the_package_says() -> None:
    assert tuple(workings.__all__) == PUBLIC


def test_every_public_name_is_documented() -> None:
    assert undocumented({name: getattr(workings, name) for name in PUBLIC}) == []


def test_every_name_comes_from_the_module_that_defines_it() -> None:
    for name in PUBLIC:
        value = getattr(workings, name)
        assert getattr(importlib.import_module(value.__module__), name) is value
        assert workings._PUBLIC[name] == value.__module__


def test_type_checkers_see_the_same_names() -> None:
    source = Path(workings.__file__).read_text(encoding="utf-8")
    assert imported_for_types(source) == workings._PUBLIC
    assert set(workings._PUBLIC) == set(PUBLIC)


def test_names_are_loaded_on_first_use() -> None:
    program = (
        "import sys, json, workings;"
        "before = [m for m in sys.modules if m.startswith('workings.')];"
        "workings.Problem; print(json.dumps([before, 'workings.types' in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [[], True]


def test_dir_lists_them_and_an_unknown_name_is_an_attribute_error() -> None:
    assert set(PUBLIC) <= set(dir(workings))
    with pytest.raises(AttributeError, match="module 'workings' has no attribute 'nope'"):
        _ = workings.nope


def test_every_earlier_name_is_there_and_documented_and_none_is_public() -> None:
    assert undocumented({name: getattr(workings, name) for name in workings._EARLIER}) == []
    assert not set(workings._EARLIER) & set(PUBLIC)


# --------------------------------------------------------------- the checkers, shown to fail


def test_a_missing_docstring_is_found() -> None:
    class Documented:
        """Said."""

    class Silent:
        pass

    assert undocumented({"Documented": Documented, "Silent": Silent}) == ["Silent"]


def test_imports_for_types_are_read_from_the_source() -> None:
    source = "from a import b\nif TYPE_CHECKING:\n    from c.d import e, f\n"
    assert imported_for_types(source) == {"e": "c.d", "f": "c.d"}
