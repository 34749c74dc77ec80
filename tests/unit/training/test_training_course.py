"""The course's functions at 1e-6, each against plain arithmetic, and mutations that must not pass.

Numbers in names of tests are those of the contract (1.1 to 4.5).
"""

from __future__ import annotations

import inspect
import math
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

import adapters
from tiny import tiny_model, tiny_tokenizer
from workings.config.compose import compose
from workings.training import course
from workings.training.course import (
    compute_entropy,
    compute_group_normalized_rewards,
    compute_grpo_clip_loss,
    compute_naive_policy_gradient_loss,
    compute_per_instance_dpo_loss,
    compute_policy_gradient_loss,
    get_response_log_probs,
    grpo_microbatch_train_step,
    masked_mean,
    masked_normalize,
    sft_microbatch_train_step,
    tokenize_prompt_and_output,
)

EXACT = {"rtol": 0.0, "atol": 1e-6}
PROMPTS = ["hello", "What is 1+1?", "a"]
OUTPUTS = ["llo there", "2", "a longer answer"]


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer):
    return tiny_model(tokenizer, seed=1)


def random_case(seed=0, rows=4, length=6):
    generator = torch.Generator().manual_seed(seed)
    logprobs = -torch.rand(rows, length, generator=generator) * 3
    mask = torch.rand(rows, length, generator=generator) > 0.4
    mask[:, 0] = True
    return logprobs, mask


# ----------------------------------------------------------------------------------- 1.1 tokens


def test_sft_tokens_are_encoded_apart_and_joined(tokenizer):
    batch = tokenize_prompt_and_output(["he"], ["llo"], tokenizer)
    apart = [*tokenizer.encode("he"), *tokenizer.encode("llo")]
    assert tokenizer.encode("hello") != apart
    assert batch["input_ids"].tolist() == [apart[:-1]]
    assert batch["labels"].tolist() == [apart[1:]]
    assert batch["response_mask"].tolist() == [[True]]


def test_sft_rows_are_padded_then_shifted(tokenizer):
    batch = tokenize_prompt_and_output(PROMPTS, OUTPUTS, tokenizer)
    pairs = [
        (tokenizer.encode(p), tokenizer.encode(o)) for p, o in zip(PROMPTS, OUTPUTS, strict=True)
    ]
    length = max(len(p) + len(o) for p, o in pairs)
    assert {k: (tuple(v.shape), v.dtype) for k, v in batch.items()} == {
        "input_ids": ((3, length - 1), torch.int64),
        "labels": ((3, length - 1), torch.int64),
        "response_mask": ((3, length - 1), torch.bool),
    }
    for row, (prompt, output) in enumerate(pairs):
        full = prompt + output + [tokenizer.pad_token_id] * (length - len(prompt) - len(output))
        assert batch["input_ids"][row].tolist() == full[:-1]
        assert batch["labels"][row].tolist() == full[1:]
        assert batch["labels"][row][batch["response_mask"][row]].tolist() == output


def test_sft_tokens_have_no_bos_and_no_eos():
    tokenizer = tiny_tokenizer(add_bos=True)
    batch = tokenize_prompt_and_output(["ab"], ["cd"], tokenizer)
    ids = [*batch["input_ids"][0].tolist(), batch["labels"][0, -1].item()]
    assert tokenizer.bos_token_id not in ids
    assert tokenizer.eos_token_id not in ids


def test_sft_without_a_pad_token_eos_fills_up(tokenizer):
    bare = tiny_tokenizer()
    bare.pad_token = None
    batch = tokenize_prompt_and_output(["a", "a"], ["b", "bcd"], bare)
    assert batch["input_ids"][0].tolist()[-1] == bare.eos_token_id
    assert batch["response_mask"].sum(1).tolist() == [1, 3]


def test_sft_an_empty_output_has_an_empty_mask(tokenizer):
    batch = tokenize_prompt_and_output(["abc", "a"], ["", "b"], tokenizer)
    assert batch["response_mask"].any(1).tolist() == [False, True]


