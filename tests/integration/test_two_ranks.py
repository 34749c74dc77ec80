"""Contract 1 on two processes: a step that is spread over ranks is the step that one would make.

What runs on the ranks stands in the module-level functions `on_rank_...`; each is also called in
this process with a single `Ranks()`, and the two have to agree.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from two_ranks import RankPool, fail_on_one_rank

from tiny import tiny_model, tiny_tokenizer
from workings import (
    BatchSampler,
    Checkpointer,
    Component,
    Demonstration,
    PromptSampler,
    Recorder,
    Reward,
    RunPaths,
    SamplingParams,
    ScriptedEngine,
    StopRequest,
    TransformersEngine,
    build_adamw,
    compose,
    encode_demonstrations,
    encode_prompts,
    load_problems,
    load_template,
    pack,
    policy_step,
    read_metrics,
    score,
    sft_loss,
    step_totals,
    supervised_loss,
    train_grpo,
    train_sft,
)
from workings.config.objective import PRESETS
from workings.config.objective_settings import ObjectiveConfig
from workings.data.sampler import rank_share
from workings.errors import StoppedBySignal, TrainingError
from workings.training.distributed import Ranks, Totals, average_gradients, merge_totals
from workings.training.join import join_ranks
from workings.training.one_step_off import train_one_step_off
from workings.training.packing import MicroBatch, TrainRow
from workings.training.policy_loss import policy_gradient_loss
from workings.training.updates import Update, step_statistics

TOKENIZER = tiny_tokenizer()
THINK = load_template("think")
# bnpo depends on the cut by design.
OBJECTIVES: dict[str, dict[str, Any]] = {
    **{name: {"preset": name} for name in PRESETS if name != "bnpo"},
    # Choices over the whole step, with shares that pick something out of so few tokens.
    "clip_cov": {"preset": "clip_cov", "cov_share": 0.2, "cov_low": 0.0},
    "kl_cov": {"preset": "kl_cov", "cov_share": 0.2},
    "dapo, unsure tokens": {"preset": "dapo", "top_entropy_quantile": 0.3},
    "grpo, dropped rows": {
        "preset": "grpo",
        "correction": "geometric_mask",
        "correction_low": 0.8,
        "correction_high": 1.0,
        "correction_renormalise": True,
    },
    "grpo, prompt mean": {"preset": "grpo", "reduction": "prompt_mean"},
}


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankPool]:
    pool = RankPool(tmp_path_factory.mktemp("ranks"))
    yield pool
    pool.close()


def make_rows(*, num_groups: int = 3, group_size: int = 4) -> list[TrainRow]:
    """Groups of uneven rows; one row is not trained at all, one only from its second token on."""
    generator = torch.Generator().manual_seed(0)

    def draw(count: int) -> list[int]:
        return torch.randint(4, 100, (count,), generator=generator).tolist()

    rows = []
    for group in range(num_groups):
        prompt = draw(3 + 4 * group)
        for index in range(group_size):
            key = group * group_size + index
            length = 2 + (5 * key) % 7
            rows.append(
                TrainRow(
                    key=key,
                    group=group,
                    prompt_ids=prompt,
                    response_ids=draw(length),
                    mask=[key != 5 and not (key == 2 and t == 0) for t in range(length)],
                    advantage=[1.0, -0.5, 0.25, -0.75][index],
                    sampling_logprobs=[-4.0 - 0.1 * t for t in range(length)],
                    kept_mass=[1.0] * length,
                    # The last row of a group begins with two tokens of a teacher.
                    off_policy=[index == 3 and t < 2 for t in range(length)],
                    recorded_logprobs=[-1.5] * length,
                )
            )
    sizes = Counter({row.group: 0 for row in rows})
    for row in rows:
        sizes[row.group] += row.num_trained
    return [replace(row, group_tokens=sizes[row.group]) for row in rows]


def share_of(rows: Sequence[TrainRow], ranks: Ranks) -> list[TrainRow]:
    """This rank's part of the rows: whole groups."""
    groups = rank_share(sorted({row.group for row in rows}), rank=ranks.rank, num_ranks=ranks.size)
    return [row for row in rows if row.group in groups]


