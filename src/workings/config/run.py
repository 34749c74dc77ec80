"""What a run is: one typed model per command, built from sections that several commands share.

The rules that tie two settings together stand here too, so that they raise before anything heavy
loads. Composition of YAML files and overrides is `config.compose`; nothing here reads a file.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from workings.config.objective_settings import ObjectiveConfig
from workings.config.section import RunSection, Section
from workings.errors import ConfigError

LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class LoraConfig(Section):
    """Low-rank adapters (peft) instead of full fine-tuning."""

    rank: int = Field(32, ge=1, description="Width of the two factors of an update.")
    alpha: float = Field(64.0, gt=0, description="The update is scaled by alpha / rank.")
    dropout: float = Field(0.0, ge=0, lt=1, description="On the adapter's input, in training.")
    targets: tuple[str, ...] = Field(
        LORA_TARGETS, min_length=1, description="Last parts of module names, or [all-linear]."
    )


class ModelConfig(Section):
    """Which model, and how it is held in memory."""

    name_or_path: str = Field(description="Folder, hub id, GGUF file, or a known name (smollm2).")
    adapter: str | None = Field(None, description="Folder of a saved LoRA adapter to go on from.")
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="Arithmetic. Trained weights stay float32; bfloat16 runs as autocast."
    )
    attention: Literal["auto", "eager", "sdpa", "flash_attention_2"] = Field(
        "auto", description="auto is sdpa where the model has it, else eager."
    )
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1 ...")
    gradient_checkpointing: bool = Field(
        False, description="Compute activations again in the backward pass: less memory, more time."
    )
    lora: LoraConfig | None = Field(None, description="Train adapters; null trains everything.")
    chat_template: str | None = Field(
        None, description="Jinja file or text that replaces the model's."
    )
    trust_remote_code: bool = Field(
        False,
        description="Run Python code that comes with the weights; only from sources you trust.",
    )


class DatasetConfig(Section):
    """Where rows come from. `path` is a file, a folder, a hub id or the name of a known task."""

    path: str = Field(description="A file, a folder, a hub id, or the name of a generated task.")
    name: str | None = Field(None, description="Shown in metrics; defaults to the path's stem.")
    subset: str | None = Field(None, description="Configuration name on the hub.")
    split: str = Field("train", description="Of a folder, a hub data set or a generated task.")
    columns: dict[str, str] = Field(
        default_factory=dict, description="role: column, where guessed wrong."
    )
    limit: int | None = Field(None, ge=1, description="A seeded subset of so many rows.")
    limit_order: Literal["shuffled", "first"] = Field(
        "shuffled", description="first takes the first rows instead."
    )
    options: dict[str, str | int | float | bool | list[int] | list[str]] = Field(
        default_factory=dict, description="Settings of a generated task."
    )


class DataConfig(Section):
    """Training rows, validation rows, the prompt template and the length rules."""

    train: DatasetConfig
    validation: DatasetConfig | None = Field(
        None, description="What evaluation in training runs on."
    )
    validation_fraction: float = Field(
        0.0, ge=0, lt=1, description="Share of the training rows held out when validation is unset."
    )
    template: str = Field("r1_zero", description="Name of a prompt template, or a file.")
    system_prompt: str | None = Field(
        None, description="Of a chat; null leaves it to template and data set."
    )
    max_prompt_length: int | None = Field(None, ge=1, description="In tokens.")
    prompt_length_percentile: float | None = Field(
        None, gt=0, le=100, description="The same limit as a percentile of the prompts' lengths."
    )
    max_response_length: int | None = Field(None, ge=1, description="SFT: in tokens, EOS included.")
    overlong: Literal["error", "drop", "truncate"] = Field(
        "drop", description="What becomes of a row over a length limit; it is counted."
    )
    bad_gold: Literal["error", "drop"] = Field(
        "error", description="What becomes of a row whose answer cannot be graded against."
    )

    @model_validator(mode="after")
    def _one_length_rule(self) -> DataConfig:
        if self.max_prompt_length is not None and self.prompt_length_percentile is not None:
            raise ConfigError(
                f"data.max_prompt_length={self.max_prompt_length} and "
                f"data.prompt_length_percentile={self.prompt_length_percentile:g} are both set; "
                "keep one of them"
            )
        return self


class SamplingConfig(Section):
    """How completions are drawn. A model's own generation_config is never read."""

    temperature: float = Field(1.0, ge=0, description="0 is greedy.")
    top_p: float = Field(1.0, gt=0, le=1, description="Keep the likeliest tokens of this mass.")
    top_k: int = Field(-1, ge=-1, description="Keep so many tokens; -1 and 0 are off.")
    min_p: float = Field(
        0.0, ge=0, le=1, description="Keep tokens of at least this share of the likeliest one's."
    )
    max_tokens: int = Field(1024, ge=1, description="Most tokens of a completion.")
    min_tokens: int = Field(0, ge=0, description="No end and no stop string before so many.")
    stop: tuple[str, ...] = Field(
        (), description="Strings that end a completion and stay in it; empty takes the template's."
    )


