"""Runs with a teacher's traces (LUFFY) and with the policy's own past successes (ExGRPO)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from off_policy_runs import off_policy_arguments, write_traces
from safetensors.torch import load_file

from grpo_loop import (
    RIGHT,
    WRONG,
    Loop,
    assert_finite,
    assert_resumes_exactly,
    drawn,
    without_times,
)
from tiny import save_tiny, tiny_tokenizer
from workings import read_metrics
from workings.cli.main import main
from workings.models.tensors import load_tensors


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_traces(tmp_path_factory.mktemp("data") / "luffy.parquet")


def rows_of(folder: Path) -> list[dict]:
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if row["kind"] == "train"]
    return without_times(
        [{name.removeprefix("train/"): value for name, value in row.items()} for row in rows]
    )


def same_end(first: Path, second: Path) -> None:
    weights, others = (load_file(f / "final" / "model.safetensors") for f in (first, second))
    assert all(weights[name].equal(others[name]) for name in weights)
    assert rows_of(first) == rows_of(second)


# ------------------------------------------------------------------------------------ LUFFY


@pytest.mark.parametrize(
    "more",
    [
        ("objective.preset=luffy",),
        ("objective.preset=luffy_clip", "off_policy.keep_prob=0.5"),
        ("objective.preset=rl_sft_loss",),
        (
            "objective.preset=luffy",
            "off_policy={prefix_min_ratio: 0.2, prefix_max_ratio: 0.9}",
            "objective.num_off=2",
        ),
    ],
    ids=["whole", "some", "likelihood", "beginnings"],
)
def test_luffy_runs_from_its_file_and_resumes_bit_for_bit(more, model, traces, tmp_path):
    straight = off_policy_arguments(model, traces, tmp_path / "a", *more)
    assert main(straight) == 0
    cut = off_policy_arguments(model, traces, tmp_path / "b", *more, "max_steps=4")
    # Stopped after step 2: what comes after its checkpoint is gone.
    assert main(cut) == 0
    folder = tmp_path / "b" / "run"
    for step in (3, 4):
        _remove(folder / "checkpoints" / f"step_{step:06d}")
    _remove(folder / "final")
    assert main([*cut, "--resume"]) == 0
    same_end(tmp_path / "a" / "run", folder)
    log = (folder / "run.log").read_text(encoding="utf-8")
    assert "resumed from" in log
    rows = rows_of(folder)
    assert_finite(rows)
    assert len(rows) == 4
    assert all(row["off_policy/row_fraction"] > 0 for row in rows)


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    folder.rmdir()


def test_luffy_checks_run_before_step_0_and_are_said(model, traces, tmp_path):
    assert (
        main(off_policy_arguments(model, traces, tmp_path, "objective.preset=luffy", "max_steps=1"))
        == 0
    )
    log = (tmp_path / "run" / "run.log").read_text(encoding="utf-8")
    said = [
        line.split("preflight: ")[1].split(":")[0]
        for line in log.splitlines()
        if "preflight" in line
    ]
    assert said == ["traces", "template", "thought", "EOS", "lengths", "positions", "teacher"]
    assert log.index("preflight: teacher: 10 of 10") < log.index("train step 1")
    assert "objective luffy: ratio token, surrogate ratio" in log
    (row,) = rows_of(tmp_path / "run")
    assert row["off_policy/teacher_right"] == 1.0
    assert 0 < row["off_policy/probability"] < 0.1


@pytest.mark.parametrize(
    ("say", "more", "message"),
    [
        (lambda a: f"<think>\nhm </think> <answer>{a}0</answer>", (), "0 of 10 teacher rows"),
        (lambda a: f"so it is {a}", (), "0 of 10 teacher rows are graded right"),
        (None, ("off_policy.prompt_ending=XX",), "12 of 12 prompts do not end with 'XX'"),
        (None, ("sampling.max_tokens=20",), "the longest trace has"),
        (None, ("sampling.max_tokens=250",), "the model has 256"),
        (lambda a: f"<think>\nhm {a} and on", (), "has no usable trace for any of"),
    ],
    ids=["wrong", "format", "ending", "length", "positions", "cut"],
)
def test_luffy_what_cannot_teach_is_refused_before_step_0(
    say, more, message, model, tmp_path, capsys
):
    data = write_traces(tmp_path / "luffy.parquet", say=say)
    arguments = off_policy_arguments(model, data, tmp_path, "objective.preset=luffy", *more)
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert rows_of(tmp_path / "run") == []


def test_luffy_a_double_thought_is_removed_or_refused(model, tmp_path, capsys):
    """The prompt ends in the opening tag: one is taken off the trace, of two one is left over."""
    twice = write_traces(
        tmp_path / "twice.parquet",
        say=lambda a: f"<think>\n<think>\nx </think> <answer>{a}</answer>",
    )
    assert main(off_policy_arguments(model, twice, tmp_path, "objective.preset=luffy")) == 2
    assert "open the thought a second time" in capsys.readouterr().err


def test_luffy_recorded_teacher_probabilities_enter_the_ratio(model, tmp_path):
    """p / (q + 1e-6) and no shaping; a list of the wrong length is refused."""
    tokenizer = tiny_tokenizer()

    def probabilities(text, extra=1):
        return [0.5] * (len(tokenizer.encode(text.removeprefix("<think>"))) + extra)

    data = write_traces(tmp_path / "p.parquet", probabilities=probabilities)
    settings = ("objective.preset=luffy", "objective.use_teacher_probs=true", "max_steps=1")
    once = "train_batch_size=null"
    assert main(off_policy_arguments(model, data, tmp_path, *settings, once)) == 0
    (row,) = rows_of(tmp_path / "run")
    assert_finite([row])
    wrong = write_traces(
        tmp_path / "w.parquet", probabilities=lambda text: probabilities(text, extra=0)
    )
    assert main(off_policy_arguments(model, wrong, tmp_path, *settings, name="wrong")) == 2


def test_luffy_a_rare_token_of_the_teacher_rises_faster_under_shaping(tmp_path):
    """From about p = 0.01 (luffy reference, section 8): f' is 8 times as large at gamma 0.1."""

    def probability(loop):
        (trace, *_) = loop.guidance.traces["p/0"]
        prompt = loop.prompts[0].ids
        ids = torch.tensor([[*prompt, *trace.ids]])
        with torch.no_grad():
            table = torch.log_softmax(loop.model(ids).logits[0, len(prompt) - 1 : -1], -1)
        return table[torch.arange(len(trace.ids)), list(trace.ids)].exp().mean().item()

    risen = {}
    for shaping in ("ratio", "no_reshape"):
        loop = Loop(
            tmp_path / shaping,
            lambda request, index: WRONG,
            count=1,
            objective={
                "preset": "luffy",
                "off_shaping": shaping,
                "entropy_coef": 0.0,
                "on_advantage_scale": 0.0,  # the traces alone
            },
            prompts_per_step=1,
            max_steps=6,
            # Next to such an eps AdamW is plain descent; otherwise it hides how long a gradient is.
            optimizer={"learning_rate": 200.0, "eps": 1e3, "max_grad_norm": 0.0},
        )
        before = probability(loop)
        loop.run()
        risen[shaping] = probability(loop) - before
        assert before == pytest.approx(0.01, abs=0.006)
    assert risen["ratio"] > 3 * abs(risen["no_reshape"]) > 0