def on_rank_step(
    ranks: Ranks, name: str, rows: Sequence[TrainRow], max_rows: int = 3
) -> tuple[Any, dict[str, np.ndarray]]:
    """The outcome of a step of the objective `name`, and its gradients."""
    own = share_of(rows, ranks)
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    batches = pack(own, layout="shared_prompt", max_tokens=60, max_rows=max_rows)
    if name == "nll":
        loss = supervised_loss(step_totals(own, ranks))
    else:
        objective = ObjectiveConfig(**OBJECTIVES[name]).resolve()
        totals = step_totals(own, ranks, count_masked_rows=objective.count_masked_rows)
        update = Update(totals=totals, microbatches=_compared(model, batches))
        known = step_statistics(
            update, objective, model, temperature=1.0, autocast=None, seed=5, ranks=ranks
        )
        batches = known.update.microbatches
        loss = policy_gradient_loss(
            known.update.totals, objective, max_length=16, num_ranks=ranks.size
        )
    optimizer = build_adamw(model)
    outcome = policy_step(model, optimizer, batches, loss, max_grad_norm=0.0, ranks=ranks)
    return outcome, {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}


def _compared(model: torch.nn.Module, batches: Sequence[MicroBatch]) -> list[MicroBatch]:
    """With old and reference log-probabilities that differ from the current ones, by token."""
    compared = []
    for batch in score(model, batches):
        now = batch.old_logprobs
        assert now is not None
        wave = torch.sin(batch.targets.double())
        compared.append(
            replace(batch, old_logprobs=now + 0.3 * wave, ref_logprobs=now - 0.2 * wave)
        )
    return compared


def assert_same_step(name: str, rows: Sequence[TrainRow], pool: RankPool) -> None:
    wanted, gradients = on_rank_step(Ranks(), name, rows)
    for outcome, got in pool.run(on_rank_step, name, rows):
        assert outcome.loss == pytest.approx(wanted.loss, rel=1e-10, abs=1e-10)
        assert outcome.grad_norm == pytest.approx(wanted.grad_norm, rel=1e-10)
        assert outcome.sums == pytest.approx(wanted.sums, rel=1e-10, abs=1e-10)
        assert outcome.maxima == pytest.approx(wanted.maxima, rel=1e-10, abs=1e-10)
        assert got.keys() == gradients.keys()
        for parameter, gradient in gradients.items():
            scale = max(np.abs(gradient).max(), 1e-30)
            assert np.abs(got[parameter] - gradient).max() / scale < 1e-10, parameter


@pytest.mark.parametrize("name", ["nll", *OBJECTIVES])
def test_a1c_two_ranks_make_the_step_of_one(name: str, pool: RankPool) -> None:
    assert_same_step(name, make_rows(), pool)


def on_rank_sft_share(ranks: Ranks) -> float:
    lengths = rank_share([1, 3], rank=ranks.rank, num_ranks=ranks.size)
    rows = [
        TrainRow(key=n, group=n, prompt_ids=(1,), response_ids=(2,) * n, mask=(True,) * n)
        for n in lengths
    ]
    totals = step_totals(rows, ranks)
    shares = [
        sft_loss(torch.full((1, n), -4.0 if n == 1 else -1.0), torch.ones(1, n).bool(), totals)
        for n in lengths
    ]
    return float(ranks.all_sum(torch.stack(shares).sum()))


def test_a1a_sft_rows_on_two_ranks_give_1_75(pool: RankPool) -> None:
    assert on_rank_sft_share(Ranks()) == pytest.approx(1.75)
    assert pool.run(on_rank_sft_share) == pytest.approx([1.75, 1.75])


@pytest.mark.parametrize(
    "name", ["nll", "grpo", "dapo", "clip_cov", "kl_cov", "dapo, unsure tokens"]
)
@pytest.mark.parametrize("idle", [0, 1])
def test_a7c_a_rank_with_everything_masked_changes_nothing(
    name: str, idle: int, pool: RankPool
) -> None:
    rows = make_rows(num_groups=2)
    masked = [
        replace(row, mask=[False] * len(row.mask)) if row.group == idle else row for row in rows
    ]
    assert_same_step(name, masked, pool)


