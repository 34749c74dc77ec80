"""The names of earlier programs do the real thing: they train, on a tiny model."""

from __future__ import annotations

import json

import pytest
import torch

import workings
from tiny import save_tiny, tiny_tokenizer
from workings.errors import ConfigError
from workings.types import Problem, Prompt, Rollout, RolloutGroup

SUMS = "options: {num_problems: 24, operations: ['+'], terms: 2, operands: [1, 30]}"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("model") / "tiny")


def settings(model, output, name, *more):
    return [
        f"name={name}",
        f"output_dir={output}",
        "tracking.console=false",
        f"model={{name_or_path: {model}, dtype: float32, device: cpu}}",
        "~data",
        f"data.train={{path: arithmetic, {SUMS}}}",
        "data.template=think",
        "data.max_prompt_length=null",
        *more,
    ]


def losses(folder):
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [row["train/loss"] for row in rows if "train/loss" in row]


def test_sft_through_the_earlier_names(model, tmp_path):
    config = workings.SFTTrainingConfig.from_yaml(
        "sft",
        settings(
            model, tmp_path, "sft", "batch_size=8", "max_steps=6", "optimizer={learning_rate: 0.01}"
        ),
    )
    trainer = workings.create_sft_trainer(config)
    assert isinstance(trainer, workings.SFTTrainingPipeline)
    result = trainer.train()
    assert result.state.step == 6
    found = losses(tmp_path / "sft")
    assert found[-1] < found[0]
    assert (trainer.final / "model.safetensors").is_file()
    assert trainer.paths.folder == tmp_path / "sft"


def test_grpo_through_the_earlier_names(model, tmp_path):
    config = workings.GRPOTrainingConfig.from_yaml(
        "grpo",
        settings(
            model,
            tmp_path,
            "grpo",
            "reward.overlong_buffer=9",
            "sampling={max_tokens: 10, stop: [a, e, '3', '7', x, '+']}",
            "prompts_per_step=4",
            "num_generations=4",
            "max_steps=2",
        ),
    )
    trainer = workings.create_grpo_trainer(config)
    assert isinstance(trainer, workings.GRPOTrainingPipeline)
    assert trainer.train().state.step == 2
    assert len(losses(tmp_path / "grpo")) == 2
    assert (trainer.final / "model.safetensors").is_file()
    with pytest.raises(workings.AlreadyFinished):
        trainer.train(resume="latest")


def test_the_model_manager_loads_puts_lora_on_and_saves(model, tmp_path):
    config = workings.ModelConfig(
        name_or_path=str(model), device="cpu", lora={"rank": 2, "targets": ["q_proj"]}
    )
    manager = workings.create_model_manager(config, seed=1)
    template = workings.PromptTemplateManager().template
    manager.apply_template(template)
    trainable = [name for name, p in manager.model.named_parameters() if p.requires_grad]
    assert trainable
    assert all(".lora_" in name for name in trainable)
    folder = manager.save(tmp_path / "phase0")
    assert (folder / "adapter_config.json").is_file()
    again = workings.load_model(str(folder), device="cpu")
    assert again.tokenizer.chat_template == template.chat_template
    with pytest.raises(ConfigError, match="brings no chat template"):
        manager.apply_template(workings.load_template("think"))


def test_unsloth_is_refused_with_a_remedy(model):
    with pytest.raises(ConfigError, match=r"Unsloth is not supported.*\n\nhint: model\.lora"):
        workings.create_model_manager(
            workings.ModelConfig(name_or_path=str(model)), use_unsloth=True
        )


def test_data_is_loaded_split_and_encoded():
    config = workings.DataConfig(
        train={"path": "arithmetic", "options": {"num_problems": 20}},
        validation_fraction=0.25,
        template="think",
        max_response_length=1000,
    )
    loader = workings.create_dataset_loader(config, seed=2)
    train, held_out = loader.split_demonstrations()
    assert (len(train), len(held_out)) == (15, 5)
    problems, _ = loader.split_problems()
    assert len(loader.notes) == 2
    processor = workings.create_dataset_processor(config, tiny_tokenizer())
    rows = processor.demonstrations(train)
    assert len(rows) == 15
    assert rows[0].response_ids[-1] == tiny_tokenizer().eos_token_id
    assert len(processor.prompts(problems)) == 15
    assert processor.template.name == "think"
    assert len(processor.notes) == 2


def test_prompts_in_tags_of_ones_own():
    config = workings.PromptConfig(
        solution_start="<A>", solution_end="</A>", system_prompt="Use {solution_start}."
    )
    manager = workings.PromptTemplateManager(config)
    tokenizer = tiny_tokenizer()
    prompt = manager.prompt("1+1?", tokenizer)
    assert prompt.text == "Use <A>.<|im_end|>1+1?<start_working_out>"
    assert tokenizer.decode(list(prompt.ids)) == prompt.text
    assert manager.response("so", "2") == "<start_working_out>so<end_working_out><A>2</A>"


def test_the_reward_manager_rewards_by_the_tags_it_is_given():
    prompt = workings.PromptConfig(solution_start="<A>", solution_end="</A>")
    reward = workings.create_reward_manager(workings.RewardConfig(name="tags"), prompt=prompt)
    text = "so<end_working_out><A>2</A>"
    rollout = Rollout(
        ids=[1],
        sampling_logprobs=[0.0],
        kept_mass=[1.0],
        mask=[True],
        off_policy=[False],
        text=text,
        finish_reason="eos",
        weight_version=0,
    )
    problem = Problem(id="1", question="1+1?", answer="2")
    group = RolloutGroup(prompt=Prompt(problem=problem, ids=(1,), text="1+1?"), rollouts=(rollout,))
    (graded,) = workings.grade_groups([group], reward)
    assert graded.rollouts[0].components["match_format_exactly"] == 3.0
    assert graded.rollouts[0].reward == 12.5
    plain = workings.create_reward_manager()
    assert plain.settings["reward"] == "r1_zero"


def test_names_that_lead_elsewhere_lead_there():
    assert workings.VLLMSamplingConfig(temperature=0.5).temperature == 0.5
    logits = torch.randn(3, 7)
    labels = torch.tensor([1, 2, 3])
    expected = torch.log_softmax(logits, -1).gather(-1, labels[:, None]).squeeze(-1)
    torch.testing.assert_close(workings.selective_log_softmax(logits, labels), expected)
    assert workings.MemoryEfficientAdamW.__name__ == "OffloadedAdamW"


def test_sft_with_offloaded_moments_is_the_same_run_and_resumes(model, tmp_path):
    for name, offload in (("plain", "false"), ("offloaded", "true")):
        more = ["batch_size=8", "max_steps=3", f"optimizer={{offload: {offload}}}"]
        config = workings.SFTConfig.from_yaml("sft", settings(model, tmp_path, name, *more))
        workings.create_sft_trainer(config).train()
        longer = config.model_copy(update={"max_steps": 5})
        workings.create_sft_trainer(longer).train(resume="latest")
    assert len(losses(tmp_path / "plain")) == 5
    assert losses(tmp_path / "plain") == losses(tmp_path / "offloaded")