class GreedySamplingConfig(SamplingConfig):
    """As `SamplingConfig`, greedy unless a temperature is given: what evaluation takes."""

    temperature: float = Field(0.0, ge=0, description="0 is greedy.")


class EngineConfig(Section):
    """What samples."""

    name: Literal["auto", "transformers", "paged", "vllm", "server"] = Field(
        "auto", description="auto takes the best that this version has for the device."
    )
    max_batch_size: int = Field(128, ge=1, description="Most rows decoded at once.")

    @model_validator(mode="after")
    def _is_here(self) -> EngineConfig:
        if self.name not in ("auto", "transformers"):
            raise ConfigError(
                f"engine.name={self.name} is not part of this version",
                hint="use engine.name=auto or engine.name=transformers",
            )
        return self


class GraderConfig(Section):
    """The grader, one setting for training, validation and evaluation."""

    num_workers: int = Field(1, ge=1, description="Processes for what needs computer algebra.")
    deadline_seconds: float = Field(2.0, gt=0, description="Most seconds of work on one answer.")


class RewardConfig(Section):
    """Which reward; see docs/reference/rewards.md."""

    name: Literal["r1_zero", "question_only", "think_boxed", "tags"] = "r1_zero"
    mode: Literal["strict", "four_class"] = Field(
        "strict", description="four_class grades answers outside of the format too."
    )
    fast: bool = Field(True, description="String and sympy only; False adds math-verify.")
    profile: Literal["contract", "unsloth", "grpo-tests"] = Field(
        "contract", description="Which scores the tag rewards give."
    )
    use_format_exact: bool = Field(True, description="Tag reward match_format_exactly.")
    use_format_approximate: bool = Field(True, description="Tag reward match_format_approximately.")
    use_answer_check: bool = Field(True, description="Tag reward check_answer.")
    use_number_check: bool = Field(True, description="Tag reward check_numbers.")
    weights: dict[str, float] = Field(
        default_factory=dict, description="component: factor in the total."
    )
    overlong_buffer: int = Field(0, ge=0, description="DAPO overlong shaping; 0 is off.")


class OptimizerConfig(Section):
    """The optimizer and its schedule."""

    name: Literal["adamw", "rmsprop"] = Field("adamw", description="rmsprop is torch's, plain.")
    learning_rate: float = Field(1e-5, ge=0, description="The peak of the schedule.")
    betas: tuple[float, float] = Field((0.9, 0.95), description="Of AdamW's two moments.")
    rmsprop_alpha: float = Field(
        0.99, ge=0, lt=1, description="Decay of RMSprop's mean of squared gradients."
    )
    eps: float = Field(1e-8, gt=0, description="Added to the root that a step is divided by.")
    weight_decay: float = Field(0.0, ge=0, description="On matrices, not on biases and norms.")
    offload: bool = Field(
        False, description="Keep AdamW's moments in CPU memory: less of the card's, slower steps."
    )
    max_grad_norm: float = Field(1.0, ge=0, description="0 turns clipping off.")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant", description="After the warm-up; linear and cosine fall towards 0."
    )
    warmup_steps: int = Field(0, ge=0, description="Optimizer steps over which the rate rises.")
    warmup_ratio: float = Field(0.0, ge=0, lt=1, description="The same as a share of all steps.")
    skip_above_grad_norm: float | None = Field(
        None, gt=0, description="A step whose gradient is longer is skipped and counted."
    )
    max_nonfinite_steps: int = Field(
        5, ge=1, description="Stop after so many skipped steps in a row."
    )

    @model_validator(mode="after")
    def _constants_are_read(self) -> OptimizerConfig:
        unread = (
            ("rmsprop_alpha",) if self.name == "adamw" else ("betas", "weight_decay", "offload")
        )
        for name in unread:
            value, default = getattr(self, name), type(self).model_fields[name].default
            if value != default:
                raise ConfigError(
                    f"optimizer.{name}={value} has no effect with optimizer.name={self.name}",
                    hint=f"leave it at {default}, or choose the other optimizer",
                )
        return self

    @model_validator(mode="after")
    def _one_warmup(self) -> OptimizerConfig:
        if self.warmup_steps and self.warmup_ratio:
            raise ConfigError(
                f"optimizer.warmup_steps={self.warmup_steps} and optimizer.warmup_ratio="
                f"{self.warmup_ratio:g} are both set; keep one of them"
            )
        return self