def test_a7c_every_rank_with_everything_masked_is_a_step_of_zero(pool: RankPool) -> None:
    rows = [replace(row, mask=[False] * len(row.mask)) for row in make_rows()]
    for outcome, gradients in pool.run(on_rank_step, "grpo", rows):
        assert (outcome.loss, outcome.grad_norm, outcome.skipped) == (0.0, 0.0, False)
        assert not any(gradient.any() for gradient in gradients.values())


# ------------------------------------------------------------------------------- the collectives

COLLECTIVES = (
    *("all_reduce", "all_gather", "all_gather_object", "broadcast", "reduce", "barrier"),
    *("all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor", "all_to_all"),
)


def on_rank_count(ranks: Ranks, name: str, max_rows: int) -> dict[str, int]:
    """How often each collective is called for one step cut into microbatches of `max_rows`."""
    counts: Counter[str] = Counter()
    originals = {call: getattr(dist, call) for call in COLLECTIVES}

    def counted(call: str) -> Any:
        def function(*arguments: Any, **options: Any) -> Any:
            counts[call] += 1
            return originals[call](*arguments, **options)

        return function

    for call in COLLECTIVES:
        setattr(dist, call, counted(call))
    try:
        on_rank_step(ranks, name, make_rows(), max_rows=max_rows)
    finally:
        for call, original in originals.items():
            setattr(dist, call, original)
    return dict(counts)


@pytest.mark.parametrize("name", ["nll", "grpo"])
def test_a_step_makes_three_collectives_however_it_is_cut(name: str, pool: RankPool) -> None:
    """Denominators, gradients (one bucket here) and what was measured: once each."""
    once = {"all_reduce": 2, "all_gather_object": 1}
    for max_rows in (1, 2, 12):
        assert pool.run(on_rank_count, name, max_rows) == [once, once]


def on_rank_average(ranks: Ranks, bucket_bytes: int) -> tuple[list[list[float]], int]:
    """Averages of gradients of several dtypes, of which some are missing on a rank."""
    parameters = [
        torch.nn.Parameter(torch.zeros(3)),
        torch.nn.Parameter(torch.zeros(2, 2)),
        torch.nn.Parameter(torch.zeros(2, dtype=torch.float64)),
        torch.nn.Parameter(torch.zeros(2)),
    ]
    parameters[0].grad = torch.full((3,), 1.0 + ranks.rank)
    if ranks.rank == 1:
        parameters[1].grad = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).T  # not contiguous
        parameters[2].grad = torch.ones(2, dtype=torch.float64)
    calls: list[int] = []
    original = dist.all_reduce
    dist.all_reduce = lambda tensor: (calls.append(tensor.numel()), original(tensor))
    try:
        average_gradients(parameters, ranks, bucket_bytes=bucket_bytes)
    finally:
        dist.all_reduce = original
    return [p.grad.flatten().tolist() for p in parameters if p.grad is not None], len(calls)


@pytest.mark.parametrize(("bucket_bytes", "num_calls"), [(2**20, 3), (1, 4), (28, 3)])
def test_gradients_are_averaged_in_buckets(
    bucket_bytes: int, num_calls: int, pool: RankPool
) -> None:
    wanted = [[1.5] * 3, [0.5, 1.5, 1.0, 2.0], [0.5] * 2, [0.0] * 2]
    assert pool.run(on_rank_average, bucket_bytes) == [(wanted, num_calls)] * 2


def on_rank_sharded(ranks: Ranks) -> tuple[list[float], list[float]]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (ranks.size,))
    sharded = torch.nn.Parameter(distribute_tensor(torch.zeros(4), mesh, [Shard(0)]))
    sharded.grad = distribute_tensor(torch.arange(4.0), mesh, [Shard(0)])
    plain = torch.nn.Parameter(torch.zeros(1))
    plain.grad = torch.tensor([float(ranks.rank)])
    average_gradients([sharded, plain], ranks)
    assert sharded.grad.placements == (Shard(0),)
    whole = sharded.grad.redistribute(placements=[Replicate()]).to_local()
    return whole.tolist(), plain.grad.tolist()


