"""Every row of the alias table, against a list written by hand from the earlier programs' names."""

from __future__ import annotations

from ast import literal_eval
from typing import Any

import pytest

from workings.config.aliases import ALIASES, CONFIG_NAMES, REFUSALS, Alias, spell
from workings.config.older import settle
from workings.config.overrides import read_overrides
from workings.config.sources import read_source, shipped_folder
from workings.config.trees import Tree
from workings.errors import ConfigError

# name=value -> path=value, the values as Python would read them
EVERY_RUN = """
model_name_or_path=Qwen/Qwen2.5-0.5B    model.name_or_path='Qwen/Qwen2.5-0.5B'
model_name=Qwen/Qwen2.5-0.5B            model.name_or_path='Qwen/Qwen2.5-0.5B'
model_path=models/base                  model.name_or_path='models/base'
model_id=a/b                            model.name_or_path='a/b'
pretrain=a/b                            model.name_or_path='a/b'
model.path=a/b                          model.name_or_path='a/b'
model.model_name_or_path=a/b            model.name_or_path='a/b'
adapter_path=out/lora                   model.adapter='out/lora'
adapter_name_or_path=out/lora           model.adapter='out/lora'
lora_path=out/lora                      model.adapter='out/lora'
torch_dtype=bf16                        model.dtype='bfloat16'
torch_dtype=float32                     model.dtype='float32'
dtype=fp32                              model.dtype='float32'
bf16=true                               model.dtype='bfloat16'
bf16=false                              model.dtype='float32'
attn_implementation=flash_attention_2   model.attention='flash_attention_2'
load_in_4bit=true                       model.quantization='4bit'
load_in_4bit=false                      -
load_in_8bit=true                       model.quantization='8bit'
load_in_8bit=false                      -
lora_r=16                               model.lora.rank=16
lora_rank=16                            model.lora.rank=16
model.lora_r=16                         model.lora.rank=16
lora_alpha=32                           model.lora.alpha=32
lora_dropout=0.05                       model.lora.dropout=0.05
target_modules=[q_proj,v_proj]          model.lora.targets=['q_proj','v_proj']
lora_target_modules=[q_proj]            model.lora.targets=['q_proj']
backend=hf                              engine.name='transformers'
backend="hf"                            engine.name='transformers'
backend=vllm                            engine.name='vllm'
inference_backend=huggingface           engine.name='transformers'
rollout.name=vllm                       engine.name='vllm'
use_vllm=true                           engine.name='vllm'
use_vllm=false                          engine.name='transformers'
max_num_seqs=256                        engine.max_batch_size=256
gpu_memory_utilization=0.7               engine.gpu_memory_utilization=0.7
run_name=first                          name='first'
experiment_name=first                   name='first'
project_name=maths                      tracking.wandb_project='maths'
wandb_project_name=maths                tracking.wandb_project='maths'
report_to=wandb                         tracking.wandb=True
report_to=tensorboard                   tracking.tensorboard=True
report_to=none                          -
reward_name=tags                        reward.name='tags'
reward_fn=question_only                 reward.name='question_only'
"""