class BatchConfig(Section):
    """How an optimizer step is cut into microbatches; changes speed and memory, not the result."""

    microbatch_tokens: int = Field(8192, ge=1, description="Most tokens in one forward pass.")
    microbatch_rows: int | None = Field(None, ge=1, description="Most rows in one forward pass.")
    layout: Literal["auto", "padded", "packed", "shared_prompt"] = Field(
        "auto",
        description="padded: one row each; packed: several in a row; shared_prompt: a group's "
        "prompt once. auto takes the cheapest that the model supports.",
    )
    skip_zero_advantage: bool = Field(
        True, description="Leave rows that cannot move the weights out of the forward pass."
    )


class EvaluationConfig(Section):
    """Evaluation inside training, on the validation split."""

    every_steps: int = Field(0, ge=0, description="0 is off.")
    at_start: bool = Field(True, description="Before the first step.")
    at_end: bool = Field(True, description="After the last step.")
    limit: int | None = Field(None, ge=1, description="A seeded subset of so many problems.")
    sampling: GreedySamplingConfig = GreedySamplingConfig()
    num_samples: int = Field(1, ge=1, description="Completions of each problem.")
    stop_metric: str | None = Field(
        None, description="SFT only: stop once this metric of an evaluation ..."
    )
    stop_at: float | None = Field(None, description="... is at least this value.")

    @model_validator(mode="after")
    def _both_or_neither(self) -> EvaluationConfig:
        if (self.stop_metric is None) != (self.stop_at is None):
            raise ConfigError("evaluation.stop_metric and evaluation.stop_at go together; set both")
        return self


class CheckpointConfig(Section):
    """What is saved, and when."""

    every_steps: int = Field(0, ge=0, description="0 saves only at the end and when stopped.")
    save_total_limit: int = Field(2, ge=1, description="Older ones are pruned, never the best.")
    keep_best: bool = Field(True, description="Keep the model of the best validation accuracy.")


class TrackingConfig(Section):
    """Where metrics go besides metrics.jsonl and run.log."""

    logging_steps: int = Field(1, ge=1, description="Steps between two lines of console and log.")
    console: bool = Field(True, description="Progress on standard error.")
    save_rollouts_every: int = Field(
        1, ge=0, description="Steps between stored rollouts; 0 is off."
    )
    wandb: bool = Field(False, description="Weights & Biases; needs the extra wandb.")
    wandb_project: str = Field("workings", description="Where its runs are listed.")
    wandb_entity: str | None = Field(None, description="Whose project; null is your own.")
    wandb_mode: Literal["online", "offline"] = Field(
        "offline", description="offline needs no account; `wandb sync` sends it later."
    )
    tensorboard: bool = Field(False, description="TensorBoard; needs the extra tensorboard.")


class Run(RunSection):
    """What every kind of run has."""

    name: str = Field(description="Folder of the run below output_dir.")
    output_dir: str = Field("runs", description="Folder of all runs.")
    layout: Literal["default", "classic"] = Field(
        "default", description="classic names checkpoints as earlier programs did."
    )
    seed: int = Field(0, ge=0, description="Every random draw of the run follows from it.")
    num_threads: int = Field(0, ge=0, description="CPU threads for torch; 0 leaves it alone.")
    model: ModelConfig
    tracking: TrackingConfig = TrackingConfig()


class SFTConfig(Run):
    """Supervised fine-tuning on demonstrations."""

    kind: Literal["sft"] = "sft"
    data: DataConfig
    engine: EngineConfig = EngineConfig()
    reward: RewardConfig = RewardConfig()
    grader: GraderConfig = GraderConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    batch: BatchConfig = BatchConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    batch_size: int = Field(32, ge=1, description="Rows in one optimizer step.")
    loss: Literal["nll", "seq_sum", "dft"] = Field(
        "nll",
        description="nll: mean over the step's tokens; seq_sum: sum per row, mean over rows; dft: "
        "nll weighed by each token's own probability.",
    )
    normalize_constant: float = Field(1.0, gt=0, description="seq_sum divides each row by it.")
    trained_tokens: Literal["completion", "assistant", "all"] = Field(
        "completion",
        description="completion: the last turn; assistant: every turn of the assistant; all: "
        "prompt tokens too.",
    )
    epochs: float = Field(1.0, gt=0, description="Passes over the rows.")
    max_steps: int | None = Field(None, ge=0, description="Overrides epochs.")
    max_seconds: float | None = Field(None, gt=0, description="Stop after so much training time.")

    @model_validator(mode="after")
    def _constant_is_read(self) -> SFTConfig:
        check_normalize_constant(self.loss, self.normalize_constant)
        return self