def test_sharded_gradients_are_not_averaged_twice(pool: RankPool) -> None:
    assert pool.run(on_rank_sharded) == [([0.0, 1.0, 2.0, 3.0], [0.5])] * 2


def on_rank_wrapped(ranks: Ranks) -> None:
    model = tiny_model(TOKENIZER)
    optimizer = build_adamw(model)
    with pytest.raises(TrainingError, match=r"wrapped in DistributedDataParallel") as refused:
        policy_step(
            torch.nn.parallel.DistributedDataParallel(model),
            optimizer,
            [],
            supervised_loss(step_totals([], ranks)),
            ranks=ranks,
        )
    assert "model.module" in str(refused.value)


def test_a_wrapper_that_averages_too_is_refused(pool: RankPool) -> None:
    pool.run(on_rank_wrapped)


def on_rank_concat(ranks: Ranks) -> list[list[Any]]:
    given = [
        torch.arange(3.0) if ranks.rank == 0 else torch.empty(0),
        torch.tensor([True, False]) if ranks.rank == 0 else torch.tensor([True]),
        torch.tensor([2**40 + ranks.rank]),
        torch.full((1 + ranks.rank,), 0.1 * ranks.rank, dtype=torch.float64, requires_grad=True),
        torch.empty(0, dtype=torch.int64),
        torch.tensor([1.5], dtype=torch.bfloat16) if ranks.rank == 0 else torch.empty(0),
    ]
    whole = [ranks.all_concat(values) for values in given]
    assert [tensor.dtype for tensor in whole[:5]] == [tensor.dtype for tensor in given[:5]]
    assert whole[5].dtype == torch.bfloat16
    assert not any(tensor.requires_grad for tensor in whole[:3])
    return [tensor.tolist() for tensor in whole]


def test_tensors_of_any_length_are_joined(pool: RankPool) -> None:
    assert on_rank_concat(Ranks())[0] == [0.0, 1.0, 2.0]
    wanted = [[0.0, 1.0, 2.0], [True, False, True], [2**40, 2**40 + 1], [0.0, 0.1, 0.1], [], [1.5]]
    assert pool.run(on_rank_concat) == [wanted, wanted]
    with pytest.raises(TrainingError, match=r"shape \(2, 2\); expected one dimension"):
        Ranks().all_concat(torch.zeros(2, 2))


def on_rank_totals(ranks: Ranks) -> tuple[Totals, list[int], list[float]]:
    own = Totals(
        loss=1.0 + ranks.rank,
        sums={"b": 1.0, "a": 2.0} if ranks.rank else {"b": 0.5},
        maxima={"c": float("nan"), "d": -3.0} if ranks.rank else {"c": 1.0},
    )
    largest = ranks.all_max(torch.tensor([ranks.rank, -ranks.rank]))
    ranks.barrier()
    return merge_totals(own, ranks), ranks.all_objects(ranks.rank), largest.tolist()


def test_names_are_agreed_on_where_a_rank_measured_nothing(pool: RankPool) -> None:
    for merged, present, largest in pool.run(on_rank_totals):
        assert (merged.loss, merged.sums) == (3.0, {"a": 2.0, "b": 1.5})
        assert list(merged.maxima) == ["c", "d"]
        assert np.isnan(merged.maxima["c"])
        assert merged.maxima["d"] == -3.0
        assert (present, largest) == ([0, 1], [1, 0])


# -------------------------------------------------------------------------------------- the loops