def test_sft_an_empty_batch_and_unequal_lists_are_refused(tokenizer):
    with pytest.raises(ValueError, match="0 prompts and 0 outputs"):
        tokenize_prompt_and_output([], [], tokenizer)
    with pytest.raises(ValueError, match="2 prompts and 1 outputs"):
        tokenize_prompt_and_output(["a", "b"], ["c"], tokenizer)
    nothing = SimpleNamespace(pad_token_id=None, eos_token_id=None)
    with pytest.raises(ValueError, match="neither a pad nor an EOS token"):
        tokenize_prompt_and_output(["a"], ["b"], nothing)


# ------------------------------------------------------------------- 1.2 and 1.3 log-probabilities


def test_sft_entropy_is_in_nats():
    uniform = compute_entropy(torch.zeros(2, 3, 8))
    torch.testing.assert_close(uniform, torch.full((2, 3), 2.079442), **EXACT)
    logits = torch.randn(3, 5, 11, generator=torch.Generator().manual_seed(0)) * 4
    p = torch.softmax(logits.double(), -1)
    torch.testing.assert_close(compute_entropy(logits).double(), -(p * p.log()).sum(-1), **EXACT)


def test_sft_entropy_in_chunks_is_the_same(monkeypatch):
    logits = torch.randn(3, 5, 11)
    whole = compute_entropy(logits)
    monkeypatch.setattr(course, "_ENTROPY_CHUNK_BYTES", 100)
    assert compute_entropy(logits).equal(whole)


def test_sft_entropy_counts_an_impossible_token_as_nothing():
    assert compute_entropy(torch.tensor([0.0, 0.0, -math.inf])).item() == pytest.approx(
        math.log(2), abs=1e-6
    )


@pytest.mark.parametrize("entropy", [False, True])
def test_sft_log_probs_of_every_label_unmasked(tokenizer, model, entropy):
    batch = tokenize_prompt_and_output(PROMPTS, OUTPUTS, tokenizer)
    scores = get_response_log_probs(model, batch["input_ids"], batch["labels"], entropy)
    logprobs = torch.log_softmax(model(batch["input_ids"]).logits.double(), -1)
    wanted = logprobs.gather(-1, batch["labels"][..., None]).squeeze(-1)
    torch.testing.assert_close(scores["log_probs"].double(), wanted, **EXACT)
    assert set(scores) == ({"log_probs", "token_entropy"} if entropy else {"log_probs"})
    if entropy:
        wanted = -(logprobs.exp() * logprobs).sum(-1)
        found = scores["token_entropy"].double()
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)


def test_sft_log_probs_carry_gradients_as_the_callers_mode_says(tokenizer, model):
    batch = tokenize_prompt_and_output(PROMPTS, OUTPUTS, tokenizer)
    scores = get_response_log_probs(model, batch["input_ids"], batch["labels"])
    found = torch.autograd.grad(scores["log_probs"].sum(), model.lm_head.weight)[0]
    logprobs = torch.log_softmax(model(batch["input_ids"]).logits, -1)
    plain = logprobs.gather(-1, batch["labels"][..., None]).sum()
    wanted = torch.autograd.grad(plain, model.lm_head.weight)[0]
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        scores = get_response_log_probs(model, batch["input_ids"], batch["labels"])
    assert not scores["log_probs"].requires_grad


def test_sft_log_probs_of_a_plain_module():
    class Plain(nn.Module):
        def forward(self, ids: Tensor) -> SimpleNamespace:
            return SimpleNamespace(logits=torch.nn.functional.one_hot(ids, 5).float())

    ids, labels = torch.tensor([[1, 2, 3]]), torch.tensor([[1, 3, 4]])
    scores = get_response_log_probs(Plain(), ids, labels, True)
    normaliser = math.log(math.e + 4)
    assert scores["log_probs"].tolist()[0] == pytest.approx(
        [1 - normaliser, -normaliser, -normaliser], abs=1e-6
    )
    assert set(scores) == {"log_probs", "token_entropy"}