def check_normalize_constant(loss: str, constant: float) -> None:
    """Raise ConfigError for a constant that the SFT loss does not read."""
    if loss != "seq_sum" and constant != 1:
        raise ConfigError(
            f"normalize_constant={constant:g} has no effect with loss={loss}",
            hint="it divides the sum of a row under loss=seq_sum",
        )


class OffPolicyConfig(Section):
    """Where a teacher's traces come from and how they enter a group; see objective.num_off."""

    traces: DatasetConfig | None = Field(
        None, description="Demonstrations, found by their question; null reads data.train's target."
    )
    choice: Literal["first", "random"] = Field("first", description="Which of several traces.")
    max_trace_length: int = Field(8192, ge=1, description="In tokens, EOS included.")
    cut_traces: Literal["drop", "error"] = Field(
        "drop", description="What becomes of a trace that is too long or was cut off; counted."
    )
    keep_prob: float = Field(1.0, ge=0, le=1, description="Share of prompts that use their trace.")
    wrong_traces: Literal["keep", "drop"] = Field(
        "keep", description="Traces that the reward finds wrong: kept, they get its low reward."
    )
    min_right: float = Field(
        0.9, ge=0, le=1, description="Least share of traces that must be right before step 0."
    )
    prompt_ending: str | None = Field(
        None, description="Text that every prompt has to end in, e.g. <think> and a line break."
    )
    prefix_schedule: Literal[
        "random", "fixed", "linear", "linear_max", "reverse_linear", "linear_variance"
    ] = Field("random", description="How much of a trace a guided row begins with.")
    prefix_min_ratio: float = Field(1.0, ge=0, le=1, description="Least share of a trace.")
    prefix_max_ratio: float = Field(1.0, ge=0, le=1, description="Largest share; 1, 1 is all.")
    prefix_steps: int = Field(1000, ge=1, description="Steps of a schedule that changes.")
    prefix_linear_max_ratio: float = Field(0.8, ge=0, le=1, description="Where linear begins.")
    prefix_share_across_samples: bool = Field(False, description="One share for all guided rows.")

    @model_validator(mode="after")
    def _schedule_is_defined(self) -> OffPolicyConfig:
        name = self.prefix_schedule
        if name == "linear_variance":
            raise ConfigError(
                "off_policy.prefix_schedule=linear_variance was never defined: LUFFY declares the "
                "name and gives it no body",
                hint="choose random, fixed, linear, linear_max or reverse_linear",
            )
        if self.prefix_min_ratio > self.prefix_max_ratio:
            raise ConfigError(
                f"off_policy.prefix_min_ratio={self.prefix_min_ratio:g} is above "
                f"off_policy.prefix_max_ratio={self.prefix_max_ratio:g}"
            )
        if name == "linear" and not self.prefix_share_across_samples:
            raise ConfigError(
                "off_policy.prefix_schedule=linear gives all guided rows of a prompt one share",
                hint="set off_policy.prefix_share_across_samples=true",
            )
        if name == "fixed" and self.prefix_share_across_samples:
            raise ConfigError(
                "off_policy.prefix_schedule=fixed gives every guided row of a prompt another share",
                hint="set off_policy.prefix_share_across_samples=false",
            )
        return self

    @property
    def whole_traces(self) -> bool:
        """True when guided rows are whole traces, which never go to the engine."""
        return (
            self.prefix_schedule in ("random", "fixed")
            and self.prefix_min_ratio == self.prefix_max_ratio == 1
        )


class ReplayConfig(Section):
    """The replay of own past successes (ExGRPO, 2510.02245); see objective.replay."""

    experience_ratio: float = Field(
        0.5, gt=0, lt=1, description="Share of a batch's prompts that replay a rollout."
    )
    lower: int = Field(0, ge=0, description="A problem enters with more right rollouts than this.")
    upper: int | None = Field(
        None, ge=1, description="... and at most so many; null is num_generations - 1."
    )
    weighting: Literal["normal", "linear", "sqrt", "linear_clip"] = Field(
        "normal", description="How problems are drawn by their number of right rollouts."
    )
    sigma: float = Field(1.0, gt=0, description="Width of normal, in rollouts.")
    select: Literal["entropy", "perplexity", "random"] = Field(
        "entropy", description="Which rollout of a problem: the lowest under the current policy."
    )
    start_solve_rate: float = Field(
        0.35, ge=0, le=1, description="Replay begins once a batch is solved so often."
    )
    max_age: int | None = Field(None, ge=1, description="Steps after which a rollout is dropped.")
    max_rollouts: int | None = Field(None, ge=1, description="Most rollouts kept.")


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