def on_rank_sft(ranks: Ranks, folder: str) -> tuple[list[int], dict[str, np.ndarray]]:
    """Rows of every step of an SFT run of two epochs, and its weights."""
    arguments = ["model.name_or_path=tiny", "epochs=2", "batch_size=4", "evaluation.every_steps=0"]
    config = compose(["sft"], ["max_seconds=null", *arguments], kind="sft")
    demonstrations = [
        Demonstration(id=f"d/{n}", question=f"{n}+1", response="six" * n) for n in range(9)
    ]
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    sizes: list[int] = []

    class Noted(BatchSampler[Any]):
        def next_batch(self, cursor: int) -> tuple[list[Any], int]:
            rows, cursor = super().next_batch(cursor)
            sizes.append(len(rows))
            return rows, cursor

    path = Path(folder) / str(ranks.rank)
    recorder = Recorder(path)
    with recorder:
        train_sft(
            config,  # type: ignore[arg-type]
            model=model,
            examples=Noted(
                encode_demonstrations(demonstrations, THINK, TOKENIZER).items,
                batch_size=4,
                seed=0,
                rank=ranks.rank,
                num_ranks=ranks.size,
            ),
            recorder=recorder,
            checkpointer=Checkpointer(
                RunPaths(folder=path), TOKENIZER, recorder, kind="sft", config_text=""
            ),
            stop=StopRequest(),
            ranks=ranks,
        )
    return sizes, {n: p.detach().numpy() for n, p in model.named_parameters()}


def test_a18b_an_uneven_last_batch_on_two_ranks(pool: RankPool, tmp_path: Path) -> None:
    """Nine rows in batches of four: in the last one a rank has no row at all."""
    sizes, wanted = on_rank_sft(Ranks(), str(tmp_path / "alone"))
    assert sizes == [4, 4, 1, 4, 4, 1]
    start = dict(tiny_model(TOKENIZER, dtype=torch.float64).named_parameters())
    (first, weights), (second, others) = pool.run(on_rank_sft, str(tmp_path))
    assert (first, second) == ([2, 2, 0, 2, 2, 0], [2, 2, 1, 2, 2, 1])
    for name, weight in wanted.items():
        assert np.array_equal(weights[name], others[name])
        moved = np.abs(weight - start[name].detach().numpy()).max()
        assert np.abs(weights[name] - weight).max() < 1e-6 * moved


def prompt_index(prompts: Any, completions: Any, answer: Any) -> list[float]:
    return [float(text) for text in answer]


