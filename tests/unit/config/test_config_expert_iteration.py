"""Settings of expert iteration: defaults, refusals, earlier names, and the evaluation it does."""

from __future__ import annotations

from ast import literal_eval
from typing import Any

import pytest

from workings.config.aliases import ALIASES
from workings.config.compose import compose, compose_with_notes
from workings.config.dump import dump_yaml
from workings.config.evaluation_of_run import evaluation_of, validation_dataset
from workings.config.expert_iteration import ExpertIterationConfig
from workings.config.kinds import SamplingRun, TrainingRun
from workings.config.older import settle
from workings.config.overrides import read_overrides
from workings.config.sources import shipped_names
from workings.errors import ConfigError

KIND = "expert-iteration"
BASE: dict[str, Any] = {
    "name": "run",
    "model": {"name_or_path": "m"},
    "data": {"train": {"path": "p"}},
}


def config(**values: Any) -> ExpertIterationConfig:
    return ExpertIterationConfig.model_validate({**BASE, **values})


def test_defaults() -> None:
    run = config()
    assert (run.kind, run.iterations, run.sampling.min_tokens, run.keep_above) == (KIND, 5, 4, 0.0)
    assert (run.loss, run.drop_duplicates, run.max_kept_per_question) == ("nll", True, None)
    assert isinstance(run, TrainingRun)
    assert isinstance(run, SamplingRun)


def test_min_tokens_is_four_also_where_other_sampling_is_given() -> None:
    assert config(sampling={"max_tokens": 8}).sampling.min_tokens == 4


def test_sizes_of_a_round() -> None:
    run = config(questions_per_iteration=16, num_generations=3, batch_size=7)
    assert (run.rollout_batch_size, run.rows_per_update) == (48, 7)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"normalize_constant": 8},
            "normalize_constant=8 has no effect with loss=nll",
        ),
        (
            {"evaluation": {"every_steps": 5}},
            "evaluation.every_steps=5 has no effect here: every round ends with an evaluation",
        ),
        (
            {"evaluation": {"stop_metric": "accuracy", "stop_at": 0.5}},
            "evaluation.stop_metric ends SFT early and has no effect here",
        ),
        (
            {"data": {"train": {"path": "p"}, "max_response_length": 9}},
            "data.max_response_length=9 limits demonstrations and has no effect here",
        ),
        (
            {"sampling": {"temperature": 0}},
            "sampling.temperature=0 makes all num_generations=4 samples of a question the same",
        ),
        (
            {"tracking": {"save_rollouts_every": 3}},
            "tracking.save_rollouts_every=3; a round's samples are stored (1) or not (0)",
        ),
    ],
)
def test_settings_that_would_not_be_read_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(**values)
    assert caught.value.message == message


def test_what_is_close_to_a_refusal_is_accepted() -> None:
    config(normalize_constant=8, loss="seq_sum")
    config(sampling={"temperature": 0}, num_generations=1)
    config(sampling={"top_p": 0.9, "top_k": 20})  # the loss is that of SFT, nothing to correct
    config(tracking={"save_rollouts_every": 0})


def test_the_shipped_runs() -> None:
    assert shipped_names(KIND) == ["cs336_expert_iteration", KIND]
    course = compose(["cs336_expert_iteration"], kind=KIND)
    assert (course.iterations, course.questions_per_iteration, course.epochs) == (5, 512, 2)
    assert (course.sampling.min_tokens, course.sampling.stop) == (4, ("</answer>",))
    assert compose([], kind=KIND) == compose(["expert_iteration"], kind=KIND)


def test_a_written_run_is_read_back_the_same(tmp_path: Any) -> None:
    run = compose([], ["max_kept_per_question=2", "keep_above=0.5"], kind=KIND)
    path = tmp_path / "config.yaml"
    path.write_text(dump_yaml(run))
    assert compose([str(path)], kind=KIND) == run


def test_its_evaluation_samples_and_grades_as_the_run_does() -> None:
    run = config(
        data={"train": {"path": "p"}, "validation_fraction": 0.25},
        sampling={"max_tokens": 77},
        evaluation={"limit": 9, "sampling": {"max_tokens": 55}},
    )
    dataset = validation_dataset(run)
    assert dataset is not None
    evaluation = evaluation_of(run, dataset)
    assert evaluation.sampling.max_tokens == 55
    assert evaluation.held_out is not None
    assert (evaluation.held_out.rows, evaluation.held_out.limit) == ("problems", 9)
    assert (evaluation.held_out.fraction, evaluation.held_out.reward_max_tokens) == (0.25, 77)


# ------------------------------------------------------------------------ names of earlier codes

NAMES = """
group_size=8                    num_generations=8
n=8                             num_generations=8
rollout.n=8                     num_generations=8
num_rollouts=8                  num_generations=8
n_rollouts=8                    num_generations=8
n_ei_steps=3                    iterations=3
ei_steps=3                      iterations=3
n_expert_iterations=3           iterations=3
expert_iterations=3             iterations=3
ei_batch_size=1024              questions_per_iteration=1024
expert_batch_size=1024          questions_per_iteration=1024
questions_per_step=1024         questions_per_iteration=1024
num_train_epochs=2              epochs=2
num_epochs=2                    epochs=2
n_epochs=2                      epochs=2
sft_epochs=2                    epochs=2
epochs_per_iteration=2          epochs=2
train_batch_size=64             batch_size=64
global_batch_size=64            batch_size=64
temperature=0.9                 sampling.temperature=0.9
sampling_min_tokens=4           sampling.min_tokens=4
max_new_tokens=512              sampling.max_tokens=512
stop_strings=</answer>          sampling.stop=['</answer>']
training.lr=2e-4                optimizer.learning_rate=2e-4
per_device_train_batch_size=4   batch_size=4 batch.microbatch_rows=4
gradient_accumulation_steps=4   batch_size=128 batch.microbatch_rows=32
max_seq_length=2048             sampling.max_tokens=1536
"""


@pytest.mark.parametrize("line", NAMES.strip().splitlines())
def test_earlier_names_lead_to_their_settings(line: str) -> None:
    override, expected = line.split(None, 1)
    given = read_overrides([override], KIND, [])
    found: dict[str, Any] = {}
    older: dict[str, Any] = {}
    for new in given.assignments:
        section, _, name = new.path.partition(".")
        (older if section == "__older__" else found)[
            name if section == "__older__" else new.path
        ] = new.value
    settled = settle(older, {"data": {"max_prompt_length": 512}}, KIND)
    found |= {each.path: each.value for each in settled}
    pairs = [pair.split("=", 1) for pair in expected.split()]
    assert found == {path: literal_eval(value) for path, value in pairs}


def test_its_own_names_are_all_tested() -> None:
    tested = {line.split("=", 1)[0] for line in NAMES.strip().splitlines()}
    shared = set(ALIASES["sft"]) | {
        name for name, row in ALIASES["grpo"].items() if row.target.startswith("sampling.")
    }
    assert set(ALIASES[KIND]) - shared <= tested


def test_a_note_says_what_a_name_was_read_as() -> None:
    notes = compose_with_notes([], ["group_size=2"], kind=KIND).notes
    assert notes == ("group_size is read as num_generations=2",)