TRAINING = """
lr=0                                    optimizer.learning_rate=0
lr=3e-5                                 optimizer.learning_rate=3e-5
optim.lr=3e-5                           optimizer.learning_rate=3e-5
learning_rate=3e-5                      optimizer.learning_rate=3e-5
grad_clip=0.5                           optimizer.max_grad_norm=0.5
max_gradient_norm=0.5                   optimizer.max_grad_norm=0.5
gradient_clip=0.5                       optimizer.max_grad_norm=0.5
lr_scheduler_type=cosine                optimizer.schedule='cosine'
lr_scheduler_type=constant_with_warmup  optimizer.schedule='constant'
num_warmup_steps=5                      optimizer.warmup_steps=5
lr_warmup_steps_ratio=0.1               optimizer.warmup_ratio=0.1
adam_epsilon=1e-6                       optimizer.eps=1e-6
optim=adamw_torch                       optimizer.name='adamw'
optim=adamw_torch_fused                 optimizer.name='adamw'
optim=adamw_8bit                        optimizer.name='adamw_8bit'
optim=adamw_bnb_8bit                    optimizer.name='adamw_8bit'
optim=rmsprop                           optimizer.name='rmsprop'
train_path=a.jsonl                      data.train.path='a.jsonl'
train_file=a.jsonl                      data.train.path='a.jsonl'
train_files=a.parquet                   data.train.path='a.parquet'
train_data_path=a.jsonl                 data.train.path='a.jsonl'
dataset=a/b                             data.train.path='a/b'
dataset_name=a/b                        data.train.path='a/b'
dataset_path=a/b                        data.train.path='a/b'
data.train_files=a.parquet              data.train.path='a.parquet'
dataset_config=main                     data.train.subset='main'
subset=main                             data.train.subset='main'
train_split=cot                         data.train.split='cot'
dataset_split=cot                       data.train.split='cot'
unique_train_examples=128               data.train.limit=128
unique_train_examples=all               data.train.limit=None
unique_train_examples="all"             data.train.limit=None
num_train_examples=128                  data.train.limit=128
max_train_samples=-1                    data.train.limit=None
val_path=b.jsonl                        data.validation.path='b.jsonl'
val_file=b.jsonl                        data.validation.path='b.jsonl'
val_files=b.jsonl                       data.validation.path='b.jsonl'
val_data_path=b.jsonl                   data.validation.path='b.jsonl'
validation_path=b.jsonl                 data.validation.path='b.jsonl'
train_validation_split=0.9              data.validation_fraction=0.1
prompt_template=think                   data.template='think'
prompt_name=think                       data.template='think'
length_percentile=90                    data.prompt_length_percentile=90
use_gradient_checkpointing=unsloth      batch.activation_checkpointing='offloaded'
enable_gradient_checkpointing=true      batch.activation_checkpointing='full'
gradient_checkpointing=false            batch.activation_checkpointing='none'
model.gradient_checkpointing=true       batch.activation_checkpointing='full'
model.use_gradient_checkpointing=false  batch.activation_checkpointing='none'
model.enable_gradient_checkpointing=True  batch.activation_checkpointing='full'
val_every_steps=50                      evaluation.every_steps=50
eval_steps=50                           evaluation.every_steps=50
eval_every=50                           evaluation.every_steps=50
test_freq=10                            evaluation.every_steps=10
test_freq=-1                            evaluation.every_steps=0
eval_strategy=no                        evaluation.every_steps=0
eval_strategy=steps                     -
eval_on_start=false                     evaluation.at_start=False
val_before_train=true                   evaluation.at_start=True
max_eval_samples=100                    evaluation.limit=100
num_eval_examples=100                   evaluation.limit=100
num_val_examples=100                    evaluation.limit=100
eval_temperature=0.6                    evaluation.sampling.temperature=0.6
val_temperature=0.6                     evaluation.sampling.temperature=0.6
eval_n=4                                evaluation.num_samples=4
n_val=4                                 evaluation.num_samples=4
save_steps=100                          checkpoint.every_steps=100
save_every_steps=100                    checkpoint.every_steps=100
save_freq=-1                            checkpoint.every_steps=0
max_checkpoints=3                       checkpoint.save_total_limit=3
max_optim_to_keep=3                     checkpoint.save_total_limit=3
load_best_model_at_end=true             checkpoint.keep_best=True
micro_batch_size=2                      batch.microbatch_rows=2
microbatch_size=2                       batch.microbatch_rows=2
packing=true                            batch.layout='packed'
packing=false                           batch.layout='padded'
ppo_max_token_len_per_gpu=16384         batch.microbatch_tokens=16384
"""

SFT = """
max_seq_length=2048                     data.max_response_length=1536
max_length=2048                         data.max_response_length=1536
model.max_seq_length=2048               data.max_response_length=1536
num_train_epochs=2                      epochs=2
num_epochs=2                            epochs=2
n_epochs=2                              epochs=2
total_epochs=2                          epochs=2
trainer.total_epochs=2                  epochs=2
num_train_steps=10                      max_steps=10
num_train_steps=-1                      max_steps=None
total_training_steps=10                 max_steps=10
sft_data_path=a.jsonl                   data.train.path='a.jsonl'
sft_dataset_name=a/b                    data.train.path='a/b'
train_batch_size=64                     batch_size=64
global_batch_size=64                    batch_size=64
completion_only=false                   trained_tokens='all'
completion_only=true                    trained_tokens='completion'
completion_only_loss=false              trained_tokens='all'
train_on_prompt=true                    trained_tokens='all'
train_on_prompt=false                   trained_tokens='completion'
assistant_only_loss=true                trained_tokens='assistant'
assistant_only_loss=false               -
sft_training.learning_rate=2e-4         optimizer.learning_rate=2e-4
training.lr=2e-4                        optimizer.learning_rate=2e-4
per_device_train_batch_size=4           batch_size=4 batch.microbatch_rows=4
gradient_accumulation_steps=4           batch_size=128 batch.microbatch_rows=32
"""