def test_sft_padding_on_the_right_does_not_change_the_response(tokenizer, model):
    alone = tokenize_prompt_and_output(PROMPTS[:1], OUTPUTS[:1], tokenizer)
    padded = tokenize_prompt_and_output(PROMPTS, OUTPUTS, tokenizer)
    one, many = (
        get_response_log_probs(model, batch["input_ids"], batch["labels"])["log_probs"][0]
        for batch in (alone, padded)
    )
    torch.testing.assert_close(many[: len(one)], one, **EXACT)


# ------------------------------------------------------------------------- 1.4 and 1.5 reducing


@pytest.mark.parametrize("dim", [0, 1, -1, None])
def test_sft_masked_normalize(dim):
    values, mask = random_case()
    wanted = (values * mask).sum() if dim is None else (values * mask).sum(dim)
    torch.testing.assert_close(masked_normalize(values, mask, 42.0, dim), wanted / 42, **EXACT)
    by_name = masked_normalize(tensor=values, mask=mask, normalize_constant=42.0, dim=dim)
    torch.testing.assert_close(by_name, wanted / 42, **EXACT)
    adapted = adapters.run_masked_normalize(values, mask, dim, 42.0)
    torch.testing.assert_close(adapted, wanted / 42, **EXACT)


@pytest.mark.parametrize("dim", [0, 1, -1, None])
def test_grpo_masked_mean(dim):
    values, mask = random_case(1)
    total = (values * mask).sum() if dim is None else (values * mask).sum(dim)
    count = mask.sum() if dim is None else mask.sum(dim)
    torch.testing.assert_close(masked_mean(values, mask, dim), total / count, **EXACT)


def test_grpo_masked_mean_of_nothing_is_nan_and_nothing_leaks():
    values = torch.tensor([[1.0, math.inf], [math.nan, 2.0]])
    mask = torch.tensor([[True, False], [False, False]])
    means = masked_mean(values, mask, 1)
    assert means[0].item() == 1.0
    assert means[1].isnan()
    assert masked_mean(values, mask).item() == 1.0
    assert masked_normalize(values, mask, 2.0).item() == 0.5


def test_mutation_an_integer_mask_is_a_mask():
    """A mask of 0 and 1 must select, not index or multiply an infinity."""
    values, mask = random_case(2)
    values = torch.where(mask, values, torch.inf)
    for dim in (None, 0, 1):
        torch.testing.assert_close(
            masked_mean(values, mask.long(), dim), masked_mean(values, mask, dim), equal_nan=True
        )
        torch.testing.assert_close(
            masked_normalize(values, mask.long(), 3.0, dim),
            masked_normalize(values, mask, 3.0, dim),
        )
    steps = []
    for one in (mask, mask.long()):
        logprobs = values.clone().requires_grad_()
        loss, _ = sft_microbatch_train_step(logprobs, one, 2)
        grpo, _ = grpo_microbatch_train_step(
            logprobs, one, 2, "no_baseline", raw_rewards=torch.ones(4, 1)
        )
        steps.append((loss, grpo, logprobs.grad))
    for first, second in zip(*steps, strict=True):
        torch.testing.assert_close(first, second)


# ------------------------------------------------------------------------------------- 1.6 SFT


def test_sft_step_of_the_handout():
    logprobs = torch.full((2, 10), -0.5, requires_grad=True)
    mask = torch.zeros(2, 10, dtype=torch.bool)
    mask[0, 2:6] = mask[1, 3:9] = True
    loss, metadata = sft_microbatch_train_step(logprobs, mask, 2)
    assert loss.item() == pytest.approx((4 + 6) * 0.5 / 2 / 2, abs=1e-6)
    assert metadata["loss"].item() == pytest.approx(2.5, abs=1e-6)
    assert metadata["num_tokens"].item() == 10
    torch.testing.assert_close(logprobs.grad, -0.25 * mask.float(), **EXACT)
    for _ in range(9):
        sft_microbatch_train_step(logprobs, mask, 2)
    torch.testing.assert_close(logprobs.grad, -2.5 * mask.float(), **EXACT)


