"""The training step on CUDA against the definitions that the CPU tests hold to."""

from __future__ import annotations

import importlib.util
import traceback

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM

from workings.models.lora import add_lora
from workings.objectives.logprobs import token_logprobs
from workings.training.activation_checkpointing import OffloadedInputs
from workings.training.attention import Documents, document_attention
from workings.training.compute_weights import compute_weights
from workings.training.distributed import Ranks
from workings.training.forward import choose_layout, response_scores
from workings.training.fused.adamw import FusedAdamW
from workings.training.layers import prepare_layers
from workings.training.optim import build_adamw
from workings.training.packing import TrainRow, pack, step_totals
from workings.training.reference import Reference
from workings.training.step import policy_step, score
from workings.training.supervised_loss import supervised_loss

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("default"),
]
HALF = torch.bfloat16
LIGER = importlib.util.find_spec("liger_kernel") is not None
needs_liger = pytest.mark.skipif(not LIGER, reason="liger-kernel is not installed")


def bounds(lengths):
    ends = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)
    return ends.cuda()


def documents(prompts, answers):
    flat = [length for group in answers for length in group]
    stretches = [sum(group) for group in answers]
    sizes = [max(prompts + flat), max(prompts), max(stretches), sum(prompts)]
    return Documents(
        pieces=bounds(prompts + flat),
        sizes=torch.tensor(sizes),
        prompts=bounds(prompts),
        answers=bounds(stretches),
    )


def on_cpu(found):
    return Documents(*(None if part is None else part.cpu() for part in found))


def relative(got, want):
    got, want = got.detach().double().cpu(), want.detach().double().cpu()
    return float((got - want).norm() / want.norm())


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("shared", [False, True])
def test_document_attention_equals_its_definition(head_dim, shared):
    generator = torch.Generator().manual_seed(0)
    found = documents([130, 7], [[200, 33, 1], [65, 300]])
    if not shared:
        found = found._replace(prompts=None, answers=None)
    width = int(found.pieces[-1])
    exact = [
        torch.randn(width, heads, head_dim, generator=generator).to(HALF).double().requires_grad_()
        for heads in (6, 2, 2)
    ]
    direction = torch.randn(width, 6, head_dim, generator=generator)
    want = document_attention(*exact, on_cpu(found))
    want_grads = torch.autograd.grad(want, exact, direction.double())
    # Laid out as a model hands them over: the heads of a token stand together.
    given = [tensor.detach().to(HALF).cuda().requires_grad_() for tensor in exact]
    got = document_attention(*given, found)
    got_grads = torch.autograd.grad(got, given, direction.to(HALF).cuda())
    assert relative(got, want) < 5e-3
    for got_grad, want_grad in zip(got_grads, want_grads, strict=True):
        assert relative(got_grad, want_grad) < 1e-2
    strided = [t.transpose(0, 1).contiguous().transpose(0, 1) for t in given]
    assert relative(document_attention(*strided, found), want) < 5e-3


@pytest.mark.parametrize("chunk_rows", [None, 100])
@pytest.mark.parametrize(("temperature", "cap"), [(1.0, None), (0.7, 20.0)])
def test_token_scores_equal_their_definition(temperature, cap, chunk_rows):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(333, 256, generator=generator).to(HALF).cuda().requires_grad_()
    weight = (0.2 * torch.randn(50_007, 256, generator=generator)).cuda().requires_grad_()
    targets = torch.randint(50_007, (333,), generator=generator).cuda()
    scores = token_logprobs(
        hidden,
        targets,
        head_weight=weight,
        temperature=temperature,
        logit_softcap=cap,
        chunk_bytes=None if chunk_rows is None else 2 * 50_007 * chunk_rows,
    )
    mix = torch.linspace(-1, 2, 333).cuda()
    loss = (mix * scores.logprobs).sum() + 0.5 * (mix.flip(0) * scores.entropies).sum()
    got = torch.autograd.grad(loss, (hidden, weight))
    exact = (hidden.detach().double().requires_grad_(), weight.detach().to(HALF).double())
    exact[1].requires_grad_()
    logits = (exact[0] @ exact[1].T).to(HALF).double()  # logits are half precision by contract
    logits = exact[0] @ exact[1].T + (logits - exact[0] @ exact[1].T).detach()
    logits = logits if cap is None else cap * torch.tanh(logits / cap)
    table = torch.log_softmax(logits / temperature, -1)
    logprobs = table.gather(1, targets[:, None]).squeeze(1)
    entropies = -(table.exp() * table).sum(1)
    assert (scores.logprobs.double() - logprobs).abs().max() < 2e-4
    assert (scores.entropies.double() - entropies).abs().max() < 2e-4
    loss = (mix * logprobs).sum() + 0.5 * (mix.flip(0) * entropies).sum()
    want = torch.autograd.grad(loss, exact)
    assert relative(got[0], want[0]) < 1e-2
    assert relative(got[1], want[1]) < 1e-2
    best = (
        scores.is_top == (logits.gather(1, targets[:, None]).squeeze(1) >= logits.amax(1))
    ).all()
    assert bool(best)