class NotedRecorder(Recorder):
    """Keeps the groups and advantages of every step."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.noted: list[tuple[str, int, list[float]]] = []

    def record_rollouts(self, step: int, groups: Any, *, advantages: Any = None) -> None:
        for group, line in zip(groups, advantages, strict=True):
            self.noted.append((group.problem.id, len(group.rollouts), list(line)))


def on_rank_grpo(
    ranks: Ranks, folder: str, num_prompts: int = 6, train_batch_size: int = 18
) -> tuple[list[tuple[str, int, list[float]]], float]:
    """Problem, number of samples and advantages of every group of a GRPO run, and its last norm."""
    config = compose(
        ["quickstart"],
        [
            *("model.name_or_path=tiny", "max_steps=2", "num_generations=3"),
            *(f"prompts_per_step={num_prompts}", f"train_batch_size={train_batch_size}"),
            *("batch.microbatch_rows=2", "evaluation.every_steps=0"),
        ],
        kind="grpo",
    )
    model = tiny_model(TOKENIZER)
    problems = load_problems(
        "arithmetic", options={"num_problems": 6, "terms": 2, "operands": [1, 9]}
    ).items
    problems = [replace(problem, answer=str(n)) for n, problem in enumerate(problems)]
    path = Path(folder) / str(ranks.rank)
    with NotedRecorder(path) as recorder:
        train_grpo(
            config,  # type: ignore[arg-type]
            model=model,
            engine=ScriptedEngine(TOKENIZER, ["12", "a", "4567"]),
            sampler=PromptSampler(
                encode_prompts(problems, THINK, TOKENIZER).items,
                prompts_per_step=num_prompts,
                seed=0,
                rank=ranks.rank,
                num_ranks=ranks.size,
            ),
            sampling=SamplingParams(max_tokens=6),
            reward=Reward(
                settings={},
                components=(Component(name="index", function=prompt_index),),
                gold_fault=lambda gold: None,
            ),
            recorder=recorder,
            checkpointer=Checkpointer(
                RunPaths(folder=path), TOKENIZER, recorder, kind="grpo", config_text=""
            ),
            stop=StopRequest(),
            ranks=ranks,
        )
    norm = sum(p.grad.abs().sum().item() for p in model.parameters() if p.grad is not None)
    return recorder.noted, norm


def test_a12a_equal_rewards_within_groups_on_two_ranks(pool: RankPool, tmp_path: Path) -> None:
    answers = pool.run(on_rank_grpo, str(tmp_path))
    used: Counter[str] = Counter()
    for groups, norm in answers:
        assert norm == 0.0
        assert len(groups) == 6
        for problem, num_samples, advantages in groups:
            assert advantages == [0.0] * 3
            used[problem] += num_samples
    assert len(used) == 6
    assert set(used.values()) == {2 * 3}


@pytest.mark.parametrize(("num_prompts", "train_batch_size"), [(5, 15), (3, 3), (6, 6)])
def test_a18b_ranks_with_different_numbers_of_groups_make_as_many_updates(
    num_prompts: int, train_batch_size: int, pool: RankPool, tmp_path: Path
) -> None:
    """Odd batches in one update, in updates of one group (one rank is idle), and of two."""
    answers = pool.run(on_rank_grpo, str(tmp_path), num_prompts, train_batch_size)
    assert sum(len(groups) for groups, _ in answers) == 2 * num_prompts


class StoppingRecorder(Recorder):
    """Asks for a stop in one step, on one rank."""

    stop_at: tuple[int, StopRequest] | None = None

    def record_rollouts(self, step: int, groups: Any, *, advantages: Any = None) -> None:
        if self.stop_at is not None and step == self.stop_at[0]:
            self.stop_at[1].request()
        super().record_rollouts(step, groups, advantages=advantages)


def prefers_low_ids(prompts: Any, completions: Any, answer: Any, completion_ids: Any) -> Any:
    return [-sum(ids) / len(ids) / 100 for ids in completion_ids]


def on_rank_one_step_off(
    ranks: Ranks, folder: str, stop_at: int | None = None, resume: str | None = None
) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Weights and metrics of a run that samples ahead, five prompts a step; maybe stopped."""
    config = compose(
        ["quickstart"],
        [
            *("model.name_or_path=tiny", "max_steps=4", "num_generations=4", "prompts_per_step=5"),
            *("train_batch_size=20", "batch.microbatch_rows=2", "evaluation.every_steps=0"),
            *("schedule=one_step_off", "engine.own_process=true", "checkpoint.every_steps=0"),
            *("optimizer.learning_rate=0.02", "optimizer.warmup_steps=0", "seed=3"),
        ],
        kind="grpo",
    )
    problems = load_problems(
        "arithmetic", options={"num_problems": 20, "terms": 2, "operands": [1, 9]}
    ).items
    model, path = tiny_model(TOKENIZER, dtype=torch.float64), Path(folder) / str(ranks.rank)
    stop = StopRequest()
    with StoppingRecorder(path) as recorder:
        # The last rank is asked to stop, and all of them do.
        if stop_at is not None and ranks.rank == ranks.size - 1:
            recorder.stop_at = (stop_at, stop)
        with contextlib.suppress(StoppedBySignal):
            train_one_step_off(
                config,  # type: ignore[arg-type]
                model=model,
                engine=TransformersEngine(model, TOKENIZER, eos_token_ids=[TOKENIZER.eos_token_id]),
                sampler=PromptSampler(
                    encode_prompts(problems, THINK, TOKENIZER).items,
                    prompts_per_step=5,
                    seed=0,
                    rank=ranks.rank,
                    num_ranks=ranks.size,
                ),
                sampling=SamplingParams(max_tokens=6),
                reward=Reward(
                    settings={},
                    components=(Component(name="low_ids", function=prefers_low_ids),),
                    gold_fault=lambda gold: None,
                ),
                recorder=recorder,
                checkpointer=Checkpointer(
                    RunPaths(folder=path),
                    TOKENIZER,
                    recorder,
                    kind="grpo",
                    config_text="",
                    resume=resume,
                ),
                stop=stop,
                ranks=ranks,
            )
    weights = {n: p.detach().numpy().copy() for n, p in model.named_parameters()}
    return weights, read_metrics(path / "metrics.jsonl")