def test_sft_step_divides_by_the_constant_and_counts_empty_rows():
    logprobs = torch.full((4, 3), -1.0, requires_grad=True)
    mask = torch.tensor([[1, 1, 1], [0, 0, 0], [1, 0, 0], [0, 0, 0]]).bool()
    loss, _ = sft_microbatch_train_step(logprobs, mask, 1, normalize_constant=10.0)
    assert loss.item() == pytest.approx(4 / 10 / 4, abs=1e-6)


def test_mutation_sft_returns_the_loss_divided_by_accumulation():
    losses = []
    for steps in (1, 4):
        logprobs, mask = random_case(3)
        loss, _ = sft_microbatch_train_step(logprobs.requires_grad_(), mask, steps)
        losses.append(loss.item())
    assert losses[1] == pytest.approx(losses[0] / 4, abs=1e-6)


def test_mutation_sft_sums_per_row_instead_of_a_mean_over_all_tokens():
    logprobs = torch.tensor([[-4.0, 0.0, 0.0], [-1.0, -1.0, -1.0]], requires_grad=True)
    mask = torch.tensor([[True, False, False], [True, True, True]])
    loss, _ = sft_microbatch_train_step(logprobs, mask, 1)
    assert loss.item() == pytest.approx(3.5, abs=1e-6)


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_sft_and_grpo_accumulation_does_not_change_loss_or_gradient(steps):
    values, mask = random_case(4, rows=8)
    advantages = torch.randn(8, 1, generator=torch.Generator().manual_seed(0))
    wanted = -(values * mask).sum(1).mean()
    rows = (-advantages * values * mask).sum(1) / mask.sum(1)
    for name, expected in (("sft", wanted), ("grpo", rows.mean())):
        logprobs = values.clone().requires_grad_()
        total = 0.0
        size = 8 // steps
        for start in range(0, 8, size):
            part = slice(start, start + size)
            if name == "sft":
                loss, _ = sft_microbatch_train_step(logprobs[part], mask[part], steps)
            else:
                loss, _ = grpo_microbatch_train_step(
                    logprobs[part],
                    mask[part],
                    steps,
                    "reinforce_with_baseline",
                    advantages=advantages[part],
                )
            total += loss.item()
        assert total == pytest.approx(expected.item(), abs=1e-6)
        plain = values.clone().requires_grad_()
        whole = (
            -(plain * mask).sum(1).mean()
            if name == "sft"
            else ((-advantages * plain * mask).sum(1) / mask.sum(1)).mean()
        )
        whole.backward()
        torch.testing.assert_close(logprobs.grad, plain.grad, **EXACT)


def test_sft_step_refuses_no_accumulation():
    logprobs, mask = random_case()
    with pytest.raises(ValueError, match="gradient_accumulation_steps=0"):
        sft_microbatch_train_step(logprobs.requires_grad_(), mask, 0)


# --------------------------------------------------------------------------------- 1.9 rewards


def reward_of(response, gold):
    return {"reward": float(response), "format_reward": 1.0, "answer_reward": float(gold)}


def normalised(rewards, group_size, eps=1e-6, by_std=True):
    texts = [str(value) for value in rewards]
    return compute_group_normalized_rewards(
        reward_of, texts, ["0.5"] * len(texts), group_size, eps, by_std
    )


def test_grpo_group_normalised_rewards_of_the_handout():
    advantages, rewards, metadata = normalised([1, 0, 0, 1], 4)
    wanted = torch.tensor([0.866024, -0.866024, -0.866024, 0.866024])
    torch.testing.assert_close(advantages, wanted, **EXACT)
    assert rewards.tolist() == [1, 0, 0, 1]
    assert advantages.dtype == rewards.dtype == torch.float32
    assert metadata == pytest.approx(
        {
            "mean": 0.5,
            "std": 1 / math.sqrt(3),
            "min": 0.0,
            "max": 1.0,
            "format_reward": 1.0,
            "answer_reward": 0.5,
        }
    )


