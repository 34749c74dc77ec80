"""What several kinds of run are made of: sections of settings, and the base of all runs.

The rules that tie two settings together stand beside them, so that they raise before anything heavy
loads. Composition of YAML files and overrides is `config.compose`; nothing here reads a file.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from workings.config.dataset import DatasetConfig as DatasetConfig
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
        "auto",
        description="Arithmetic. Trained weights are float32, on the device or (optimizer.offload) "
        "as masters in CPU memory; bfloat16 runs as autocast.",
    )
    attention: Literal["auto", "eager", "sdpa", "flash_attention_2"] = Field(
        "auto", description="auto is sdpa where the model has it, else eager."
    )
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1 ...")
    kernels: Literal["auto", "plain", "fused", "liger", "compiled"] = Field(
        "auto",
        description="Of the layers in training. plain: transformers' own; fused: ours, for Llama, "
        "Qwen2 and Qwen3; liger: Liger's, for more families (extra cuda); compiled: by "
        "torch.compile. auto, on a GPU, is the first of fused, liger and plain that knows the "
        "model.",
    )
    lora: LoraConfig | None = Field(None, description="Train adapters; null trains everything.")
    quantization: Literal["auto", "none", "4bit", "8bit"] = Field(
        "auto",
        description="Of the frozen base under an adapter (QLoRA); needs the extra quant. auto: as "
        "a saved adapter was trained, else none.",
    )
    chat_template: str | None = Field(
        None, description="Jinja file or text that replaces the model's."
    )
    trust_remote_code: bool = Field(
        False,
        description="Run Python code that comes with the weights; only from sources you trust.",
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
    def _answers_can_be_graded(self) -> DataConfig:
        for name, dataset in (("train", self.train), ("validation", self.validation)):
            if dataset is not None and dataset.is_judged:
                raise ConfigError(
                    f"data.{name} is {dataset.name or dataset.path}, which has no gold answers",
                    hint="evaluate it with workings eval, and let workings judge decide",
                )
        return self

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


_READ_BY = {
    "max_model_len": ("auto", "vllm"),
    "enforce_eager": ("auto", "vllm"),
    "lora_by_adapter": ("vllm", "server"),
    "server_url": ("server",),
    "connect_seconds": ("server",),
    "generate_seconds": ("server",),
    "sync_seconds": ("server",),
}
"""Settings of single engines."""
_SERVERS_OWN = ("max_batch_size", "dtype", "gpu_memory_utilization", "own_process")
"""Settings that `workings serve` takes, and a trainer that uses it does not."""


class EngineConfig(Section):
    """What samples."""

    name: Literal["auto", "transformers", "paged", "vllm", "server"] = Field(
        "auto", description="auto takes the fastest that can sample the model on its device."
    )
    max_batch_size: int | None = Field(
        None, ge=1, description="Most rows decoded at once; null is the engine's own choice."
    )
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="Of an engine's own weights; auto is what training computes in."
    )
    gpu_memory_utilization: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Share of the card for the key-value cache; with vllm, for all that it holds.",
    )
    sleep: bool = Field(
        True,
        description="Give that memory back while the trainer works on the same device, and take it "
        "again for the next samples.",
    )
    max_model_len: int | None = Field(
        None, ge=2, description="vllm: most tokens of prompt and completion; null is the model's."
    )
    enforce_eager: bool = Field(
        False, description="vllm: no CUDA graphs, for a faster start and slower samples."
    )
    lora_by_adapter: bool = Field(
        False,
        description="vllm, also on a server: it applies the adapter itself; false sends merged "
        "weights.",
    )
    server_url: str | None = Field(
        None, description="server: http://HOST:PORT, as workings serve prints it."
    )
    connect_seconds: float = Field(
        60.0, ge=0, description="server: longest wait for one that starts or is in use."
    )
    generate_seconds: float = Field(
        3600.0, gt=0, description="server: longest wait for the samples of one batch."
    )
    sync_seconds: float = Field(
        120.0, gt=0, description="server: longest wait for it to take a part of the weights."
    )
    own_process: bool = Field(
        False, description="Sample in a process of its own, with its own copy of the weights."
    )
    device: str | None = Field(
        None, description="Of that process: cpu, cuda, cuda:1 ...; null is the model's."
    )

    @property
    def rests(self) -> bool:
        """It sleeps while the trainer works: its memory is of use there."""
        elsewhere = self.name == "server" or (self.own_process and self.device is not None)
        return self.sleep and not elsewhere

    @model_validator(mode="after")
    def _server_is_named(self) -> EngineConfig:
        if self.name != "server":
            return self
        if self.server_url is None:
            raise ConfigError(
                "engine.name=server needs engine.server_url",
                hint="start `workings serve` on the other device or host; it prints its address",
            )
        for name in _SERVERS_OWN:
            value, default = getattr(self, name), type(self).model_fields[name].default
            if value != default:
                raise ConfigError(
                    f"engine.{name}={value} has no effect with engine.name=server",
                    hint=f"give it to `workings serve`, and leave it at {default} here",
                )
        return self

    @model_validator(mode="after")
    def _settings_are_read(self) -> EngineConfig:
        for name, engines in _READ_BY.items():
            value, default = getattr(self, name), type(self).model_fields[name].default
            if value != default and self.name not in engines:
                raise ConfigError(
                    f"engine.{name}={value} has no effect with engine.name={self.name}",
                    hint=f"leave it at {default}, or set engine.name to {' or '.join(engines)}",
                )
        return self

    @model_validator(mode="after")
    def _process_fits(self) -> EngineConfig:
        if self.device is not None and not self.own_process:
            raise ConfigError(
                f"engine.device={self.device} has no effect: the engine samples in the trainer's "
                "process, on the model's device",
                hint="set engine.own_process=true",
            )
        if self.own_process and self.lora_by_adapter:
            raise ConfigError(
                "engine.lora_by_adapter reads the adapter in the trainer's process, and "
                "engine.own_process samples in another",
                hint="set engine.lora_by_adapter=false, which sends merged weights",
            )
        return self


class GraderConfig(Section):
    """The grader, one setting for training, validation and evaluation."""

    num_workers: int = Field(1, ge=1, description="Processes for what needs computer algebra.")
    deadline_seconds: float = Field(2.0, gt=0, description="Most seconds of work on one answer.")
    store: str | None = Field(
        None, description="SQLite file that keeps grades between runs; null keeps none."
    )


class RewardConfig(Section):
    """Which reward; see docs/reference/rewards.md."""

    name: Literal["r1_zero", "question_only", "think_boxed", "tags"] = "r1_zero"
    mode: Literal["strict", "four_class"] = Field(
        "strict", description="four_class grades answers outside of the format too."
    )
    equality: Literal["strict", "grader"] = Field(
        "strict", description="strict: form counts, 2/4 is not 1/2; grader: what it proves equal."
    )
    fast: bool = Field(True, description="Of the strict equality: form alone, or value as well.")
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

    name: Literal["adamw", "adamw_8bit", "rmsprop"] = Field(
        "adamw",
        description="adamw_8bit keeps AdamW's moments in 8 bits (extra quant); rmsprop is torch's, "
        "plain.",
    )
    learning_rate: float = Field(1e-5, ge=0, description="The peak of the schedule.")
    betas: tuple[float, float] = Field((0.9, 0.95), description="Of AdamW's two moments.")
    rmsprop_alpha: float = Field(
        0.99, ge=0, lt=1, description="Decay of RMSprop's mean of squared gradients."
    )
    eps: float = Field(1e-8, gt=0, description="Added to the root that a step is divided by.")
    weight_decay: float = Field(0.0, ge=0, description="On matrices, not on biases and norms.")
    offload: bool = Field(
        False,
        description="Keep AdamW's moments in CPU memory, and under bfloat16 arithmetic the float32 "
        "weights too: the card holds bfloat16 weights. Less of its memory, slower steps.",
    )
    offload_gradients: bool = Field(
        False,
        description="With offload: gradients too go to CPU memory as soon as they are made.",
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
        offloading = ("offload", "offload_gradients")
        unread = {
            "adamw": ("rmsprop_alpha",),
            "adamw_8bit": ("rmsprop_alpha", *offloading),
            "rmsprop": ("betas", "weight_decay", *offloading),
        }
        for name in unread[self.name]:
            value, default = getattr(self, name), type(self).model_fields[name].default
            if value != default:
                raise ConfigError(
                    f"optimizer.{name}={value} has no effect with optimizer.name={self.name}",
                    hint=f"leave it at {default}, or choose another optimizer",
                )
        if self.offload_gradients and not self.offload:
            raise ConfigError(
                "optimizer.offload_gradients=True has no effect with optimizer.offload=False",
                hint="set optimizer.offload=true as well",
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

    microbatch_tokens: Literal["auto"] | Annotated[int, Field(ge=1)] = Field(
        "auto",
        description="Most tokens in one forward pass. auto is settled when a run begins: what the "
        "GPU has memory for, and 8192 on a CPU.",
    )
    microbatch_rows: int | None = Field(None, ge=1, description="Most rows in one forward pass.")
    layout: Literal["auto", "padded", "packed", "shared_prompt"] = Field(
        "auto",
        description="padded: one row each; packed: several in a row; shared_prompt: a group's "
        "prompt once. auto takes the cheapest that the model supports.",
    )
    activation_checkpointing: Literal["none", "selective", "full", "offloaded"] = Field(
        "none",
        description="Less memory for more time, from left to right. selective computes all but "
        "matrix products again, full whole layers; offloaded keeps their inputs in CPU memory.",
    )
    skip_zero_advantage: bool = Field(
        True, description="Leave rows that cannot move the weights out of the forward pass."
    )

    @property
    def settled_tokens(self) -> int:
        """`microbatch_tokens` as a number, which every loop puts in the place of `auto`.

        Raises ConfigError where nothing has done so yet.
        """
        if self.microbatch_tokens == "auto":
            raise ConfigError(
                "batch.microbatch_tokens=auto is not settled yet: the loops do it when they begin",
                hint="give a number, or pass the run through training.microbatch_tokens.settled",
            )
        return self.microbatch_tokens


class EvaluationConfig(Section):
    """Evaluation inside training, on the validation split and on sets that are only reported."""

    every_steps: int = Field(0, ge=0, description="0 is off.")
    at_start: bool = Field(True, description="Before the first step.")
    at_end: bool = Field(True, description="After the last step.")
    limit: int | None = Field(None, ge=1, description="A seeded subset of so many problems.")
    sampling: GreedySamplingConfig = GreedySamplingConfig()
    num_samples: int = Field(1, ge=1, description="Completions of each problem.")
    datasets: tuple[DatasetConfig, ...] = Field(
        (),
        description="Reported besides the validation rows, by names of benchmarks or in full; they "
        "never choose the best checkpoint.",
    )
    artefact: bool = Field(
        False,
        description="Also write OUTPUT_DIR/eval_runs/NAME/step_N/, one JSON file of each "
        "evaluation.",
    )
    token_entropy: bool = Field(
        False,
        description="Also measure the policy's entropy over every response, by a forward pass of "
        "its own: eval/avg_token_entropy.",
    )
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
    at_end: bool = Field(True, description="Save the last state, and the final model.")
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

    @model_validator(mode="after")
    def _something_is_trained(self) -> Run:
        model = self.model
        frozen = model.quantization in ("4bit", "8bit")
        adapted = model.lora is not None or model.adapter is not None
        if frozen and not adapted and "optimizer" in type(self).model_fields:
            raise ConfigError(
                f"model.quantization={model.quantization} freezes the weights, and there is no "
                "adapter to train",
                hint="set model.lora.rank=32 (QLoRA), or model.quantization=none",
            )
        return self