# ------------------------------------------------------------------------------------ ExGRPO

EXGRPO = {"objective": {"preset": "exgrpo"}, "prompts_per_step": 4, "count": 8}


def test_exgrpo_starts_late_with_the_clip_until_then(tmp_path, monkeypatch):
    """A batch that is solved more than a third of the time starts the replay, one step later."""
    from workings.training import learn

    surrogates, inner = [], learn.policy_gradient_loss

    def noted(totals, objective, **settings):
        surrogates.append((objective.surrogate, objective.epsilon, objective.replay))
        return inner(totals, objective, **settings)

    monkeypatch.setattr(learn, "policy_gradient_loss", noted)
    batch = []

    def script(request, index):
        # One in four at first, a half from the third batch on.
        batch.append(1)
        num_right = 1 if len(batch) <= 2 * 16 else 2
        return RIGHT if index < num_right else WRONG

    loop = Loop(tmp_path, script, **EXGRPO, max_steps=5).run()
    before, after = ("ppo_clip", 0.2, False), ("ratio", None, True)
    assert surrogates == [before] * 3 + [after] * 2
    assert [row["replay/share"] for row in loop.rows] == [0.0] * 3 + [0.5] * 2
    assert loop.result.state.replay_started
    sources = [
        [r.source for group in groups for r in group.rollouts].count("replay")
        for groups in loop.groups
    ]
    assert sources == [0, 0, 0, 2, 2]
    assert loop.engine.sampled == [16, 16, 16, 14, 14]
    for groups in loop.groups[3:]:
        replayed = [r for group in groups for r in group.rollouts if r.source == "replay"]
        assert all(r.reward == 1.0 and r.weight_version < 4 for r in replayed)


