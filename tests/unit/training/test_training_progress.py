"""What the loops share: which model is the best, and what ends a run whose steps are skipped."""

from __future__ import annotations

import copy
import json
import math

import pytest
import torch
from safetensors.torch import load_file

from tiny import tiny_model, tiny_tokenizer
from workings.config.sft import SFTConfig
from workings.data.encoding import encode_demonstration
from workings.data.sampler import BatchSampler
from workings.data.templates import load_template
from workings.errors import StoppedBySignal, TrainingError
from workings.tracking.recorder import Recorder
from workings.training.checkpointer import Checkpointer, RunPaths
from workings.training.progress import nonfinite_in_a_row
from workings.training.sft import train_sft
from workings.training.step import StepOutcome
from workings.training.stop import StopRequest
from workings.types import Demonstration

TOKENIZER = tiny_tokenizer()


class Run:
    """A run of SFT in a folder, whose evaluations give `accuracy[step]`."""

    def __init__(self, folder, accuracy, *, resume=None, keep_best=True, **settings):
        self.folder, self.accuracy = folder, accuracy
        self.config = SFTConfig.model_validate(
            {
                "name": "run",
                "model": {"name_or_path": "tiny"},
                "data": {"train": {"path": "p"}},
                "batch_size": 2,
                "max_steps": 3,
                "optimizer": {"learning_rate": 0.01},
                **settings,
            }
        )
        self.model = tiny_model(TOKENIZER)
        self.start = copy.deepcopy(self.model.state_dict())
        self.recorder = Recorder(folder)
        self.checkpointer = Checkpointer(
            RunPaths(folder=folder),
            TOKENIZER,
            self.recorder,
            kind="sft",
            config_text="",
            resume=resume,
            keep_best=keep_best,
        )
        self.stop = StopRequest()

    def run(self, *, stop_at=None):
        def evaluate(step):
            if step == stop_at:
                self.stop.request()
            return {"accuracy": self.accuracy[step]}

        rows = [
            encode_demonstration(
                Demonstration(id=f"r/{n}", question=f"{n}+1?", response=f"so {n + 1}"),
                load_template("own"),
                TOKENIZER,
            )
            for n in range(6)
        ]
        with self.recorder:
            self.state = train_sft(
                self.config,
                model=self.model,
                examples=BatchSampler(rows, batch_size=2, seed=1),
                recorder=self.recorder,
                checkpointer=self.checkpointer,
                stop=self.stop,
                evaluate=evaluate,
            ).state
        return self

    @property
    def best(self):
        """Step and value of the best model, and whether its weights are the start's."""
        found = json.loads((self.folder / "best/best.json").read_text())
        kept = load_file(self.folder / "best/model.safetensors")
        same = all(torch.equal(tensor, self.start[name]) for name, tensor in kept.items())
        return found["step"], found["value"], same

    @property
    def says_start(self):
        """Whether the log says that the best model is the one before training."""
        return "holds the policy of step 0" in (self.folder / "run.log").read_text()


EVERY = {"evaluation": {"every_steps": 1}}


def test_the_start_is_the_best_where_nothing_is_better(tmp_path):
    run = Run(tmp_path, [0.5, 0.25, 0.5, 0.0], **EVERY).run()
    assert run.best == (0, 0.5, True)
    assert (run.state.best_step, run.state.best_value) == (0, 0.5)
    assert run.says_start


def test_a_later_step_is_the_best_where_it_is_better(tmp_path):
    run = Run(tmp_path, [0.5, 0.25, 0.75, 0.0], **EVERY).run()
    assert run.best == (2, 0.75, False)
    assert not run.says_start


def test_the_last_evaluation_counts_against_the_start(tmp_path):
    assert Run(tmp_path / "worse", {0: 0.5, 3: 0.25}).run().best == (0, 0.5, True)
    assert Run(tmp_path / "better", {0: 0.5, 3: 0.75}).run().best == (3, 0.75, False)


def test_a_start_that_was_not_evaluated_is_not_the_best(tmp_path):
    run = Run(tmp_path, {3: 0.0}, evaluation={"at_start": False}).run()
    assert run.best == (3, 0.0, False)


def test_the_start_does_not_end_a_run_by_its_stop_rule(tmp_path):
    rule = {"every_steps": 1, "stop_metric": "accuracy", "stop_at": 0.5}
    run = Run(tmp_path, [0.75, 0.25, 0.5, 0.0], evaluation=rule).run()
    assert run.state.step == 2
    assert run.best == (0, 0.75, True)


def test_a_resumed_run_remembers_that_the_start_is_the_best(tmp_path):
    with pytest.raises(StoppedBySignal):
        Run(tmp_path, {0: 0.5, 1: 0.1}, **EVERY).run(stop_at=1)
    again = Run(tmp_path, {2: 0.3, 3: 0.4}, resume="latest", **EVERY).run()
    assert again.state.step == 3
    assert again.best == (0, 0.5, True)
    assert again.says_start


def test_a_start_that_was_not_kept_is_not_said_to_be_there(tmp_path):
    with pytest.raises(StoppedBySignal):
        Run(tmp_path, {0: 0.5, 1: 0.1}, keep_best=False, **EVERY).run(stop_at=1)
    again = Run(tmp_path, {2: 0.3, 3: 0.4}, resume="latest", **EVERY).run()
    assert again.state.best_step == 0
    assert not (tmp_path / "best").exists()
    assert not again.says_start


def test_nothing_is_kept_or_said_where_the_best_is_not_wanted(tmp_path):
    run = Run(tmp_path, [0.5, 0.25, 0.5, 0.0], keep_best=False, **EVERY).run()
    assert not (tmp_path / "best").exists()
    assert not run.says_start


# ------------------------------------------------------------------------------ skipped steps


def outcome(grad_norm, *, skipped=True):
    return StepOutcome(loss=1.0, grad_norm=grad_norm, skipped=skipped, sums={}, maxima={})


def test_skipped_steps_are_counted_until_a_good_one():
    assert nonfinite_in_a_row(outcome(math.nan), 1, most=3) == 2
    assert nonfinite_in_a_row(outcome(2.0, skipped=False), 2, most=3) == 0
    assert nonfinite_in_a_row(outcome(12.0), 1, most=3, skip_above=10) == 2


def test_a_threshold_that_is_too_low_is_named_with_the_norm():
    with pytest.raises(TrainingError) as caught:
        nonfinite_in_a_row(outcome(12.345678), 2, most=3, skip_above=10.0)
    assert caught.value.message == (
        "3 steps in a row were skipped, so nothing is learnt: the last gradient has a norm of "
        "12.35, above optimizer.skip_above_grad_norm=10"
    )
    assert caught.value.hint.startswith("set optimizer.skip_above_grad_norm above")


@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_is_said_to_be(norm):
    with pytest.raises(TrainingError, match="the gradient was not finite in 3 steps in a row"):
        nonfinite_in_a_row(outcome(norm), 2, most=3)
    with pytest.raises(TrainingError, match="was not finite or too long in 3 steps in a row"):
        nonfinite_in_a_row(outcome(norm), 2, most=3, skip_above=10.0)