@pytest.mark.parametrize("by_std", [True, False])
def test_grpo_groups_are_consecutive_and_std_is_unbiased(by_std):
    values = torch.rand(12, generator=torch.Generator().manual_seed(5))
    advantages, raw, _ = normalised(values.tolist(), 4, by_std=by_std)
    groups = values.view(3, 4)
    wanted = groups - groups.mean(1, keepdim=True)
    if by_std:
        wanted = wanted / (groups.std(1, unbiased=True, keepdim=True) + 1e-6)
    torch.testing.assert_close(advantages, wanted.flatten(), **EXACT)
    assert raw.shape == advantages.shape == (12,)


def test_mutation_grpo_advantage_eps_is_the_one_given():
    tiny = [0.0, 1e-3, 0.0, 1e-3]
    values = torch.tensor(tiny)
    for eps in (1e-6, 1e-3):
        advantages, _, _ = normalised(tiny, 4, eps=eps)
        wanted = (values - values.mean()) / (values.std() + eps)
        torch.testing.assert_close(advantages, wanted, **EXACT)
    assert normalised(tiny, 4, eps=1e-6)[0][1].item() > 0.86


def test_grpo_equal_rewards_give_exactly_nothing():
    assert normalised([0.1] * 7, 7)[0].tolist() == [0.0] * 7
    assert normalised([0.3], 1, by_std=False)[0].tolist() == [0.0]


def test_grpo_group_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="undefined for one"):
        normalised([1, 0], 1)
    with pytest.raises(ValueError, match="3 responses do not make whole groups of group_size=2"):
        normalised([1, 0, 1], 2)
    with pytest.raises(ValueError, match="2 responses and 1 ground truths"):
        compute_group_normalized_rewards(reward_of, ["1", "0"], ["1"], 2, 1e-6, True)


# ---------------------------------------------------------------------------------- 1.10 losses


def loss_case(seed=6):
    generator = torch.Generator().manual_seed(seed)
    logprobs = -torch.rand(3, 5, generator=generator)
    old = logprobs + torch.randn(3, 5, generator=generator) * 0.4
    advantages = torch.tensor([[1.5], [-0.7], [0.2]])
    return logprobs, old, advantages


def test_grpo_naive_loss_broadcasts():
    logprobs, _, advantages = loss_case()
    loss = compute_naive_policy_gradient_loss(advantages, logprobs)
    torch.testing.assert_close(loss, -advantages.expand(3, 5) * logprobs, **EXACT)


@pytest.mark.parametrize("cliprange", [0.1, 0.2, 0.5, 10.0])
def test_grpo_clip_loss(cliprange):
    logprobs, old, advantages = loss_case()
    logprobs.requires_grad_()
    old.requires_grad_()
    loss, metadata = compute_grpo_clip_loss(advantages, logprobs, old, cliprange)
    ratio = (logprobs - old).exp()
    clipped = ratio.clamp(1 - cliprange, 1 + cliprange)
    first, second = ratio * advantages, clipped * advantages
    torch.testing.assert_close(loss, -torch.minimum(first, second), **EXACT)
    assert metadata["clipped"].equal(second < first)
    loss.sum().backward()
    assert old.grad is None
    assert logprobs.grad.ne(0).equal(~metadata["clipped"])


def test_grpo_losses_by_name():
    logprobs, old, advantages = loss_case()
    rewards = torch.tensor([[1.0], [0.0], [1.0]])
    arguments = (rewards, advantages, old, 0.2)
    by_name = {
        name: compute_policy_gradient_loss(logprobs, name, *arguments)[0]
        for name in ("no_baseline", "reinforce_with_baseline", "grpo_clip", "grpo_no_clip")
    }
    ratio = (logprobs - old).exp()
    torch.testing.assert_close(by_name["no_baseline"], -rewards * logprobs, **EXACT)
    torch.testing.assert_close(by_name["reinforce_with_baseline"], -advantages * logprobs, **EXACT)
    torch.testing.assert_close(by_name["grpo_no_clip"], -advantages * ratio, **EXACT)
    torch.testing.assert_close(
        by_name["grpo_clip"], compute_grpo_clip_loss(advantages, logprobs, old, 0.2)[0], **EXACT
    )