def test_exgrpo_weighs_a_replay_by_what_it_was_recorded_with(tmp_path):
    """w = pi / pi_recorded, shaped to w / (w + 0.1): the loss of replayed tokens, by hand."""
    from workings.training import learn

    seen, inner = [], learn.policy_step

    def noted(model, optimizer, microbatches, loss, **settings):
        outcome = inner(model, optimizer, microbatches, loss, **settings)
        seen.append((list(microbatches), outcome))
        return outcome

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learn, "policy_step", noted)
        loop = Loop(
            tmp_path,
            lambda request, index: RIGHT if index == 0 else WRONG,
            objective={"preset": "exgrpo", "entropy_coef": 0.0},
            replay={"start_solve_rate": 0.1},
            count=4,
            prompts_per_step=4,
            max_steps=2,
            optimizer={"learning_rate": 0.0},
        ).run()
    batches, outcome = seen[1]
    policy = total = 0.0
    with torch.no_grad():
        for groups, lines in zip(loop.groups[1:], loop.advantages[1:], strict=True):
            for group, line in zip(groups, lines, strict=True):
                for rollout, advantage in zip(group.rollouts, line, strict=True):
                    ids = torch.tensor([[*group.prompt.ids, *rollout.ids]])
                    logits = loop.model(ids).logits[0, len(group.prompt.ids) - 1 : -1]
                    lp = torch.log_softmax(logits, -1)[
                        torch.arange(len(rollout.ids)), list(rollout.ids)
                    ]
                    if rollout.source == "replay":
                        w = (lp + 4.7).exp()
                        policy -= advantage * (w / (w + 0.1)).sum().item()
                    else:
                        policy -= advantage * len(rollout.ids)
                    total += 1
    assert total == 16
    assert outcome.loss == pytest.approx(policy / (16 * 16), rel=1e-4)
    off = [batch.off_policy.any(1).sum().item() for batch in batches]
    assert sum(off) == 2


def replaying(folder, **kw):
    def script(request, index):
        # Problems of even numbers are often right, the others seldom.
        even = request.prompt_ids[0] % 2 == 0
        return drawn(request, index, chance=0.6 if even else 0.2)

    settings = {"start_solve_rate": 0.05, "max_age": 4, "max_rollouts": 12}
    return Loop(folder, script, **EXGRPO, replay=settings, max_steps=6, **kw)


def test_a11e_exgrpo_the_buffer_is_saved_and_the_run_resumes_bit_for_bit(tmp_path):
    straight, second = assert_resumes_exactly(replaying, tmp_path, at=3)
    states = [loop.replay.buffer.to_state() for loop in (straight, second)]
    assert states[0] == states[1]
    assert states[0]["entries"]
    saved = load_tensors(tmp_path / "cut" / "checkpoints" / "step_000003" / "replay.pt")
    assert saved["entries"] != states[0]["entries"]
    shares = [row["replay/share"] for row in straight.rows]
    assert max(shares) == 0.5
    assert [row["replay/age/max"] for row in straight.rows][-1] > 0
    assert max(row["replay/rollouts"] for row in straight.rows) <= 12


def test_exgrpo_retired_problems_are_not_drawn(tmp_path):
    loop = replaying(tmp_path).run()
    retired = set()
    for groups in loop.groups:
        drawn_now = {group.problem.id for group in groups}
        assert not drawn_now & retired
        retired |= {
            group.problem.id for group in groups if all(r.reward == 1.0 for r in group.rollouts)
        }
    assert retired == loop.replay.buffer.retired


def test_exgrpo_a_checkpoint_without_its_buffer_is_refused(tmp_path):
    from workings.errors import CheckpointError

    folder = tmp_path / "run"
    replaying(folder).run_until(3)
    step = folder / "checkpoints" / "step_000003"
    (step / "replay.pt").unlink()
    with pytest.raises(CheckpointError):
        replaying(folder, resume="latest").run()


@pytest.mark.parametrize("select", ["entropy", "perplexity", "random"])
def test_exgrpo_through_the_command_line(select, model, traces, tmp_path):
    """A random model solves nothing, so the buffer stays empty and says so."""
    arguments = off_policy_arguments(
        model,
        traces,
        tmp_path,
        "objective.preset=exgrpo",
        f"replay.select={select}",
        "optimizer.skip_above_grad_norm=500",
        "max_steps=2",
    )
    assert main(arguments) == 0
    rows = rows_of(tmp_path / "run")
    assert_finite(rows)
    assert [row["replay/questions"] for row in rows] == [0.0, 0.0]
    state = json.loads(
        (tmp_path / "run/checkpoints/step_000002/trainer_state.json").read_text(encoding="utf-8")
    )
    assert state["replay_started"] is False