GRPO = """
max_seq_length=2048                     sampling.max_tokens=1536
max_length=2048                         sampling.max_tokens=1536
group_size=4                            num_generations=4
n=4                                     num_generations=4
rollout.n=4                             num_generations=4
actor_rollout_ref.rollout.n=4           num_generations=4
num_rollouts=4                          num_generations=4
n_rollouts=4                            num_generations=4
grpo_training.num_generations=2         num_generations=2
data.train_batch_size=64                prompts_per_step=64
n_prompts_per_rollout_batch=64          prompts_per_step=64
rollout_batch_size=256                  prompts_per_step=32
ppo_mini_batch_size=16                  train_batch_size=128
actor.ppo_mini_batch_size=16            train_batch_size=128
minibatch_prompts=16                    train_batch_size=128
epochs_per_rollout_batch=2              epochs_per_rollout=2
num_iterations=2                        epochs_per_rollout=2
ppo_epochs=2                            epochs_per_rollout=2
n_grpo_steps=50                         max_steps=50
num_train_steps=50                      max_steps=50
total_training_steps=50                 max_steps=50
temperature=0.9                         sampling.temperature=0.9
sampling_temperature=0.9                sampling.temperature=0.9
generation.temperature=0.6              sampling.temperature=0.6
rollout.temperature=0.6                 sampling.temperature=0.6
top_p=0.95                              sampling.top_p=0.95
sampling_top_p=0.95                     sampling.top_p=0.95
generation.top_p=0.95                   sampling.top_p=0.95
top_k=50                                sampling.top_k=50
top_k=-1                                sampling.top_k=-1
sampling_top_k=50                       sampling.top_k=50
min_p=0.1                               sampling.min_p=0.1
sampling_min_p=0.1                      sampling.min_p=0.1
max_tokens=512                          sampling.max_tokens=512
sampling_max_tokens=512                 sampling.max_tokens=512
max_new_tokens=512                      sampling.max_tokens=512
max_completion_length=512               sampling.max_tokens=512
max_response_length=512                 sampling.max_tokens=512
min_tokens=4                            sampling.min_tokens=4
sampling_min_tokens=4                   sampling.min_tokens=4
min_new_tokens=4                        sampling.min_tokens=4
stop=</answer>                          sampling.stop=['</answer>']
stop_strings=</answer>                  sampling.stop=['</answer>']
loss_type=dr_grpo                       objective.preset='dr_grpo'
importance_sampling_level=token         objective.ratio='token'
cliprange=0.1                           objective.epsilon=0.1
clip_range=0.1                          objective.epsilon=0.1
clip_ratio=0.1                          objective.epsilon=0.1
actor_rollout_ref.actor.clip_ratio=0.1  objective.epsilon=0.1
clip_ratio_low=0.1                      objective.epsilon=0.1
clip_ratio_high=0.28                    objective.epsilon_high=0.28
clip_upper_bound=1.28                   objective.epsilon_high=0.28
clip_upper_bound=1.0                    objective.epsilon_high=0.2
loss_agg_mode=token-mean                objective.reduction='token_mean'
loss_agg_mode=seq-mean-token-mean       objective.reduction='seq_mean_token_mean'
loss_agg_mode=seq-mean-token-sum        objective.reduction='seq_mean_token_sum'
loss_agg_mode=seq-mean-token-sum-norm   objective.reduction='seq_mean_token_sum_norm'
length_norm=mean                        objective.reduction='seq_mean_token_mean'
length_norm=constant                    objective.reduction='seq_mean_token_sum_norm'
actor.loss_remove_token_mean=true       objective.reduction='seq_mean_token_sum_norm'
loss_remove_token_mean=false            objective.reduction='token_mean'
loss_remove_clip=true                   objective.surrogate='ratio'
loss_remove_clip=false                  objective.surrogate='ppo_clip'
use_std_normalization=true              objective.advantage='group'
normalize_by_std=false                  objective.advantage='group_mean'
algorithm.grpo_use_std=false            objective.advantage='group_mean'
grpo_use_std=true                       objective.advantage='group'
algorithm.norm_adv_by_std_in_grpo=false objective.advantage='group_mean'
norm_adv_by_std_in_grpo=true            objective.advantage='group'
scale_rewards=group                     objective.advantage='group'
scale_rewards=none                      objective.advantage='group_mean'
scale_rewards=batch                     objective.advantage='group_mean_batch_std'
scale_rewards=true                      objective.advantage='group'
scale_rewards=false                     objective.advantage='group_mean'
adv_estimator=grpo                      objective.advantage='group'
algorithm.adv_estimator=grpo            objective.advantage='group'
adv_estimator=grpo_vectorized           objective.advantage='group'
adv_estimator=rloo                      objective.advantage='rloo'
adv_estimator=reinforce_plus_plus       objective.advantage='reinforce_pp'
adv_estimator=reinforce_plus_plus_baseline   objective.advantage='reinforce_pp_baseline'
adv_estimator=remax                     objective.advantage='remax'
adv_estimator=opo                       objective.advantage='opo'
adv_estimator=grpo_passk                objective.advantage='pass_k'
adv_estimator=gpg                       objective.advantage='gpg'
adv_estimator=gdpo                      objective.advantage='gdpo'
policy_loss.loss_mode=vanilla           objective.surrogate='ppo_clip' objective.ratio='token'
policy_loss.loss_mode=gspo     objective.surrogate='ppo_clip' objective.ratio='sequence_token'
loss_mode=cispo                         objective.surrogate='cispo' objective.ratio='token'
loss_mode=sapo                          objective.surrogate='sapo' objective.ratio='token'
loss_mode=geo_mean                      objective.surrogate='gmpo' objective.ratio='geo_clipped'
loss_mode=dppo_tv                       objective.surrogate='dppo_tv' objective.ratio='token'
loss_mode=clip_cov                      objective.surrogate='clip_cov' objective.ratio='token'
loss_mode=kl_cov                        objective.surrogate='kl_cov' objective.ratio='token'
loss_mode=gpg                           objective.surrogate='logp' objective.ratio='none'
loss_type=luspo                         objective.preset='luspo'
importance_sampling_level=sequence      objective.ratio='sequence'
epsilon=0.1                             objective.epsilon=0.1
epsilon_high=0.28                       objective.epsilon_high=0.28
delta=4.0                               objective.dual_clip=4.0
clip_ratio_c=3.0                        objective.dual_clip=3.0
clip_ratio_c=null                       objective.dual_clip=None
beta=0.04                               objective.beta=0.04
use_bias_correction_kl=true             objective.kl_estimator='k3_is'
use_bias_correction_kl=false            -
use_kl_loss=true                        objective.beta=0.001 objective.kl_in='loss'
use_kl_loss=false                       objective.beta=0.0
actor.kl_loss_coef=0.01                 objective.beta=0.01 objective.kl_in='loss'
kl_loss_coef=0.0                        objective.beta=0.0
kl_loss_type=low_var_kl                 -
algorithm.kl_ctrl.kl_coef=0.000         objective.beta=0.0
kl_coef=0.05                            objective.beta=0.05 objective.kl_in='reward'
algorithm.use_kl_in_reward=false        objective.beta=0.0
use_kl_in_reward=true                   objective.beta=0.001 objective.kl_in='reward'
entropy_coef=0.01                       objective.entropy_coef=0.01
actor.entropy_coeff=0.001               objective.entropy_coef=0.001
top_entropy_quantile=0.2                objective.top_entropy_quantile=0.2
disable_truncation_advantage=true       objective.zero_truncated_advantage=True
data.disable_truncation_advantage=false   objective.zero_truncated_advantage=False
overlong_buffer.enable=false            objective.overlong_share=0.0 reward.overlong_buffer=0
reward_model.overlong_buffer.len=4096   reward.overlong_buffer=4096
overlong_buffer.penalty_factor=1.0      -
overlong_buffer.penalty_factor=0.5      reward.weights.overlong=0.5
algorithm.filter_groups.enable=true     objective.dynamic_sampling='filter'
filter_groups.enable=false              objective.dynamic_sampling='none'
filter_groups.max_num_gen_batches=5     objective.max_gen_batches=5
filter_groups.metric=acc                -
data.max_response_length=8192           sampling.max_tokens=8192
data.shuffle=true                       -
ref.use_ref=false                       -
trainer.critic_warmup=0                 -
fsdp_config.optimizer_offload=true      optimizer.offload=True
optimizer_offload=false                 optimizer.offload=False
trainer.default_local_dir=out           output_dir='out'
trainer.logger=[console,wandb]          tracking.wandb=True
logger=console                          -
model.use_remove_padding=true           -
use_remove_padding=true                 -
use_dynamic_bsz=true                    -
ppo_micro_batch_size=64                 -
data.val_batch_size=512                 -
ulysses_sequence_parallel_size=1        -
tensor_model_parallel_size=2            -
fsdp_config.param_offload=true          -
param_offload=false                     -
grad_offload=false                      -
n_gpus_per_node=8                       -
nnodes=1                                -
default_hdfs_dir=null                   -
all_max_clip=-1                         objective.prob_clip_max=None
all_max_clip=0.99                       objective.prob_clip_max=0.99
rollout.prefix_reward_weight_beta=2.0   objective.on_advantage_scale=2.0
skip_grad_bound=500                     optimizer.skip_above_grad_norm=500
mask_truncated_completions=true         objective.mask_truncated=True
vllm_importance_sampling_mode=token_truncate   objective.correction='tis_token'
vllm_importance_sampling_mode=token_mask     objective.correction='icepop'
vllm_importance_sampling_mode=sequence_truncate   objective.correction='seq_product_truncate'
vllm_importance_sampling_mode=sequence_mask  objective.correction='seq_product_mask'
vllm_importance_sampling_correction=true     -
vllm_importance_sampling_correction=false    objective.correction='none'
vllm_importance_sampling_clip_max=3.0   objective.correction_cap=3.0
vllm_importance_sampling_cap=2.0        objective.correction_cap=2.0
vllm_importance_sampling_clip_min=0.5   objective.correction_low=0.5
per_device_train_batch_size=16          prompts_per_step=2 batch.microbatch_rows=16
gradient_accumulation_steps=128         batch.microbatch_rows=2
"""