@pytest.mark.parametrize(
    ("loss_type", "message"),
    [
        ("no_baseline", "needs raw_rewards, which is None"),
        ("reinforce_with_baseline", "needs advantages, which is None"),
        ("grpo_clip", "needs advantages and old_log_probs and cliprange, which is None"),
        ("grpo_no_clip", "needs advantages and old_log_probs, which is None"),
        ("ppo", "unknown loss_type 'ppo'; expected one of no_baseline"),
    ],
)
def test_grpo_a_missing_argument_is_named(loss_type, message):
    logprobs, _ = random_case()
    with pytest.raises(ValueError, match=message):
        compute_policy_gradient_loss(logprobs, loss_type)


# ------------------------------------------------------------------------------------ 1.11 GRPO


def grpo_example():
    mask = torch.tensor([[True, True, False, False], [True, True, True, True]])
    return torch.full((2, 4), -0.5, requires_grad=True), mask, torch.tensor([[1.0], [-1.0]])


def test_grpo_step_of_the_handout():
    logprobs, mask, advantages = grpo_example()
    loss, metadata = grpo_microbatch_train_step(
        logprobs, mask, 2, "reinforce_with_baseline", advantages=advantages
    )
    assert loss.item() == pytest.approx(0.0, abs=1e-6)
    assert metadata["num_tokens"].item() == 6
    wanted = torch.tensor([[-0.125, -0.125, 0.0, 0.0], [0.0625] * 4])
    torch.testing.assert_close(logprobs.grad, wanted, **EXACT)


def test_grpo_step_by_a_constant():
    logprobs, mask, advantages = grpo_example()
    loss, _ = grpo_microbatch_train_step(
        logprobs,
        mask,
        2,
        "reinforce_with_baseline",
        advantages=advantages,
        length_norm="constant",
        normalize_constant=8.0,
    )
    assert loss.item() == pytest.approx((2 * 0.5 - 4 * 0.5) / 8 / 2 / 2, abs=1e-6)
    assert logprobs.grad[0, 0].item() == pytest.approx(-1 / 8 / 2 / 2, abs=1e-6)
    with pytest.raises(ValueError, match="needs normalize_constant"):
        grpo_microbatch_train_step(
            *grpo_example()[:2], 1, "no_baseline", advantages, length_norm="constant"
        )
    with pytest.raises(ValueError, match="unknown length_norm 'rows'"):
        grpo_microbatch_train_step(
            *grpo_example()[:2], 1, "no_baseline", advantages, length_norm="rows"
        )


def test_mutation_grpo_mean_per_row_instead_of_over_all_tokens():
    logprobs = torch.tensor([[-3.0, 0.0, 0.0, 0.0], [-1.0] * 4], requires_grad=True)
    mask = torch.tensor([[True, False, False, False], [True] * 4])
    loss, _ = grpo_microbatch_train_step(
        logprobs, mask, 1, "no_baseline", raw_rewards=torch.ones(2, 1)
    )
    assert loss.item() == pytest.approx(2.0, abs=1e-6)


def test_mutation_grpo_returns_the_loss_divided_by_accumulation():
    losses = []
    for steps in (1, 4):
        logprobs, mask = random_case(7)
        loss, metadata = grpo_microbatch_train_step(
            logprobs.requires_grad_(), mask, steps, "no_baseline", raw_rewards=torch.ones(4, 1)
        )
        losses.append(loss.item())
        assert metadata["loss"].item() == pytest.approx(losses[0], abs=1e-6)
    assert losses[0] > 0.1
    assert losses[1] == pytest.approx(losses[0] / 4, abs=1e-6)


