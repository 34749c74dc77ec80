"""A GRPO loop on the tiny model, with an engine that says what it is told or the real one."""

from __future__ import annotations

import copy
import functools
import json
import math

import torch

from tiny import tiny_model, tiny_tokenizer
from workings.config.grpo import GRPOConfig
from workings.data.encoding import encode_prompts
from workings.data.sampler import PromptSampler
from workings.data.templates import load_template
from workings.data.traces import encode_traces
from workings.errors import StoppedBySignal
from workings.rewards.reward import build_reward
from workings.rollout.engine import SamplingParams
from workings.rollout.replay import ReplayBuffer
from workings.rollout.scripted import ScriptedEngine
from workings.rollout.transformers_engine import TransformersEngine
from workings.seeds import derive_seed
from workings.tracking.jsonl import read_metrics
from workings.tracking.recorder import Recorder
from workings.training.checkpointer import Checkpointer, RunPaths
from workings.training.grpo import train_grpo
from workings.training.one_step_off import train_one_step_off
from workings.training.replay_score import replay_scorer
from workings.training.source import Guidance, Replay
from workings.training.stop import StopRequest
from workings.types import Demonstration, Problem

TOKENIZER = tiny_tokenizer()
TEMPLATE = load_template("question_only")
RIGHT, WRONG = r"so \boxed{4}", r"no \boxed{5}!"


def drawn(request, index, *, chance=0.5):
    """Right or wrong by a draw that follows from the request's seed, of several lengths."""
    draw = derive_seed(request.seed, index) % 1000
    return (RIGHT if draw < 1000 * chance else WRONG) + "." * (draw % 4)


def problems(count=6):
    return [Problem(id=f"p/{n}", question=f"{n}+?", answer="4") for n in range(count)]


def prompts_of(items):
    return encode_prompts(items, TEMPLATE, TOKENIZER).items


def traces_of(items, text=r"thus \boxed{4}", **extra):
    """A teacher's trace for each problem: one text for all, or a function of the problem."""
    say = text if callable(text) else lambda problem: text
    return {
        problem.id: [
            Demonstration(
                id=f"{problem.id}/t",
                question=problem.question,
                response=say(problem),
                answer=problem.answer,
                extra=extra,
            )
        ]
        for problem in items
    }