def model(seed=0):
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=5000,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        tie_word_embeddings=True,
        initializer_range=0.05,
    )
    return LlamaForCausalLM(config).cuda().eval()


def rows(even=False):
    generator = torch.Generator().manual_seed(3)

    def draw(count):
        return torch.randint(5000, (count,), generator=generator).tolist()

    found = []
    for group in range(3):
        prompt = draw(20 + 30 * group)
        for index in range(4):
            length = 100 - len(prompt) if even else 30 + 25 * index
            found.append(
                TrainRow(
                    key=4 * group + index,
                    group=group,
                    prompt_ids=prompt,
                    response_ids=draw(length),
                    mask=[t % 7 != 2 for t in range(length)],
                )
            )
    return found


def step(policy, *, layout, dtype=HALF, even=False, max_tokens=1200):
    """Loss, and gradients by name, of one step."""
    given = rows(even)
    batches = pack(given, layout=layout, max_tokens=max_tokens, device="cuda")
    loss = supervised_loss(step_totals(given, Ranks()))
    outcome = policy_step(
        policy, build_adamw(policy), batches, loss, max_grad_norm=0, autocast=dtype
    )
    named = {n: p.grad.clone() for n, p in policy.named_parameters() if p.grad is not None}
    return outcome, named


def distance(got, want):
    first, second = (torch.cat([t.flatten().double() for t in g.values()]) for g in (got, want))
    return float((first - second).norm() / second.norm())


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("layout", ["padded", "packed", "documents", "shared_documents"])
def test_a_step_in_half_precision_is_near_the_step_in_float32(layout, even):
    want, want_grads = step(model(), layout="padded", dtype=None, even=even)
    got, got_grads = step(model(), layout=layout, even=even)
    assert got.loss == pytest.approx(want.loss, rel=2e-3)
    assert distance(got_grads, want_grads) < 3e-2


def test_gradients_are_added_up_in_float32_and_left_alone_where_there_is_but_one():
    _, added = step(model(), layout="documents", max_tokens=600)
    assert {grad.dtype for grad in added.values()} == {torch.float32}
    _, single = step(model(), layout="documents", max_tokens=10_000)
    ends = {name for name, grad in single.items() if grad.dtype == torch.float32}
    assert ends == {"model.embed_tokens.weight"}
    assert distance(added, single) < 1e-2


@pytest.mark.parametrize("dtype", [HALF, torch.float32])
def test_an_update_equals_that_of_torch(dtype):
    generator = torch.Generator("cuda").manual_seed(0)
    shapes = ((300, 500), (4097,), (3,), (64, 128))
    weights = [torch.randn(shape, generator=generator, device="cuda") for shape in shapes]
    ours = [torch.nn.Parameter(weight.clone()) for weight in weights]
    exact = [torch.nn.Parameter(weight.double()) for weight in weights]
    settings = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8}
    fused = FusedAdamW([{"params": ours, "weight_decay": 0.1}], **settings)
    plain = torch.optim.AdamW(exact, weight_decay=0.1, **settings)
    assert fused.takes_half
    fused.grad_scale = torch.tensor(2.0, device="cuda")
    for index in range(4):
        skipped = index in (0, 2)
        fused.found_inf = torch.tensor(float(skipped), device="cuda")
        for parameter, reference in zip(ours, exact, strict=True):
            grad = torch.randn(parameter.shape, generator=generator, device="cuda").to(dtype)
            parameter.grad_dtype = None
            parameter.grad = grad
            reference.grad = grad.double() / 2
        fused.step()
        if not skipped:
            plain.step()
        for parameter, reference in zip(ours, exact, strict=True):
            torch.testing.assert_close(parameter.double(), reference, rtol=1e-6, atol=1e-6)


def test_the_layout_of_a_gpu_needs_no_mask():
    policy = model()
    assert choose_layout(policy, "auto", grouped=True, autocast=HALF) == "shared_documents"
    assert choose_layout(policy, "auto", grouped=False, autocast=HALF) == "documents"
    assert choose_layout(policy, "packed", grouped=True, autocast=HALF) == "documents"
    assert choose_layout(policy, "padded", grouped=True, autocast=HALF) == "padded"
    assert choose_layout(policy, "auto", grouped=True) == "shared_prompt"


@pytest.mark.parametrize("how", ["selective", "full", "offloaded"])
@pytest.mark.parametrize("layout", ["documents", "shared_documents", "padded"])
def test_checkpointing_changes_no_more_than_the_order_of_sums(how, layout):
    want, again = (step(model(), layout=layout, max_tokens=600)[1] for _ in range(2))
    policy = model()
    prepare_layers(policy, checkpointing=how)
    _, got = step(policy, layout=layout, max_tokens=600)
    chance = distance(again, want)
    assert chance < 2e-3, "what is computed twice is not the same"
    assert distance(got, want) < 2e-3, f"what is computed twice differs by {chance}"