def test_grpo_step_with_clip_adds_gradients_and_reports_the_clipped():
    logprobs, old, advantages = loss_case()
    logprobs.requires_grad_()
    mask = torch.ones(3, 5, dtype=torch.bool)
    arguments = {"advantages": advantages, "old_log_probs": old, "cliprange": 0.1}
    _, metadata = grpo_microbatch_train_step(logprobs, mask, 3, "grpo_clip", **arguments)
    first = logprobs.grad.clone()
    grpo_microbatch_train_step(logprobs, mask, 3, "grpo_clip", **arguments)
    torch.testing.assert_close(logprobs.grad, 2 * first, **EXACT)
    assert first.abs().max() > 0
    wanted = metadata["clipped"].float().mean().item()
    assert metadata["clip_fraction"].item() == pytest.approx(wanted, abs=1e-6)


def test_grpo_a_row_without_a_token_is_nan_by_contract():
    logprobs, mask = random_case(8)
    mask[0] = False
    loss, _ = grpo_microbatch_train_step(
        logprobs.requires_grad_(), mask, 1, "no_baseline", raw_rewards=torch.ones(4, 1)
    )
    assert loss.isnan()


# ------------------------------------------------------------------------- 3 counts of the course


@pytest.mark.parametrize(
    ("train_batch", "accumulation", "epochs", "micro", "per_rollout", "updates"),
    [
        (256, 128, 1, 2, 128, 1),
        (128, 64, 1, 2, 128, 2),
        (128, 8, 4, 16, 16, 8),
        (256, 128, 2, 2, 128, 2),
    ],
)
def test_grpo_counts_of_the_course(train_batch, accumulation, epochs, micro, per_rollout, updates):
    run = compose(
        ["cs336_grpo"],
        [
            f"train_batch_size={train_batch}",
            f"gradient_accumulation_steps={accumulation}",
            f"epochs_per_rollout={epochs}",
        ],
        kind="grpo",
    )
    assert run.rollout_batch_size == 256
    assert run.prompts_per_step == 32
    assert run.batch.microbatch_rows == micro
    assert run.rollout_batch_size // run.batch.microbatch_rows == per_rollout
    assert run.updates_per_rollout == updates


# -------------------------------------------------------------------------------------- 4.5 DPO


def test_dpo_of_a_model_against_itself_is_log_two(tokenizer, model):
    loss = compute_per_instance_dpo_loss(model, model, tokenizer, 0.5, "1+1?", "2", "three")
    assert loss.item() == pytest.approx(math.log(2), abs=1e-6)


def test_dpo_is_the_formula_over_whole_sequences(tokenizer, model):
    reference = tiny_model(tokenizer, seed=2)
    template = course.load_template("alpaca")

    def logprob(lm, response):
        text = template.before + "1+1?" + template.after + response
        ids = torch.tensor([[*tokenizer.encode(text), tokenizer.eos_token_id]])
        logprobs = torch.log_softmax(lm(ids).logits[0, :-1].double(), -1)
        return logprobs.gather(-1, ids[0, 1:, None]).sum()

    margin = sum(
        sign * (logprob(model, text) - logprob(reference, text))
        for sign, text in ((1, "2"), (-1, "three"))
    )
    wanted = -nn.functional.logsigmoid(0.5 * margin)
    found = compute_per_instance_dpo_loss(model, reference, tokenizer, 0.5, "1+1?", "2", "three")
    assert found.shape == ()
    assert found.item() == pytest.approx(wanted.item(), abs=1e-5)


def test_dpo_gradient_reaches_the_model_and_not_the_reference(tokenizer):
    lm, reference = tiny_model(tokenizer, seed=1), tiny_model(tokenizer, seed=2)
    compute_per_instance_dpo_loss(lm, reference, tokenizer, 0.1, "a", "b", "c").backward()
    assert all(p.grad is None for p in reference.parameters())
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in lm.parameters())


# ------------------------------------------------------------------------------------- adapters