def assert_same_run(wanted: dict[str, np.ndarray], got: dict[str, np.ndarray]) -> None:
    start = dict(tiny_model(TOKENIZER, dtype=torch.float64).named_parameters())
    for name, weight in wanted.items():
        moved = np.abs(weight - start[name].detach().numpy()).max()
        assert np.abs(got[name] - weight).max() < 1e-6 * moved, name


def test_one_step_off_on_two_ranks_is_the_run_of_one(pool: RankPool, tmp_path: Path) -> None:
    wanted, rows = on_rank_one_step_off(Ranks(), str(tmp_path / "alone"))
    assert [row["train/weight_version_lag"] for row in rows] == [0.0, 1.0, 1.0, 1.0]
    assert rows[2]["train/mismatch_kl"] > 1e-4
    for weights, metrics in pool.run(on_rank_one_step_off, str(tmp_path / "two")):
        assert_same_run(wanted, weights)
        for row, other in zip(rows, metrics, strict=True):
            assert row["train/weight_version_lag"] == other["train/weight_version_lag"]
            for name in ("loss", "grad_norm", "mismatch_kl", "mismatch_ratio/mean"):
                assert other[f"train/{name}"] == pytest.approx(
                    row[f"train/{name}"], rel=1e-6, abs=1e-12
                )


def test_one_step_off_on_two_ranks_resumes_exactly(pool: RankPool, tmp_path: Path) -> None:
    """The main rank's checkpoint has the parts of both; another number of ranks shares them out."""
    straight = pool.run(on_rank_one_step_off, str(tmp_path / "straight"))
    stopped = pool.run(on_rank_one_step_off, str(tmp_path / "cut"), 2)
    assert [len(rows) for _, rows in stopped] == [2, 2]
    checkpoint = str(tmp_path / "cut/0/checkpoints/step_000002")
    resumed = pool.run(on_rank_one_step_off, str(tmp_path / "cut"), None, checkpoint)
    for (weights, rows), (others, other_rows) in zip(straight, resumed, strict=True):
        assert all(np.array_equal(weights[name], others[name]) for name in weights)
        for row, other in zip(rows, other_rows, strict=True):
            for name in ("loss", "grad_norm", "mismatch_kl", "reward", "weight_version_lag"):
                assert row[f"train/{name}"] == other[f"train/{name}"]
    alone, rows = on_rank_one_step_off(Ranks(), str(tmp_path / "alone"), None, checkpoint)
    assert_same_run(straight[0][0], alone)
    assert [row["train/weight_version_lag"] for row in rows] == [1.0, 1.0]


# ------------------------------------------------------------------------------ when a rank fails


@pytest.mark.parametrize("busy", ["collective", "elsewhere", "also failing"])
def test_a18c_an_error_on_one_rank_ends_the_other_with_its_message(
    busy: str, tmp_path: Path
) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=fail_on_one_rank, args=(rank, str(tmp_path), busy), daemon=True)
        for rank in (0, 1)
    ]
    for process in processes:
        process.start()
    deadline = time.monotonic() + 80
    for process in processes:
        process.join(max(0.1, deadline - time.monotonic()))
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    texts = [(tmp_path / f"stderr-{rank}.txt").read_text() for rank in (0, 1)]
    assert codes == [1, 1], texts
    assert "rank 1 failed: row 17 of the second file is broken" in texts[0]
    assert "rank 1 failed" not in texts[1]
    assert "row 17 of the second file is broken" in texts[1]


def test_a_process_of_its_own_joins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with join_ranks() as ranks:
        assert (ranks.rank, ranks.size, ranks.is_main) == (0, 1, True)
        assert Ranks.current() == ranks
        assert not dist.is_initialized()