@pytest.mark.parametrize("how", ["none", "selective", "full"])
@pytest.mark.parametrize("kernels", ["fused", pytest.param("liger", marks=needs_liger), "compiled"])
def test_other_kernels_compute_the_same_step(kernels, how):
    want_outcome, want = step(model(), layout="documents", max_tokens=600)
    policy = model()
    prepare_layers(policy, checkpointing=how, kernels=kernels)
    outcome, got = step(policy, layout="documents", max_tokens=600)
    assert outcome.loss == pytest.approx(want_outcome.loss, rel=2e-3)
    assert distance(got, want) < 3e-2


@pytest.mark.parametrize("kernels", ["plain", "fused", "compiled"])
def test_adapters_train_in_copies_of_the_weights(kernels):
    found = []
    for chosen, dtype in (("plain", None), (kernels, HALF)):
        policy = add_lora(
            model(), rank=4, alpha=8, dropout=0.0, targets=("q_proj", "down_proj"), seed=0
        )
        for name, parameter in policy.named_parameters():
            if "lora_B" in name:
                generator = torch.Generator("cuda").manual_seed(1)
                torch.nn.init.normal_(parameter, std=0.02, generator=generator)
        prepare_layers(policy, kernels=chosen, checkpointing="full")
        found.append(step(policy, layout="documents", dtype=dtype)[1])
    assert found[0].keys() == found[1].keys()
    assert distance(found[1], found[0]) < 5e-2


def test_scores_of_policy_and_of_a_reference_like_it_are_equal():
    policy = model()
    batches = pack(rows(), layout="shared_documents", max_tokens=1200, device="cuda")
    own = [batch.old_logprobs for batch in score(policy, batches, autocast=HALF)]
    other = Reference(policy).scores(batches, autocast=HALF)
    for first, second in zip(own, other, strict=True):
        assert torch.equal(first, second)


class Waiting(TorchDispatchMode):
    """Says which operator waits for the device, and from where it was called."""

    def __torch_dispatch__(self, function, types, arguments=(), settings=None):
        try:
            return function(*arguments, **(settings or {}))
        except RuntimeError as error:
            stack = "".join(traceback.format_stack(limit=25)[:-1])
            inside = "".join(traceback.format_tb(error.__traceback__)[1:])
            raise AssertionError(f"{function}: {error}\n{stack}inside of it:\n{inside}") from None


@pytest.mark.parametrize("layout", ["documents", "shared_documents", "padded"])
def test_nothing_between_two_microbatches_waits_for_the_device(layout):
    policy = model().train()
    batches = pack(rows(), layout=layout, max_tokens=600, device="cuda")

    def pass_over(batch):
        response_scores(policy, batch, autocast=HALF).logprobs.sum().backward()

    with compute_weights(policy, HALF):
        for batch in batches:  # compiles kernels
            pass_over(batch)
        torch.cuda.set_sync_debug_mode("error")
        try:
            for batch in batches:
                try:
                    pass_over(batch)
                except RuntimeError as error:
                    with Waiting():
                        pass_over(batch)
                    pytest.fail(f"{error!r}, but not once operators are watched")
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_offloaded_inputs_come_back_as_they_were():
    inputs = OffloadedInputs()
    tensors = [torch.randn(1 << 20, device="cuda") for _ in range(6)]
    kept = [tensor.clone() for tensor in tensors]
    visitors = []
    for index in range(6):
        visitors.append(inputs.put(tensors[index]))
        tensors[index] = None
        torch.empty(1 << 20, device="cuda").fill_(-1)  # would take freed memory at once
    while visitors:
        visitor = visitors.pop()
        assert torch.equal(inputs.get(visitor), kept[len(visitors)])
        del visitor


def peak_of_the_head(weight, num_tokens, **bounds):
    """Most bytes that the scores of so many tokens take, and the gradients with them."""
    from workings.objectives.logprobs_triton import Shape, fused_logprobs

    shape = Shape(inverse_temperature=1.0, scale=1.0, softcap=None)
    hidden = torch.randn(num_tokens, weight.shape[1], device="cuda", dtype=HALF, requires_grad=True)
    targets = torch.zeros(num_tokens, dtype=torch.int64, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    fused_logprobs(hidden, targets, weight, None, shape, **bounds)[0].sum().backward()
    peak = torch.cuda.max_memory_allocated() - before
    weight.grad = None
    return peak


@pytest.mark.parametrize("kept_bytes", [0, 1 << 28, 1 << 31])
def test_memory_of_the_head_does_not_grow_with_tokens(kept_bytes):
    weight = torch.randn(50_000, 64, device="cuda", requires_grad=True)
    peak_of_the_head(weight, 64)  # cuBLAS allocates what it works in
    bounds = {"chunk_bytes": 1 << 26, "kept_bytes": kept_bytes}
    peaks = [peak_of_the_head(weight, count, **bounds) for count in (4096, 16384)]
    # Besides logits: the weight in half precision, two float32 gradients, what cuBLAS works in.
    most = 3 * weight.nbytes + (1 << 27)
    assert max(peaks) < kept_bytes + bounds["chunk_bytes"] + most, peaks