EVAL = """
max_seq_length=2048                     sampling.max_tokens=1536
max_length=2048                         sampling.max_tokens=1536
n=8                                     num_samples=8
n_samples=8                             num_samples=8
num_return_sequences=8                  num_samples=8
generation.temperature=0.6              sampling.temperature=0.6
generation.top_p=0.95                   sampling.top_p=0.95
temperature=0.6                         sampling.temperature=0.6
max_new_tokens=512                      sampling.max_tokens=512
stop_strings=</answer>                  sampling.stop=['</answer>']
prompt_template=think                   template='think'
prompt_name=think                       template='think'
data.template=think                     template='think'
benchmark=gsm8k                         datasets=['gsm8k']
benchmarks=[gsm8k,math500]              datasets=['gsm8k','math500']
dataset=gsm8k                           datasets=['gsm8k']
dataset_name=gsm8k                      datasets=['gsm8k']
val_datasets=[gsm8k]                    datasets=['gsm8k']
datasets=[competition_math,gsm8k,math500]   datasets=['competition_math','gsm8k','math500']
max_problems=10                         limit=10
num_examples=10                         limit=10
num_eval_examples=10                    limit=10
model.gradient_checkpointing=true       -
model.use_gradient_checkpointing=true   -
model.enable_gradient_checkpointing=true  -
"""

