"""What a GRPO run is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from workings.config.objective_settings import ObjectiveConfig
from workings.config.off_policy import OffPolicyConfig, ReplayConfig
from workings.config.schedule import (
    Schedule,
    check_one_step_off,
    describe_one_step_off,
    with_correction,
)
from workings.config.sections import (
    BatchConfig,
    CheckpointConfig,
    DataConfig,
    EngineConfig,
    EvaluationConfig,
    GraderConfig,
    OptimizerConfig,
    RewardConfig,
    Run,
    SamplingConfig,
)
from workings.errors import ConfigError


class GRPOConfig(Run):
    """Reinforcement learning from graded rollouts."""

    kind: Literal["grpo"] = "grpo"
    data: DataConfig
    engine: EngineConfig = EngineConfig()
    sampling: SamplingConfig = SamplingConfig()
    reward: RewardConfig = RewardConfig()
    grader: GraderConfig = GraderConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    off_policy: OffPolicyConfig = OffPolicyConfig()
    replay: ReplayConfig = ReplayConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    batch: BatchConfig = BatchConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    prompts_per_step: int = Field(32, ge=1, description="Prompts sampled for one rollout batch.")
    num_generations: int = Field(8, ge=1, description="Samples per prompt, the group.")
    train_batch_size: int | None = Field(
        None, ge=1, description="Rows in one optimizer step; the whole rollout batch if unset."
    )
    epochs_per_rollout: int = Field(1, ge=1, description="Passes over each rollout batch.")
    max_steps: int = Field(200, ge=0, description="Rollout batches.")
    schedule: Schedule = Field(
        "synchronous",
        description="one_step_off samples the next batch, with weights one step old, while this "
        "one trains.",
    )

    @property
    def max_staleness(self) -> int:
        """Most versions that the weights of a sample may lag behind those that it trains."""
        return 1 if self.schedule == "one_step_off" else 0

    def describe_schedule(self) -> str:
        """One line on what is sampled when, and with which weights."""
        if self.schedule == "synchronous":
            return "schedule synchronous: every batch is sampled with the weights that it trains"
        return "schedule one_step_off: " + describe_one_step_off(
            self.objective.resolve(), self.engine
        )

    @property
    def rollout_batch_size(self) -> int:
        """Rows sampled for one rollout batch."""
        return self.prompts_per_step * self.num_generations

    @property
    def rows_per_update(self) -> int:
        """Rows in one optimizer step."""
        return self.train_batch_size or self.rollout_batch_size

    @property
    def updates_per_rollout(self) -> int:
        """Optimizer steps taken on one rollout batch."""
        return self.epochs_per_rollout * self.rollout_batch_size // self.rows_per_update

    @property
    def num_sampled(self) -> int:
        """Samples of a prompt that the policy draws where a whole trace takes the other rows."""
        off = self.objective.resolve().num_off
        return self.num_generations - off if off >= 0 else 0

    @property
    def paid_reward(self) -> RewardConfig:
        """The reward, with the objective's overlong shaping where it has no buffer of its own."""
        share = self.objective.resolve().overlong_share
        buffer = self.reward.overlong_buffer or round(share * self.sampling.max_tokens)
        return self.reward.model_copy(update={"overlong_buffer": buffer})

    @model_validator(mode="before")
    @classmethod
    def _stale_samples_are_corrected(cls, values: Any) -> Any:
        return with_correction(values) if isinstance(values, Mapping) else values

    @model_validator(mode="after")
    def _schedule_fits(self) -> GRPOConfig:
        if self.schedule == "one_step_off":
            check_one_step_off(self.objective.resolve(), self.engine)
        return self

    @model_validator(mode="after")
    def _nothing_unread(self) -> GRPOConfig:
        if self.data.max_response_length is not None:
            raise ConfigError(
                f"data.max_response_length={self.data.max_response_length} limits what SFT trains "
                "on and has no effect here",
                hint="sampling.max_tokens limits what is sampled",
            )
        if self.evaluation.stop_metric is not None:
            raise ConfigError("evaluation.stop_metric ends SFT early and has no effect here")
        return self

    @model_validator(mode="after")
    def _teacher_rows_fit(self) -> GRPOConfig:
        objective = self.objective.resolve()
        if objective.num_off >= self.num_generations:
            raise ConfigError(
                f"objective.num_off={objective.num_off} leaves nothing of num_generations="
                f"{self.num_generations} to sample",
                hint="num_generations counts the teacher's rows too: 8 with num_off=1 samples 7",
            )
        if objective.num_off < 0 and self.off_policy.whole_traces:
            raise ConfigError(
                "objective.num_off=-1 guides every row of a group; with whole traces there is "
                "nothing left to sample",
                hint="set off_policy.prefix_min_ratio and prefix_max_ratio below 1, or num_off=1",
            )
        if objective.num_off == 0 and self.off_policy != OffPolicyConfig():
            raise ConfigError(
                "off_policy is set, but the objective has no teacher rows",
                hint="set objective.preset=luffy, or objective.num_off=1",
            )
        if objective.advantage_pool == "on_policy" and objective.has_off_policy_rows:
            own = self.num_generations - (1 if objective.replay else objective.num_off)
            if objective.num_off < 0 or own < 2:
                raise ConfigError(
                    "objective.advantage_pool=on_policy compares the sampled rows of a group, "
                    f"and there are {0 if objective.num_off < 0 else own}",
                    hint="raise num_generations, or set objective.advantage_pool=union",
                )
        return self

    @model_validator(mode="after")
    def _replay_fits(self) -> GRPOConfig:
        objective = self.objective.resolve()
        if objective.replay:
            upper = self.num_generations - 1 if self.replay.upper is None else self.replay.upper
            if not self.replay.lower < upper <= self.num_generations:
                raise ConfigError(
                    f"replay.lower={self.replay.lower} and replay.upper={upper}; expected "
                    f"lower < upper <= num_generations={self.num_generations}"
                )
            if self.replay.weighting != "normal" and self.replay.sigma != 1:
                raise ConfigError(
                    f"replay.sigma={self.replay.sigma:g} has no effect with replay.weighting="
                    f"{self.replay.weighting}",
                    hint="it is the width of replay.weighting=normal",
                )
        elif self.replay != ReplayConfig():
            raise ConfigError(
                "replay is set, but the objective does not replay",
                hint="set objective.preset=exgrpo, or objective.replay=true",
            )
        if objective.dynamic_sampling != "none" and objective.has_off_policy_rows:
            raise ConfigError(
                f"objective.dynamic_sampling={objective.dynamic_sampling} draws whole groups anew; "
                "it does not go with teacher rows or replay",
                hint="set objective.dynamic_sampling=none",
            )
        return self

    @model_validator(mode="after")
    def _numbers_fit(self) -> GRPOConfig:
        objective = self.objective.resolve()
        if objective.needs_group and self.num_generations < 2:
            raise ConfigError(
                f"num_generations={self.num_generations} but the advantage {objective.advantage!r} "
                "compares the samples of one prompt and is undefined for one",
                hint="set num_generations to 2 or more, or objective.preset=no_baseline",
            )
        rows = self.rows_per_update
        if rows > self.rollout_batch_size or self.rollout_batch_size % rows:
            raise ConfigError(
                f"train_batch_size={rows} must divide prompts_per_step * num_generations = "
                f"{self.prompts_per_step} * {self.num_generations} = {self.rollout_batch_size}"
            )
        if rows % self.num_generations:
            raise ConfigError(
                f"train_batch_size={rows} must be a multiple of num_generations="
                f"{self.num_generations}, so that no group is split over two updates"
            )
        sampling = self.sampling
        truncates = sampling.top_p < 1 or sampling.top_k > 0 or sampling.min_p > 0
        if truncates and objective.correction == "none":
            raise ConfigError(
                f"sampling.top_p={sampling.top_p:g}, top_k={sampling.top_k}, min_p="
                f"{sampling.min_p:g} cut the distribution that is sampled from, but the loss is "
                "computed on the whole one",
                hint="set objective.correction=tis_token, which weighs each token by what was cut, "
                "or top_p=1 top_k=-1 min_p=0",
            )
        if self.sampling.temperature == 0:
            raise ConfigError(
                "sampling.temperature=0 makes every sample of a group the same, so there is "
                "nothing to learn from",
                hint="1.0 is usual",
            )
        return self
