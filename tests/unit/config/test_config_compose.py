"""Composition: files left to right, groups, overrides, older values, and every message."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra.core.global_hydra import GlobalHydra

from workings.config import compose as compose_module
from workings.config.compose import Composer, compose, compose_dict, compose_with_notes
from workings.config.grpo import GRPOConfig
from workings.config.kinds import RUN_TYPES
from workings.config.sft import SFTConfig
from workings.errors import ConfigError

Write = Callable[[str, str], str]

MINIMAL = """
kind: grpo
name: mine
model: {name_or_path: a/b}
data: {train: {path: rows.jsonl}}
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, text: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


def _error(names: list[str], overrides: list[str], kind: str = "grpo") -> str:
    with pytest.raises(ConfigError) as caught:
        compose(names, overrides, kind=kind)
    return str(caught.value)


# ---------------------------------------------------------------------------- several of one


def test_files_are_read_once_for_runs_that_differ_in_overrides(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write("mine.yaml", MINIMAL + "lr: 1e-5\n")
    first = ["seed=1", "data.train.limit=3", "sampling.stop=[a]"]
    overrides = [first, ["max_steps=2"], ["objective=dapo"], ["objective=dapo", "seed=2"]]
    alone = [compose_with_notes([file], some, kind="grpo") for some in overrides]
    calls = []

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return _call_hydra(*arguments)

    _call_hydra = compose_module._call_hydra
    monkeypatch.setattr(compose_module, "_call_hydra", counted)
    composer = Composer([file], kind="grpo")
    Path(file).write_text("no longer read")
    assert [composer.compose(some) for some in overrides] == alone
    assert len(calls) == 2  # as written, and with the other objective
    assert alone[0].notes == (f"{file}: lr is read as optimizer.learning_rate=1e-05",)


# ------------------------------------------------------------------------------------- files


def test_a_file_without_defaults_stands_alone(write: Write) -> None:
    run = compose([write("mine.yaml", MINIMAL)], kind="grpo")
    assert isinstance(run, GRPOConfig)
    assert run.model.name_or_path == "a/b"
    assert run.max_steps == 200


def test_without_a_file_the_shipped_default_is_taken() -> None:
    assert compose([], kind="sft") == compose(["sft"], kind="sft")


def test_a_file_uses_the_packages_configurations_and_groups(write: Write) -> None:
    text = "defaults: [cs336_grpo, {override model: smollm2}, _self_]\nmax_steps: 3\n"
    run = compose([write("mine.yaml", text)], kind="grpo")
    assert (run.model.name_or_path, run.max_steps, run.num_generations) == ("smollm2", 3, 8)


def test_a_file_uses_groups_in_its_own_folder_and_they_come_first(write: Write) -> None:
    write("model/mine.yaml", "name_or_path: own/model\n")
    write("model/smollm2.yaml", "name_or_path: own/smollm2\n")
    mine = write("mine.yaml", "defaults: [{model: mine}, {data: gsm8k}]\nname: x\n")
    assert compose([mine], kind="grpo").model.name_or_path == "own/model"
    assert compose([mine], ["model=smollm2"], kind="grpo").model.name_or_path == "own/smollm2"
    assert compose([mine], ["model=qwen3-4b-base"], kind="grpo").data.train.path == "openai/gsm8k"


def test_later_files_refine_earlier_ones(write: Write) -> None:
    first = write("first.yaml", MINIMAL + "max_steps: 10\nseed: 1\n")
    second = write("second.yaml", "max_steps: 20\ndata: {template: think}\n")
    third = write("third.yaml", "seed: 0\n")
    run = compose([first, second, third], kind="grpo")
    assert (run.max_steps, run.seed, run.data.template) == (20, 0, "think")
    assert run.data.train.path == "rows.jsonl"


def test_groups_of_a_later_file_are_chosen_like_on_the_command_line(write: Write) -> None:
    second = write("second.yaml", "defaults: [{model: qwen3-4b-base}, {tracker: wandb}]\n")
    run = compose(["quickstart", second], kind="grpo")
    assert (run.model.name_or_path, run.tracking.wandb) == ("Qwen/Qwen3-4B-Base", True)
    run = compose(["quickstart", second], ["model=smollm2"], kind="grpo")
    assert run.model.name_or_path == "smollm2"


def test_a_whole_run_in_a_later_file_is_refused_with_what_to_do(write: Write) -> None:
    assert _error(["grpo", write("mine.yaml", "defaults: [grpo, _self_]\nkind: grpo\n")], []) == (
        "model appears more than once in the final defaults list\n\n"
        "hint: give one whole run, by the first -c or in the 'defaults' of that file alone"
    )


def test_the_tag_pipeline_teaches_the_tags_and_evaluates_every_20_steps() -> None:
    run = compose(["tags_pipeline"], kind="pipeline")
    for phase in (run.sft, run.grpo):
        assert (phase.data.template, phase.reward.name) == ("tags", "tags")
    assert run.sft.epochs == 2
    assert run.grpo.evaluation.every_steps == 20


def test_a_later_file_may_include_a_plain_one(write: Write) -> None:
    write("length.yaml", "sampling: {max_tokens: 7}\n")
    second = write("second.yaml", "defaults: [length, _self_]\nmax_steps: 1\n")
    run = compose(["quickstart", second], kind="grpo")
    assert (run.sampling.max_tokens, run.max_steps) == (7, 1)


def test_a_folder_may_be_called_anything(write: Write) -> None:
    write("my runs, v2 (a=b) #1 100%/model/own.yaml", "name_or_path: own\n")
    mine = write("my runs, v2 (a=b) #1 100%/mine.yaml", "defaults: [{model: own}, {data: gsm8k}]\n")
    assert compose([mine], ["name=x"], kind="grpo").model.name_or_path == "own"


def test_a_folder_of_a_run_stands_for_its_resolved_configuration(
    write: Write, tmp_path: Path
) -> None:
    write("runs/x/config.yaml", MINIMAL)
    assert compose([str(tmp_path / "runs" / "x")], kind="grpo").name == "mine"


def test_interpolations_are_resolved_after_everything_is_merged(write: Write) -> None:
    mine = write("mine.yaml", MINIMAL + "output_dir: out/${name}/${seed}\n")
    assert compose([mine], ["seed=3", "name=n"], kind="grpo").output_dir == "out/n/3"


def test_a_user_may_include_a_shipped_run_of_a_folder(write: Write) -> None:
    mine = write("mine.yaml", "defaults: [quickstart/grpo, _self_]\nmax_steps: 1\n")
    run = compose([mine], ["model=qwen3-0.6b-base"], kind="grpo")
    assert (run.name, run.max_steps) == ("quickstart/grpo", 1)
    assert run.model.name_or_path == "Qwen/Qwen3-0.6B-Base"
    write("runs/long.yaml", MINIMAL)
    mine = write("mine.yaml", "defaults: [runs/long, _self_]\nmax_steps: 1\n")
    assert compose([mine], kind="grpo").name == "mine"


# --------------------------------------------------------------------------------- overrides


def test_overrides_win_and_zero_is_honoured() -> None:
    run = compose(
        ["quickstart"],
        ["optimizer.learning_rate=0", "max_steps=0", "evaluation.limit=null", "seed=0"],
        kind="grpo",
    )
    assert (run.optimizer.learning_rate, run.max_steps, run.evaluation.limit) == (0, 0, None)


def test_a_null_section_can_be_opened_and_closed() -> None:
    run = compose(["quickstart"], ["model.lora.rank=8"], kind="sft")
    assert run.model.lora is not None
    assert (run.model.lora.rank, run.model.lora.alpha) == (8, 64.0)
    run = compose(["tags_pipeline"], ["grpo.model.lora=null"], kind="pipeline").grpo
    assert run.model.lora is None


def test_mappings_merge_and_lists_replace() -> None:
    run = compose(
        ["quickstart"],
        ["data.train.options={num_problems: 5}", "sampling.stop=[]"],
        kind="grpo",
    )
    assert run.data.train.options["num_problems"] == 5
    assert run.data.train.options["operands"] == [1, 9]
    assert run.sampling.stop == ()


def test_a_removal_gives_the_default_back() -> None:
    assert compose(["cs336_grpo"], ["~sampling.min_tokens"], kind="grpo").sampling.min_tokens == 0
    assert compose(["quickstart"], ["~reward"], kind="grpo").reward.name == "r1_zero"
    assert _error(["quickstart"], ["~model.lora"]) == (
        "~model.lora: no file sets it, so there is nothing to remove"
    )
    assert _error(["quickstart"], ["~tracker"]) == (
        "~tracker: no file chooses one, so there is nothing to remove"
    )


def test_a_group_that_no_file_chooses_is_added() -> None:
    run = compose(["quickstart"], ["tracker=[wandb_offline,tensorboard]"], kind="sft")
    assert (run.tracking.wandb, run.tracking.wandb_mode) == (True, "offline")
    assert run.tracking.tensorboard


def test_groups_of_a_pipeline_are_chosen_for_both_phases_or_for_one() -> None:
    both = compose(["quickstart"], ["model=qwen3-0.6b-base", "tracker=wandb"], kind="pipeline")
    assert both.sft.model == both.grpo.model
    assert both.sft.tracking.wandb
    assert both.grpo.tracking.wandb
    one = compose(["quickstart"], ["model@grpo.model=qwen3-0.6b-base"], kind="pipeline")
    assert (one.sft.model.name_or_path, one.grpo.model.name_or_path) == (
        "smollm2",
        "Qwen/Qwen3-0.6B-Base",
    )


def test_evaluation_stays_greedy_when_another_of_its_settings_is_given() -> None:
    run = compose(["quickstart"], ["evaluation.sampling.max_tokens=9"], kind="grpo")
    assert run.evaluation.sampling.temperature == 0
    assert compose([], ["sampling.top_k=5"], kind="eval").sampling.temperature == 0


def test_composed_values_before_the_models_fill_in_defaults(write: Write) -> None:
    values = compose_dict([write("mine.yaml", MINIMAL)], ["max_steps=1"], kind="grpo")
    assert values == {
        "kind": "grpo",
        "name": "mine",
        "model": {"name_or_path": "a/b"},
        "data": {"train": {"path": "rows.jsonl"}},
        "max_steps": 1,
    }


# ----------------------------------------------------------------------------- earlier names


def test_an_experiment_file_of_an_earlier_program_is_read(write: Write) -> None:
    text = """
model_name: Qwen/Qwen2.5-Math-1.5B
run_name: unique_256
sft_data_path: data/MATH/sft.jsonl
unique_train_examples: 256
batch_size: 4
gradient_accumulation_steps: 8
val_every_steps: 50
learning_rate: 1.0e-5
"""
    composed = compose_with_notes([write("unique_256.yaml", text)], kind="sft")
    run = composed.run
    assert isinstance(run, SFTConfig)
    assert (run.data.train.path, run.data.train.limit) == ("data/MATH/sft.jsonl", 256)
    assert (run.batch_size, run.batch.microbatch_rows, run.evaluation.every_steps) == (32, 4, 50)
    assert run.optimizer.learning_rate == 1e-5
    assert [note.split(": ", 1)[-1] for note in composed.notes] == [
        "model_name is read as model.name_or_path=Qwen/Qwen2.5-Math-1.5B",
        "run_name is read as name=unique_256",
        "sft_data_path is read as data.train.path=data/MATH/sft.jsonl",
        "unique_train_examples is read as data.train.limit=256",
        "val_every_steps is read as evaluation.every_steps=50",
        "learning_rate is read as optimizer.learning_rate=1e-05",
        "batch_size=32 (batch_size=4 x 8 accumulation steps)",
        "batch.microbatch_rows=4 (batch_size=4 x 8 accumulation steps)",
    ]


def test_overrides_with_earlier_names() -> None:
    composed = compose_with_notes(
        ["cs336_grpo"],
        ["group_size=16", "cliprange=0.1", "loss_type=grpo_clip", "unique_train_examples=all"],
        kind="grpo",
    )
    run = composed.run
    assert isinstance(run, GRPOConfig)
    assert (run.num_generations, run.objective.epsilon) == (16, 0.1)
    assert (run.objective.preset, run.data.train.limit) == ("grpo_clip", None)
    assert composed.notes == (
        "group_size is read as num_generations=16",
        "cliprange is read as objective.epsilon=0.1",
        "loss_type is read as objective.preset=grpo_clip",
        "unique_train_examples is read as data.train.limit=null",
    )


def test_the_command_line_wins_over_an_older_value_of_a_file(write: Write) -> None:
    mine = write("mine.yaml", MINIMAL + "rollout_batch_size: 64\n")
    assert compose([mine], kind="grpo").prompts_per_step == 8
    assert compose([mine], ["prompts_per_step=3"], kind="grpo").prompts_per_step == 3
    assert compose([mine], ["num_generations=16"], kind="grpo").prompts_per_step == 4
    assert _error([mine], ["prompts_per_step=3", "rollout_batch_size=256"]) == (
        "prompts_per_step=3 disagrees with rollout_batch_size=256 / num_generations=8, which is "
        "prompts_per_step=32\n\nhint: give one of them"
    )


def test_older_values_inside_a_pipeline() -> None:
    run = compose(
        ["tags_pipeline"],
        ["sft_training.gradient_accumulation_steps=4", "grpo_training.rollout_batch_size=8"],
        kind="pipeline",
    )
    assert (run.sft.batch_size, run.sft.batch.microbatch_rows) == (4, 1)
    assert run.grpo.prompts_per_step == 4


def test_one_limit_for_every_data_set_of_an_evaluation() -> None:
    run = compose([], ["datasets=[gsm8k,aime24]", "limit=7"], kind="eval")
    assert [data.limit for data in run.datasets] == [7, 7]


def test_names_that_disagree_in_one_file(write: Write) -> None:
    mine = write("mine.yaml", MINIMAL + "group_size: 4\nnum_generations: 8\n")
    assert _error([mine], []) == (
        f"{mine}: num_generations=8 and group_size=4 both set num_generations\n\n"
        "hint: keep one of them"
    )


# ---------------------------------------------------------------------------------- messages


def test_one_line_for_every_problem() -> None:
    overrides = ["optimizer.learning_rate=fast", "sampling.top_p=2", "model.dtype=fp64"]
    assert _error(["quickstart"], overrides) == (
        "3 settings cannot be used:\n"
        "  model.dtype='fp64'; expected one of auto, float32, bfloat16\n"
        "  sampling.top_p=2; expected a number, above 0, at most 1\n"
        "  optimizer.learning_rate='fast'; expected a number, at least 0"
    )


def test_unknown_keys_of_a_file_and_of_an_override(write: Write) -> None:
    mine = write("mine.yaml", MINIMAL + "optimizer: {learning_rat: 1.0}\n")
    expected = (
        "unknown key 'optimizer.learning_rat'; did you mean 'optimizer.learning_rate'?\n\n"
        "hint: `workings grpo --help` lists every setting"
    )
    assert _error([mine], []) == expected
    assert _error(["quickstart"], ["optimizer.learning_rat=1"]) == expected


def test_cross_field_rules_come_through_unchanged() -> None:
    assert _error(["quickstart"], ["num_generations=1"]) == (
        "num_generations=1 but the advantage 'group' compares the samples of one prompt and is "
        "undefined for one\n\n"
        "hint: set num_generations to 2 or more, or objective.preset=no_baseline"
    )


def test_messages_about_files(write: Write, tmp_path: Path) -> None:
    assert _error(["cs336_sft"], []) == (
        "'cs336_sft' describes a run of kind 'sft', not 'grpo'\n\nhint: workings sft -c cs336_sft"
    )
    hydra = write("hydra.yaml", MINIMAL + "hydra: {run: {dir: x}}\n")
    assert _error([hydra], []) == (
        f"{hydra}: the section 'hydra' has no effect here\n\n"
        "hint: remove it; output_dir and name say where a run is written"
    )
    open_end = write("open.yaml", 'kind: grpo\nname: x\nmodel: {name_or_path: "???"}\n')
    assert _error([open_end], []) == "model.name_or_path is not set: a file leaves it open (???)"
    nowhere = write("nowhere.yaml", MINIMAL + "output_dir: ${nope}\n")
    assert _error([nowhere], []) == "output_dir: Interpolation key 'nope' not found"
    group = write("group.yaml", "defaults: [{engine: nope}]\nkind: grpo\n")
    assert _error([group], []) == (
        "unknown engine 'nope'; Known: auto, transformers\n\n"
        "hint: it stands in the 'defaults' of a file"
    )
    assert _error(["quickstart", group], []) == (
        "unknown engine 'nope'; Known: auto, transformers\n\n"
        "hint: anything else is set as engine.name=nope"
    )
    include = write("include.yaml", "defaults: [nope]\nkind: grpo\n")
    assert _error([include], []).startswith("unknown configuration 'nope'; ")
    twice = write("twice.yaml", "defaults: [grpo, {model: smollm2}]\n")
    assert _error([twice], []) == (
        "Multiple values for model. To override a value use 'override model: smollm2'"
    )


def test_an_unknown_kind() -> None:
    assert _error([], [], kind="grop") == (
        "unknown kind of run 'grop'; did you mean 'grpo'? Known: " + ", ".join(sorted(RUN_TYPES))
    )


# ------------------------------------------------------------------------------------- state


def test_nothing_of_hydra_is_left_behind(write: Write) -> None:
    before = Path.cwd()
    compose(["quickstart"], ["model=qwen3-0.6b-base"], kind="grpo")
    _error([write("bad.yaml", "defaults: [nope]\n")], [])
    assert not GlobalHydra.instance().is_initialized()
    assert Path.cwd() == before


def test_several_threads_may_compose_at_once() -> None:
    found: dict[int, int] = {}

    def one(seed: int) -> None:
        found[seed] = compose(["quickstart"], [f"seed={seed}"], kind="grpo").seed

    threads = [threading.Thread(target=one, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {seed: seed for seed in range(8)}