# In a group of eight with one row of a teacher, as in LUFFY's scripts.
LUFFY = """
rollout.n_prefix=2                      objective.num_off=2
n_prefix=-1                             objective.num_off=-1
n_prefix=0                              objective.num_off=0
actor.off_policy_reshape=p_div_p_0.1    objective.off_shaping='ratio' objective.gamma=0.1
off_policy_reshape=p_div_p_0.3          objective.off_shaping='ratio' objective.gamma=0.3
off_policy_reshape=no_reshape           objective.off_shaping='no_reshape'
off_policy_reshape=square_root          objective.off_shaping='square_root'
off_policy_reshape=pow                  objective.off_shaping='pow'
off_policy_reshape=logp                 objective.off_shaping='logp'
off_policy_reshape=p_logp               objective.off_shaping='p_logp'
off_policy_reshape_weight=0.2           objective.off_shaping_weight=0.2
off_policy_reshape_pow_exp=0.3          objective.off_shaping_power=0.3
on_policy_reshape=square_root           objective.on_shaping='square_root'
on_policy_reshape=p_div_p_0.5           objective.on_shaping='ratio' objective.gamma=0.5
on_policy_reshape_weight=0.1            -
on_policy_reshape_pow_exp=0.5           -
use_off_policy_loss=true                objective.off_policy_loss=True
use_off_policy_loss=false               objective.off_policy_loss=False
use_off_policy_probs=false              objective.use_teacher_probs=False
use_off_policy_probs=true               objective.use_teacher_probs=True
off_policy_max_clip=-1                  objective.off_clip_max=None
off_policy_max_clip=0.9                 objective.off_clip_max=0.9
off_policy_min_clip=-1                  objective.off_clip_min=None
use_sft_multitask_loss=true             objective.sft_loss_coef=1.0
use_sft_multitask_loss=false            objective.sft_loss_coef=0.0
actor.sft_loss_coef=0.5                 objective.sft_loss_coef=0.5
prefix_reward_weight_alpha=0.5          objective.off_advantage_scale=0.5
min_prefix_ratio=0.2                    off_policy.prefix_min_ratio=0.2
rollout.max_prefix_ratio=0.8            off_policy.prefix_max_ratio=0.8
max_prefix_ratio=0.0                    objective.num_off=0
prefix_strategy=linear_max              off_policy.prefix_schedule='linear_max'
prefix_steps=300                        off_policy.prefix_steps=300
prefix_linear_max_ratio=0.7             off_policy.prefix_linear_max_ratio=0.7
prefix_share_across_samples=true        off_policy.prefix_share_across_samples=True
max_prefix_len=4096                     off_policy.max_trace_length=4096
data.sample_target_ratio=0.5            off_policy.keep_prob=0.5
sample_target_ratio=1.0                 off_policy.keep_prob=1.0
data.reward_impl_version=3              reward.name='think_boxed' reward.fast=False
reward_impl_version=0                   reward.name='think_boxed' reward.fast=True
reward_impl_version=2                   reward.name='question_only' reward.fast=True
reward_impl_version=4                   reward.name='question_only' reward.fast=False
trainer.experience=true                 objective.replay=True objective.num_off=0
experience=false                        objective.replay=False
trainer.experience_ratio=0.3            replay.experience_ratio=0.3
experience_lbound=1                     replay.lower=1
experience_rbound=6                     replay.upper=6
experience_start_sratio=0.4             replay.start_solve_rate=0.4
exp_metric=ent                          replay.select='entropy'
exp_metric=ppl                          replay.select='perplexity'
exp_select_mode=argmin                  -
exp_select_mode=random                  replay.select='random'
exp_bucket_manager=sqrt                 replay.weighting='sqrt'
exp_is_correct=true                     -
exp_sample_range=all                    -
"""