class PipelineConfig(RunSection):
    """SFT, then GRPO from its result; either phase may be skipped."""

    kind: Literal["pipeline"] = "pipeline"
    sft: SFTConfig
    grpo: GRPOConfig
    skip_sft: bool = Field(False, description="Load the adapter or model that SFT saved before.")
    skip_grpo: bool = Field(False, description="End with the result of SFT.")
    test: DatasetConfig | None = Field(
        None, description="Held-out problems, measured before, between and after the phases."
    )
    control: bool = Field(
        False, description="Also continue SFT for the time that GRPO took, and measure that."
    )

    @model_validator(mode="after")
    def _something_to_do(self) -> PipelineConfig:
        if self.skip_sft and self.skip_grpo:
            raise ConfigError("skip_sft and skip_grpo are both set, so there is nothing to do")
        if self.control and (self.skip_sft or self.skip_grpo or self.test is None):
            raise ConfigError(
                "control compares GRPO with SFT of the same length, so it needs both phases and "
                "test"
            )
        return self

    @model_validator(mode="after")
    def _two_folders(self) -> PipelineConfig:
        if (self.sft.output_dir, self.sft.name) == (self.grpo.output_dir, self.grpo.name):
            raise ConfigError(
                f"sft and grpo would both write to {self.sft.output_dir}/{self.sft.name}",
                hint="give one of them another name, e.g. grpo.name=grpo",
            )
        return self


class HeldOutConfig(Section):
    """Which rows of its data set a training run validates on."""

    fraction: float = Field(
        0.0, ge=0, lt=1, description="Share of the rows that the run holds out; 0 takes them all."
    )
    rows: Literal["problems", "demonstrations"] = Field(
        "problems", description="What the rows are read as: demonstrations by an SFT run."
    )
    limit: int | None = Field(None, ge=1, description="The run's subset of so many of them.")
    prompt_length_percentile: float | None = Field(
        None, gt=0, le=100, description="The run's limit on prompts, as a percentile of lengths."
    )
    reward_max_tokens: int | None = Field(
        None, ge=1, description="The run's sampling.max_tokens, which its length terms count from."
    )


class EvalConfig(Run):
    """Evaluation of one model on one or more data sets."""

    kind: Literal["eval"] = "eval"
    datasets: tuple[DatasetConfig, ...] = Field(
        min_length=1, description="Names of the group benchmark, or data sets in full."
    )
    template: str = Field("r1_zero", description="Name of a prompt template, or a file.")
    system_prompt: str | None = Field(
        None, description="Of a chat; null leaves it to template and data set."
    )
    max_prompt_length: int | None = Field(None, ge=1, description="In tokens.")
    overlong: Literal["error", "drop", "truncate"] = Field(
        "error", description="What becomes of a prompt over the limit; it is counted."
    )
    bad_gold: Literal["error", "drop"] = Field(
        "error", description="What becomes of a row whose answer cannot be graded against."
    )
    engine: EngineConfig = EngineConfig()
    sampling: GreedySamplingConfig = GreedySamplingConfig()
    num_samples: int = Field(1, ge=1, description="Completions of each problem.")
    reward: RewardConfig = RewardConfig()
    grader: GraderConfig = GraderConfig()
    held_out: HeldOutConfig | None = Field(
        None, description="Only what a training run validates on; -c RUN fills it in."
    )


class SampleConfig(RunSection):
    """A few answers of one model to one question."""

    kind: Literal["sample"] = "sample"
    seed: int = Field(0, ge=0, description="Every random draw follows from it.")
    num_threads: int = Field(0, ge=0, description="CPU threads for torch; 0 leaves it alone.")
    model: ModelConfig
    template: str = Field("own", description="own is the model's chat template.")
    system_prompt: str | None = Field(
        None, description="Of a chat; null leaves it to the template."
    )
    engine: EngineConfig = EngineConfig()
    sampling: SamplingConfig = SamplingConfig()
    num_samples: int = Field(1, ge=1, description="Answers to the question.")
