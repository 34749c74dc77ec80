"""The loop of expert iteration, on a tiny model and an engine that says what it is told to."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from safetensors.torch import load_file

from tiny import tiny_model, tiny_tokenizer
from workings.config.expert_iteration import ExpertIterationConfig
from workings.data.encoding import encode_prompts
from workings.data.sampler import PromptSampler
from workings.data.templates import load_template
from workings.errors import StoppedBySignal
from workings.rewards.reward import build_reward
from workings.rollout.engine import SamplingParams
from workings.rollout.scripted import ScriptedEngine
from workings.tracking.jsonl import read_metrics
from workings.tracking.recorder import Recorder
from workings.training.checkpointer import Checkpointer, RunPaths
from workings.training.distributed import Ranks
from workings.training.expert_iteration import train_expert_iteration
from workings.training.kept import KeptFiles, kept_rows
from workings.training.optim import build_adamw, set_learning_rate
from workings.training.packing import pack, step_totals
from workings.training.step import policy_step
from workings.training.stop import StopRequest
from workings.training.supervised_loss import supervised_loss
from workings.types import Problem

TOKENIZER = tiny_tokenizer()
RIGHT, WRONG = r"so \boxed{4}", r"so \boxed{5}"


class Loop:
    """One run of the loop in a folder, with what its engine was given to see."""

    def __init__(self, folder, script, *, resume=None, **settings):
        self.folder = folder
        self.config = ExpertIterationConfig.model_validate(
            {
                "name": "run",
                "model": {"name_or_path": "tiny"},
                "data": {"train": {"path": "p"}},
                "iterations": 2,
                "questions_per_iteration": 3,
                "num_generations": 2,
                "batch_size": 4,
                "optimizer": {"learning_rate": 0.01},
                **settings,
            }
        )
        problems = [Problem(id=f"p/{n}", question=f"{n}+?", answer="4") for n in range(6)]
        prompts = encode_prompts(problems, load_template("question_only"), TOKENIZER).items
        self.question_of = {prompt.ids: prompt.problem.id for prompt in prompts}
        self.model = tiny_model(TOKENIZER)
        self.engine = ScriptedEngine(TOKENIZER, script)
        self.sampler = PromptSampler(prompts, prompts_per_step=3, seed=1)
        self.recorder = Recorder(folder)
        self.checkpointer = Checkpointer(
            RunPaths(folder=folder),
            TOKENIZER,
            self.recorder,
            kind="expert-iteration",
            config_text="",
            resume=resume,
            save_total_limit=20,
        )
        self.kept_files = KeptFiles(folder / "kept")
        self.stop = StopRequest()
        self.evaluated = []

    def run(self):
        with self.recorder:
            return train_expert_iteration(
                self.config,
                model=self.model,
                engine=self.engine,
                sampler=self.sampler,
                sampling=SamplingParams(max_tokens=40),
                reward=build_reward("question_only"),
                recorder=self.recorder,
                checkpointer=self.checkpointer,
                kept_files=self.kept_files,
                stop=self.stop,
                evaluate=self.evaluate,
            )

    def evaluate(self, step):
        self.evaluated.append(step)
        return {"accuracy": step / 100}

    @property
    def rows(self):
        return [
            row for row in read_metrics(self.folder / "metrics.jsonl") if row["kind"] == "train"
        ]

    def steps_saved(self):
        return sorted(int(p.name[5:]) for p in (self.folder / "checkpoints").iterdir())


def half_right(request, index):
    """A right and a wrong answer to each question, told apart by the question."""
    return f"{RIGHT if index == 0 else WRONG} {sum(request.prompt_ids)}"


def weights(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def test_rounds_steps_checkpoints_and_evaluations(tmp_path):
    loop = Loop(tmp_path, half_right, batch_size=2, epochs=2)
    result = loop.run()
    # A round: one step for the samples, then 3 kept rows in batches of 2, twice.
    assert [("train/kept_rows" in r, r["step"], r["train/iteration"]) for r in loop.rows] == [
        (True, 1, 1),
        *[(False, step, 1) for step in (2, 3, 4, 5)],
        (True, 6, 2),
        *[(False, step, 2) for step in (7, 8, 9, 10)],
    ]
    assert loop.evaluated == [0, 5, 10]
    assert loop.steps_saved() == [5, 10]
    assert (result.state.step, result.state.iteration, result.state.num_updates) == (10, 2, 8)
    assert result.state.cursor == 6
    assert result.evaluation == {"accuracy": 0.10}
    assert (tmp_path / "final").is_dir()
    first = loop.rows[0]
    assert (first["train/kept_fraction"], first["train/pass_rate"]) == (0.5, 0.5)
    assert (first["train/questions_solved"], first["train/weight_version_lag"]) == (1.0, 0.0)
    assert first["train/token_entropy"] == pytest.approx(1.0)


def test_the_updates_are_those_of_sft_on_the_kept_samples(tmp_path):
    cut = {"layout": "padded", "microbatch_tokens": 1}
    loop = Loop(tmp_path, half_right, iterations=1, batch_size=8, batch=cut)
    start = copy.deepcopy(loop.model)
    loop.run()
    groups = loop.kept_files.read(1)
    assert [r.text.startswith(RIGHT) for g in groups for r in g.rollouts] == [True] * 3
    rows = kept_rows(groups)
    optimizer = build_adamw(start)
    set_learning_rate(optimizer, 0.01)
    policy_step(
        start,
        optimizer,
        pack(rows, layout="padded", max_tokens=1),
        supervised_loss(step_totals(rows, Ranks())),
    )
    trained, wanted = weights(loop.model), weights(start)
    assert all(torch.equal(trained[n], wanted[n]) for n in wanted)
    assert not all(torch.equal(wanted[n], p) for n, p in weights(tiny_model(TOKENIZER)).items())


def test_every_kept_row_is_trained_once_an_epoch(tmp_path, monkeypatch):
    from workings.training import expert_iteration

    trained = []
    real = expert_iteration.pack

    def watched(rows, **options):
        trained.append([row.key for row in rows])
        return real(rows, **options)

    monkeypatch.setattr(expert_iteration, "pack", watched)
    Loop(tmp_path, half_right, iterations=1, batch_size=2, epochs=3).run()
    assert [len(keys) for keys in trained] == [2, 1] * 3
    passes = [[*trained[i], *trained[i + 1]] for i in (0, 2, 4)]
    assert [sorted(keys) for keys in passes] == [[0, 1, 2]] * 3
    assert len({tuple(keys) for keys in passes}) > 1


def test_the_engine_gets_the_current_weights_before_every_round(tmp_path, monkeypatch):
    seen = []
    loop = Loop(tmp_path, half_right)
    load = loop.engine.load_weights

    def watched(version, tensors):
        tensors = list(tensors)
        seen.append((version, {name: t.clone() for name, t in tensors}))
        load(version, tensors)

    monkeypatch.setattr(loop.engine, "load_weights", watched)
    loop.run()
    assert [version for version, _ in seen] == [0, 2]
    assert any(not torch.equal(seen[0][1][name], seen[1][1][name]) for name in seen[0][1])


def test_a_round_with_nothing_right_is_counted_said_and_trains_nothing(tmp_path):
    def script(request, index):
        return WRONG if loop.engine.weight_version == 0 else half_right(request, index)

    loop = Loop(tmp_path, script, batch_size=2, iterations=3)
    loop.run()
    kept = [
        (r["step"], r["train/kept_rows"], r["train/empty_iterations"])
        for r in loop.rows
        if "train/kept_rows" in r
    ]
    assert kept == [(1, 0.0, 1.0), (2, 3.0, 0.0), (5, 3.0, 0.0)]
    assert loop.evaluated == [0, 1, 4, 7]
    log = (tmp_path / "run.log").read_text()
    assert "round 1: none of 6 samples has a reward above 0, so nothing is trained" in log


def test_a_run_in_which_nothing_is_ever_right_ends_with_its_weights(tmp_path):
    loop = Loop(tmp_path, lambda request, index: WRONG)
    before = weights(loop.model)
    result = loop.run()
    assert (result.state.num_updates, result.state.iteration) == (0, 2)
    assert all(torch.equal(before[name], p) for name, p in weights(loop.model).items())


def test_the_schedule_spans_a_round(tmp_path):
    settings = {"learning_rate": 0.01, "schedule": "linear"}
    loop = Loop(tmp_path, half_right, batch_size=1, optimizer=settings)
    loop.run()
    rates = [row["train/learning_rate"] for row in loop.rows if "train/learning_rate" in row]
    assert rates == pytest.approx([0.01, 0.02 / 3, 0.01 / 3] * 2)


def test_the_best_model_is_the_start_where_training_makes_it_worse(tmp_path):
    loop = Loop(tmp_path, half_right)
    loop.evaluate = lambda step: {"accuracy": 1 - step / 100}
    start = weights(loop.model)
    assert loop.run().state.best_step == 0
    assert json.loads((tmp_path / "best/best.json").read_text()) == {"step": 0, "value": 1.0}
    best = load_file(tmp_path / "best/model.safetensors")
    assert all(torch.equal(tensor, start[name]) for name, tensor in best.items())


def test_the_last_evaluation_may_be_left_out(tmp_path):
    loop = Loop(tmp_path, half_right, evaluation={"at_start": False, "at_end": False})
    loop.run()
    assert loop.evaluated == [2]


@pytest.mark.parametrize("stop_at", [1, 2, 4])
def test_a_run_stopped_anywhere_in_a_round_ends_as_if_it_had_not(tmp_path, monkeypatch, stop_at):
    """While sampling, in the middle of the updates, and on the round's last update."""
    settings = {"batch_size": 1, "model": {"name_or_path": "tiny"}}
    straight = Loop(tmp_path / "straight", half_right, **settings)
    straight.run()

    loop = Loop(tmp_path / "run", half_right, **settings)
    record = loop.recorder.record

    def stopping(step, metrics, prefix="train"):
        record(step, metrics, prefix)
        if step == stop_at:
            loop.stop.request()

    monkeypatch.setattr(loop.recorder, "record", stopping)
    with pytest.raises(StoppedBySignal, match=f"after step {stop_at}, which is saved"):
        loop.run()
    assert loop.steps_saved() == [stop_at]

    again = Loop(tmp_path / "run", half_right, resume="latest", **settings)
    result = again.run()
    assert result.state.step == 8
    ours, theirs = weights(again.model), weights(straight.model)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    timed = ("seconds", "time", "timing", "memory", "tokens_per_sec")

    def untimed(rows):
        return [{k: v for k, v in row.items() if not any(t in k for t in timed)} for row in rows]

    assert untimed(again.rows) == untimed(straight.rows)