ROWS = {
    "sft": EVERY_RUN + TRAINING + SFT,
    "grpo": EVERY_RUN + TRAINING + GRPO,
    "grpo, a teacher": LUFFY,
    "eval": EVERY_RUN + EVAL,
}
# What the settings around an earlier name are, where it needs them.
AROUND: dict[str, Tree] = {
    "sft": {"data": {"max_prompt_length": 512}},
    "grpo": {"data": {"max_prompt_length": 512}},
    "grpo, a teacher": {"objective": {"num_off": 1}},
    "eval": {"max_prompt_length": 512},
}


def _rows() -> list[tuple[str, str, str]]:
    return [
        (kind, *(part.strip() for part in line.split(None, 1)))  # type: ignore[misc]
        for kind, text in ROWS.items()
        for line in text.splitlines()
        if line
    ]


def _read(where: str, override: str) -> dict[str, Any]:
    """The settings that one override sets, as the composition would."""
    kind = where.partition(",")[0]
    given = read_overrides([override], kind, [shipped_folder()])
    found: Tree = {}
    older: Tree = {}
    for new in given.assignments:
        section, _, name = new.path.partition(".")
        if section == "__older__":
            older[name] = new.value
        else:
            found[new.path] = new.value
    settled = settle(older, AROUND[where], kind)
    return {**found, **{each.path: each.value for each in settled}}