class NotedEngine(ScriptedEngine):
    """Keeps every request it was given, batch by batch."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.batches = []

    def submit(self, requests, sampling):
        self.batches.append((list(requests), sampling))
        return super().submit(requests, sampling)

    @property
    def sampled(self):
        """Samples drawn in every batch."""
        return [sum(request.num_samples for request in batch) for batch, _ in self.batches]


class Loop:
    """One run of `train_grpo` in a folder. `script` None samples from the model itself."""

    def __init__(
        self,
        folder,
        script=drawn,
        *,
        resume=None,
        count=6,
        traces=None,
        reward=None,
        model=None,
        max_tokens=16,
        logprob=-4.7,
        config=None,
        **settings,
    ):
        self.folder = folder
        self.config = config or GRPOConfig.model_validate(
            {
                "name": "run",
                "model": {"name_or_path": "tiny"},
                "data": {"train": {"path": "p"}},
                "prompts_per_step": 2,
                "num_generations": 4,
                "max_steps": 2,
                "sampling": {"max_tokens": max_tokens},
                "optimizer": {"learning_rate": 0.01},
                **settings,
            }
        )
        self.objective = self.config.objective.resolve()
        self.problems = problems(count)
        self.prompts = prompts_of(self.problems)
        self.model = tiny_model(TOKENIZER) if model is None else model
        self.start = copy.deepcopy(self.model.state_dict())
        if script is None:
            self.engine = TransformersEngine(
                self.model, TOKENIZER, eos_token_ids=[TOKENIZER.eos_token_id]
            )
        else:
            self.engine = NotedEngine(TOKENIZER, script, logprob=logprob)
        self.sampler = PromptSampler(
            self.prompts, prompts_per_step=self.config.prompts_per_step, seed=1
        )
        self.sampling = SamplingParams(
            temperature=self.config.sampling.temperature,
            top_p=self.config.sampling.top_p,
            max_tokens=self.config.sampling.max_tokens,
        )
        self.reward = reward or build_reward(
            "question_only",
            max_tokens=self.sampling.max_tokens,
            overlong_buffer=self.config.paid_reward.overlong_buffer,
        )
        self.guidance = self._guidance(traces)
        self.replay = self._replay()
        self.recorder = NotedRecorder(folder)
        self.checkpointer = Checkpointer(
            RunPaths(folder=folder),
            TOKENIZER,
            self.recorder,
            kind="grpo",
            config_text="",
            resume=resume,
            save_total_limit=20,
        )
        self.stop = StopRequest()

    def _guidance(self, traces):
        if self.objective.num_off == 0:
            return None
        encoded = encode_traces(
            self.prompts,
            traces_of(self.problems) if traces is None else traces,
            TEMPLATE,
            TOKENIZER,
            recorded_probabilities=self.objective.use_teacher_probs,
        )
        return Guidance(
            traces=encoded.by_problem,
            decode=lambda ids: TOKENIZER.decode(list(ids), skip_special_tokens=True),
        )

    def _replay(self):
        if not self.objective.replay:
            return None
        settings = self.config.replay
        score = None
        if settings.select != "random":
            score = replay_scorer(self.model, settings.select, temperature=1.0, max_tokens=256)
        return Replay(
            buffer=ReplayBuffer(
                num_generations=self.config.num_generations,
                lower=settings.lower,
                upper=settings.upper,
                max_age=settings.max_age,
                max_rollouts=settings.max_rollouts,
            ),
            prompts={prompt.problem.id: prompt for prompt in self.prompts},
            score=score,
        )

    def run(self, *, evaluate=None):
        train = train_one_step_off
        if self.config.schedule == "synchronous":
            train = functools.partial(train_grpo, replay=self.replay)
        with self.recorder:
            self.result = train(
                self.config,
                model=self.model,
                engine=self.engine,
                sampler=self.sampler,
                sampling=self.sampling,
                reward=self.reward,
                recorder=self.recorder,
                checkpointer=self.checkpointer,
                stop=self.stop,
                guidance=self.guidance,
                evaluate=evaluate,
            )
        return self

    def run_until(self, step):
        """Stopped politely in that step, which is finished and saved."""
        self.recorder.stop_at = (step, self.stop)
        try:
            self.run()
        except StoppedBySignal:
            return self
        raise AssertionError("the run was not stopped")

    @property
    def rows(self):
        """Metrics of every step, without the prefix."""
        return [
            {name.removeprefix("train/"): value for name, value in row.items()}
            for row in read_metrics(self.folder / "metrics.jsonl")
            if row["kind"] == "train"
        ]

    @property
    def groups(self):
        """Groups of every step, as they were recorded."""
        return [groups for _, groups, _ in self.recorder.noted]

    @property
    def advantages(self):
        """Their advantages."""
        return [advantages for *_, advantages in self.recorder.noted]

    @property
    def moved(self):
        """Largest change of a weight since the start."""
        now = self.model.state_dict()
        return max((now[name] - before).abs().max().item() for name, before in self.start.items())


class NotedRecorder(Recorder):
    """Keeps the groups of every step; may ask for a stop at one."""

    def __init__(self, folder):
        super().__init__(folder)
        self.noted = []
        self.stop_at = None

    def record_rollouts(self, step, groups, *, advantages=None):
        self.noted.append((step, list(groups), advantages))
        if self.stop_at is not None and step == self.stop_at[0]:
            self.stop_at[1].request()
        super().record_rollouts(step, groups, advantages=advantages)


TIMES = ("time", "step_time", "tokens_per_sec", "peak_memory_gb")


def without_times(rows):
    return [
        {
            name: value
            for name, value in row.items()
            if name not in TIMES and not name.startswith("timing/")
        }
        for row in rows
    ]


def same_weights(first, second):
    mine, others = first.state_dict(), second.state_dict()
    return all(torch.equal(mine[name], others[name]) for name in mine)


def assert_resumes_exactly(make, tmp_path, *, at):
    """A run stopped after step `at` and resumed ends where one that was not stopped ends."""
    straight = make(tmp_path / "straight").run()
    first = make(tmp_path / "cut").run_until(at)
    second = make(tmp_path / "cut", resume="latest").run()
    assert same_weights(straight.model, second.model)
    assert not same_weights(first.model, second.model)
    assert without_times(straight.rows) == without_times(second.rows)
    states = [
        json.loads((path / f"checkpoints/step_{second.config.max_steps:06d}" / name).read_text())
        for path in (tmp_path / "straight", tmp_path / "cut")
        for name in ("trainer_state.json",)
    ]
    for state in states:
        del state["elapsed_seconds"]
    assert states[0] == states[1]
    return straight, second


def assert_finite(rows):
    for row in rows:
        broken = {
            name: value
            for name, value in row.items()
            if (isinstance(value, str) and name not in ("kind",))
            or (isinstance(value, float) and not math.isfinite(value))
        }
        assert not broken, broken