SIGNATURES = {
    "run_tokenize_prompt_and_output": "prompt_strs, output_strs, tokenizer",
    "run_compute_group_normalized_rewards": "reward_fn, rollout_responses, "
    "repeated_ground_truths, group_size, advantage_eps, normalize_by_std",
    "run_compute_entropy": "logits",
    "run_get_response_log_probs": "model, input_ids, labels, return_token_entropy",
    "run_compute_naive_policy_gradient_loss": "raw_rewards_or_advantages, policy_log_probs",
    "run_compute_grpo_clip_loss": "advantages, policy_log_probs, old_log_probs, cliprange",
    "run_compute_policy_gradient_loss": "policy_log_probs, loss_type, raw_rewards, advantages, "
    "old_log_probs, cliprange",
    "run_masked_mean": "tensor, mask, dim=None",
    "run_masked_normalize": "tensor, mask, dim=None, normalize_constant=1.0",
    "run_sft_microbatch_train_step": "policy_log_probs, response_mask, "
    "gradient_accumulation_steps, normalize_constant=1.0",
    "run_grpo_microbatch_train_step": "policy_log_probs, response_mask, "
    "gradient_accumulation_steps, loss_type, raw_rewards=None, advantages=None, "
    "old_log_probs=None, cliprange=None",
    "get_packed_sft_dataset": "tokenizer, dataset_path, seq_length, shuffle",
    "run_iterate_batches": "dataset, batch_size, shuffle",
    "run_parse_mmlu_response": "mmlu_example, model_output",
    "run_parse_gsm8k_response": "model_output",
    "run_compute_per_instance_dpo_loss": "lm, lm_ref, tokenizer, beta, prompt, response_chosen, "
    "response_rejected",
}


def test_the_adapters_have_the_courses_names_and_arguments():
    assert len(SIGNATURES) == 16
    for name, wanted in SIGNATURES.items():
        parameters = inspect.signature(getattr(adapters, name)).parameters.values()
        found = [
            p.name if p.default is inspect.Parameter.empty else f"{p.name}={p.default}"
            for p in parameters
        ]
        assert ", ".join(found) == wanted, name


def test_the_adapters_call_the_library(tokenizer, model):
    batch = adapters.run_tokenize_prompt_and_output(PROMPTS, OUTPUTS, tokenizer)
    scores = adapters.run_get_response_log_probs(model, batch["input_ids"], batch["labels"], True)
    mask = batch["response_mask"]
    logprobs = scores["log_probs"].detach().requires_grad_()
    loss, metadata = adapters.run_sft_microbatch_train_step(logprobs, mask, 2)
    assert loss.item() == pytest.approx(metadata["loss"].item() / 2, abs=1e-6)
    advantages, rewards, _ = adapters.run_compute_group_normalized_rewards(
        reward_of, ["1", "0", "1"], ["1"] * 3, 3, 1e-6, True
    )
    loss, _ = adapters.run_grpo_microbatch_train_step(
        logprobs,
        mask,
        1,
        "grpo_clip",
        advantages=advantages[:, None],
        old_log_probs=logprobs.detach(),
        cliprange=0.2,
    )
    assert loss.item() == pytest.approx(-advantages.mean().item(), abs=1e-6)
    losses, _ = adapters.run_compute_policy_gradient_loss(
        logprobs, "no_baseline", rewards[:, None], None, None, None
    )
    torch.testing.assert_close(losses, -rewards[:, None] * logprobs)
    assert adapters.run_masked_mean(losses, mask, 1).shape == (3,)
    assert adapters.run_compute_entropy(torch.zeros(1, 2, 4)).shape == (1, 2)
    naive = adapters.run_compute_naive_policy_gradient_loss(rewards[:, None], logprobs)
    torch.testing.assert_close(naive, losses)
    clip, metadata = adapters.run_compute_grpo_clip_loss(rewards[:, None], logprobs, logprobs, 0.1)
    torch.testing.assert_close(clip, -rewards[:, None].expand_as(clip))
    assert not metadata["clipped"].any()
    same = adapters.run_compute_per_instance_dpo_loss(model, model, tokenizer, 0.1, "a", "b", "c")
    assert same.item() == pytest.approx(math.log(2), abs=1e-6)
    assert adapters.run_parse_gsm8k_response("48-5") == "5"
    assert adapters.run_parse_mmlu_response({}, "The correct answer is B.") == "B"