@pytest.mark.parametrize(("kind", "override", "expected"), _rows())
def test_every_alias_leads_to_its_setting(kind: str, override: str, expected: str) -> None:
    pairs = [] if expected == "-" else [pair.split("=", 1) for pair in expected.split(" ")]
    wanted = {path: literal_eval(value) for path, value in pairs}
    assert _read(kind, override) == wanted


@pytest.mark.parametrize("kind", ["sft", "grpo", "eval"])
def test_every_row_of_the_table_is_tested(kind: str) -> None:
    names = [o.split("=", 1)[0] for where, o, _ in _rows() if where.partition(",")[0] == kind]
    parts = [name.split(".") for name in names]
    tested = {".".join(part[first:]) for part in parts for first in range(len(part))}
    assert set(ALIASES[kind]) <= tested


def test_sample_reads_the_rows_of_eval_that_it_has_a_setting_for() -> None:
    assert {
        new.path.removeprefix("sampling."): new.value
        for new in read_overrides(["generation.temperature=0.2"], "sample", []).assignments
    } == {"temperature": 0.2}
    assert ALIASES["sample"].items() <= ALIASES["eval"].items()
    assert not any(alias.target == "datasets" for alias in ALIASES["sample"].values())


REFUSED = """
use_unsloth=true
unsloth=true
fp16=true
off_policy_cliprange=0.3
off_policy_normalize=true
use_off_policy_clip=true
off_abs_cliprange=0.1
off_policy_loss_impl=seq
use_sft_prefix_reward=true
sft_prefix_reward_weight=1.0
print_every_steps=5
"""
HARMLESS = """
use_unsloth=false unsloth=false fp16=false
off_policy_cliprange=0.2 off_policy_normalize=false use_off_policy_clip=false
off_abs_cliprange=null off_policy_loss_impl=token use_sft_prefix_reward=false
sft_prefix_reward_weight=0
print_every_steps=0
"""


@pytest.mark.parametrize("override", REFUSED.split())
def test_a_name_without_a_counterpart_is_refused_with_what_to_do(override: str) -> None:
    name, value = override.split("=")
    with pytest.raises(ConfigError) as caught:
        read_overrides([override], "grpo", [])
    assert caught.value.message.casefold() == f"{name}={value} has no counterpart".casefold()
    assert caught.value.hint == REFUSALS[name].reason


@pytest.mark.parametrize("override", HARMLESS.split())
def test_a_value_that_asks_for_nothing_is_accepted(override: str) -> None:
    assert read_overrides([override], "grpo", []).assignments == []


def test_every_refusal_is_tested() -> None:
    assert {row.split("=")[0] for row in REFUSED.split()} == set(REFUSALS)


@pytest.mark.parametrize(("name", "ours"), CONFIG_NAMES.items())
def test_names_of_earlier_files_lead_to_shipped_runs(name: str, ours: str) -> None:
    kind = {"default_config": "pipeline", "sft_config": "sft", "grpo_train": "grpo"}.get(
        name, "expert-iteration" if name == "expert_iteration" else "eval"
    )
    assert read_source(name, kind).body == read_source(ours, kind).body


def test_a_value_of_an_earlier_program_without_counterpart() -> None:
    with pytest.raises(ConfigError) as caught:
        read_overrides(["exp_is_correct=false"], "grpo", [])
    assert str(caught.value) == "exp_is_correct=false; expected one of true"


def test_an_alias_gives_path_and_value() -> None:
    alias = Alias(name="x", target="a.b", values={"all": "null", "old": ("c", 1), "same": None})
    assert alias.assign(3) == ("a.b", 3)
    assert alias.assign("all") == ("a.b", None)
    assert alias.assign("old") == ("c", 1)
    assert alias.assign("same") is None


def test_spelling() -> None:
    values = (True, None, 0.0, 0, "AdamW", 1e-5)
    assert [spell(value) for value in values] == ["true", "null", "0", "0", "adamw", "1e-05"]
