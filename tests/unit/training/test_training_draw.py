"""Hops 1 to 3: groups that are filtered, refilled, guided by a teacher, or hold a replay."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from grpo_loop import (
    RIGHT,
    TOKENIZER,
    WRONG,
    Loop,
    assert_resumes_exactly,
    drawn,
    problems,
    traces_of,
)
from workings.errors import ConfigError, TrainingError
from workings.rewards.components import Component
from workings.rewards.reward import Reward, build_reward
from workings.training.distributed import Ranks
from workings.training.draw import draw_batch, is_informative
from workings.training.metrics import Stopwatch
from workings.training.source import Source
from workings.training.state import TrainerState

DAPO = {"preset": "dapo", "overlong_share": 0.0}


def draw(loop, *, step=0, cursor=0, started=False, ranks=None):
    """The groups of one step, with its metrics."""
    source = Source(
        config=loop.config,
        engine=loop.engine,
        sampler=loop.sampler,
        sampling=loop.sampling,
        reward=loop.reward,
        guidance=loop.guidance,
        replay=loop.replay,
        ranks=ranks or Ranks(),
    )
    loop.recorder.close()
    loop.engine.load_weights(step, ())
    state = TrainerState(kind="grpo", step=step, cursor=cursor, replay_started=started)
    return draw_batch(source, loop.objective, state, Stopwatch())


def by_question(flat):
    """A script: problems of these numbers get equal samples, the others one right and three wrong.

    A question is `N+?`, so its first token tells them apart.
    """
    ids = {TOKENIZER.encode(str(number))[0] for number in flat}

    def script(request, index):
        return RIGHT if request.prompt_ids[0] in ids or index == 0 else WRONG

    return script


def ids_of(groups):
    return [group.problem.id for group in groups]


# ----------------------------------------------------------------------------- dynamic sampling


def worth(prompts, completions, answer, **columns):
    return [float(text) for text in completions]


def test_a12b_grpo_a_group_of_one_bad_and_seven_good_is_kept_whole(tmp_path):
    uneven = Loop(
        tmp_path,
        lambda request, index: "0" if index == 0 else "0.95",
        objective=DAPO,
        num_generations=8,
        reward=Reward(
            settings={},
            components=(Component(name="worth", function=worth),),
            gold_fault=lambda gold: None,
        ),
    )
    result = draw(uneven)
    assert [[r.reward for r in g.rollouts] for g in result.groups] == [[0.0] + [0.95] * 7] * 2
    assert result.metrics["gen_batches"] == 1.0
    assert all(map(is_informative, result.groups))


def test_a12b_grpo_flat_groups_are_dropped_and_others_drawn(tmp_path):
    """Four of six problems are flat; two prompts a batch, so several batches make one step."""
    loop = Loop(tmp_path, by_question([0, 1, 2, 3]), objective=DAPO)
    result = draw(loop)
    assert len(result.groups) == 2
    assert set(ids_of(result.groups)) <= {"p/4", "p/5"}
    assert all(len(group.rollouts) == 4 for group in result.groups)
    batches = result.metrics["gen_batches"]
    assert loop.engine.sampled == [8] * int(batches)
    assert batches > 1
    # The cursor counts what was drawn, kept or not, so that no prompt is drawn a second time.
    assert result.cursor == 2 * batches
    assert result.metrics["filtered_groups"] == 2 * batches - 2 - result.metrics["surplus_groups"]
    assert 0.25 < result.metrics["unfiltered_reward"] < 1.0


def test_a12b_grpo_samples_of_a_prompt_that_comes_again_are_others(tmp_path):
    """One prompt, drawn batch after batch within a step: each time with another seed."""
    loop = Loop(tmp_path, by_question([0]), objective={**DAPO, "when_short": "proceed"}, count=1)
    draw(loop)
    seeds = [request.seed for requests, _ in loop.engine.batches for request in requests]
    assert len(seeds) == len(set(seeds)) == 20


@pytest.mark.parametrize("most", [1, 3])
def test_grpo_filter_ends_with_an_error_that_has_the_numbers(most, tmp_path):
    loop = Loop(tmp_path, lambda request, index: WRONG, objective={**DAPO, "max_gen_batches": most})
    with pytest.raises(TrainingError) as error:
        loop.run()
    assert str(error.value).startswith(
        f"step 1: only 0 of {2 * most} groups had rewards that differ, in {most} rollout batches; "
        "2 are needed"
    )
    assert len(loop.engine.batches) == most


def test_grpo_filter_may_proceed_with_fewer_groups(tmp_path):
    objective = {**DAPO, "max_gen_batches": 3, "when_short": "proceed"}
    loop = Loop(
        tmp_path, by_question([0, 1, 2, 3, 4]), objective=objective, train_batch_size=4
    ).run()
    assert [len(groups) for groups in loop.groups] == [1, 1]
    assert [row["num_updates"] for row in loop.rows] == [1, 1]
    assert loop.moved > 1e-3


def test_grpo_filter_may_proceed_with_no_group_at_all(tmp_path):
    objective = {**DAPO, "max_gen_batches": 2, "when_short": "proceed"}
    for preset in ("group", "reinforce_pp", "gdpo", "remax", "opo", "rae"):
        settings = {**objective, "advantage": preset}
        loop = Loop(tmp_path / preset, lambda request, index: WRONG, objective=settings).run()
        assert loop.moved == 0
        assert [row["loss"] for row in loop.rows] == [0.0, 0.0]
        assert loop.rows[0]["unfiltered_reward"] == 0.0
        assert loop.result.state.cursor == 8


def test_a12b_grpo_a_run_with_a_filter_resumes_exactly(tmp_path):
    def make(folder, **kw):
        # One sample in seven is right, so that many groups are flat.
        def script(request, index):
            return drawn(request, index, chance=0.15)

        return Loop(folder, script, objective=DAPO, max_steps=4, **kw)

    straight, second = assert_resumes_exactly(make, tmp_path, at=2)
    assert max(row["gen_batches"] for row in straight.rows) > 1
    assert second.result.state.cursor == straight.result.state.cursor > 8


def test_grpo_filter_keeps_equal_sums_of_components_that_differ_for_gdpo(tmp_path):
    """Right and short, or wrong and long: 1 + 0 and 0 + 1 teach gdpo, and nobody else."""

    def long(prompts, completions, answer, **columns):
        return [float(text.endswith(".")) for text in completions]

    for advantage, kept in (("gdpo", 2), ("group", 0)):
        loop = Loop(
            tmp_path / advantage,
            lambda request, index: RIGHT if index % 2 else WRONG + ".",
            objective={**DAPO, "advantage": advantage, "when_short": "proceed"},
            reward=build_reward(
                "question_only", extra_components=(Component(name="long", function=long),)
            ),
        )
        result = draw(loop)
        assert {r.reward for group in result.groups for r in group.rollouts} <= {1.0}
        assert len(result.groups) == kept


def test_grpo_replace_repeats_informative_groups(tmp_path):
    objective = {"dynamic_sampling": "replace"}
    loop = Loop(
        tmp_path,
        by_question([0, 1, 2, 3]),
        objective=objective,
        prompts_per_step=6,
        train_batch_size=12,
        max_steps=1,
    ).run()
    (groups,) = loop.groups
    assert len(groups) == 6
    assert set(ids_of(groups)) == {"p/4", "p/5"}
    assert sorted(map(ids_of(groups).count, ("p/4", "p/5"))) == [3, 3]
    assert loop.rows[0]["refilled_groups"] == 4.0
    assert loop.engine.sampled == [24]
    assert draw(loop) == draw(loop)


def test_grpo_replace_without_an_informative_group_changes_nothing(tmp_path):
    loop = Loop(
        tmp_path, lambda request, index: WRONG, objective={"dynamic_sampling": "replace"}
    ).run()
    assert [row["refilled_groups"] for row in loop.rows] == [0.0, 0.0]
    assert loop.moved == 0


# -------------------------------------------------------------------------------- teacher traces


def test_luffy_seven_samples_and_one_trace_in_every_group(tmp_path):
    loop = Loop(tmp_path, objective={"preset": "luffy"}, num_generations=8, prompts_per_step=3)
    result = draw(loop)
    assert [r.num_samples for r in loop.engine.batches[0][0]] == [7, 7, 7]
    assert len(loop.engine.batches) == 1
    for group in result.groups:
        assert [r.source for r in group.rollouts] == ["policy"] * 7 + ["demonstration"]
        trace = group.rollouts[-1]
        assert trace.text == r"thus \boxed{4}"
        assert trace.ids[-1] == TOKENIZER.eos_token_id
        assert all(trace.off_policy)
        assert trace.reward == 1.0  # graded like every other row
        assert all(map(math.isnan, trace.sampling_logprobs))
        # The samples never saw the trace.
        assert not any(any(r.off_policy) for r in group.rollouts[:-1])
    assert result.metrics["off_policy/row_fraction"] == 1 / 8
    assert result.metrics["off_policy/guided_groups"] == 3.0
    assert result.metrics["off_policy/teacher_right"] == 1.0


def test_luffy_a_problem_without_a_trace_is_sampled_eight_times(tmp_path):
    loop = Loop(
        tmp_path,
        objective={"preset": "luffy"},
        num_generations=8,
        prompts_per_step=6,
        traces=traces_of([problem for problem in problems() if problem.id != "p/3"]),
    )
    result = draw(loop)
    counts = {
        group.problem.id: request.num_samples
        for group, request in zip(result.groups, loop.engine.batches[0][0], strict=True)
    }
    assert counts == {f"p/{n}": 8 if n == 3 else 7 for n in range(6)}
    assert all(len(group.rollouts) == 8 for group in result.groups)


def test_luffy_traces_of_a_share_of_the_prompts(tmp_path):
    settings = {"objective": {"preset": "luffy"}, "off_policy": {"keep_prob": 0.5}}
    loop = Loop(tmp_path, **settings, prompts_per_step=6)
    steps = [
        {g.problem.id for g in draw(loop, step=step).groups if g.rollouts[-1].source != "policy"}
        for step in range(4)
    ]
    assert 4 < sum(map(len, steps)) < 20
    assert len(set(map(frozenset, steps))) > 1
    again = [g.rollouts[-1].source for g in draw(loop, step=2).groups]
    assert again.count("demonstration") == len(steps[2])


def test_luffy_wrong_traces_are_kept_or_dropped(tmp_path):
    say = {"p/0": RIGHT, "p/1": WRONG}
    results = {}
    for choice in ("keep", "drop"):
        loop = Loop(
            tmp_path / choice,
            lambda request, index: RIGHT if index == 0 else WRONG,
            count=2,
            objective={"preset": "luffy"},
            off_policy={"wrong_traces": choice},
            traces=traces_of(problems(2), lambda problem: say[problem.id]),
            max_steps=1,
        )
        results[choice] = loop.run()
    for choice, loop in results.items():
        rows = {
            group.problem.id: (group.rollouts, line)
            for group, line in zip(loop.groups[0], loop.advantages[0], strict=True)
        }
        rollouts, advantages = rows["p/1"]
        assert loop.rows[0]["off_policy/teacher_wrong"] == 1.0
        assert rollouts[-1].reward == (0.0 if choice == "keep" else None)
        mean = 1 / 4 if choice == "keep" else 1 / 3
        wanted = [1 - mean, -mean, -mean, -mean if choice == "keep" else 0.0]
        assert advantages == pytest.approx(wanted)
        assert rows["p/0"][1] == pytest.approx([0.5, -0.5, -0.5, 0.5])
    assert results["drop"].rows[0]["off_policy/teacher_dropped"] == 1.0
    # The dropped row leaves the denominators too: seven rows are trained.
    tokens = [loop.rows[0]["trained_tokens"] for loop in results.values()]
    assert tokens[0] - tokens[1] == len(TOKENIZER.encode(WRONG)) + 1


@pytest.mark.parametrize("name", ["random", "fixed", "linear", "linear_max", "reverse_linear"])
def test_luffy_partial_prefixes_go_through_the_engine(name, tmp_path):
    """The teacher's beginning is off-policy and the continuation the policy's own."""
    settings = {"prefix_schedule": name, "prefix_min_ratio": 0.4, "prefix_max_ratio": 0.8}
    if name == "linear":
        settings |= {"prefix_share_across_samples": True}
    loop = Loop(
        tmp_path,
        None,
        objective={"preset": "luffy", "num_off": 2},
        off_policy={**settings, "prefix_steps": 10},
        max_tokens=20,
    )
    result = draw(loop, step=4)
    guided = 0
    for group in result.groups:
        assert len(group.rollouts) == 4
        trace = loop.guidance.traces[group.problem.id][0]
        for rollout in group.rollouts:
            begun = sum(rollout.off_policy)
            assert list(rollout.off_policy) == [True] * begun + [False] * (len(rollout.ids) - begun)
            assert tuple(rollout.ids[:begun]) == trace.ids[:begun]
            assert begun < len(trace.ids)  # EOS is not the teacher's to give
            assert len(rollout.ids) <= 20
            assert all(map(math.isnan, rollout.sampling_logprobs[:begun]))
            assert not any(map(math.isnan, rollout.sampling_logprobs[begun:]))
            assert (rollout.source == "demonstration") == (begun > 0)
            guided += begun > 0
            if name in ("random", "fixed") and begun:
                assert 0.3 <= begun / (len(trace.ids) - 1) <= 0.8
    assert guided >= 1


def test_luffy_every_row_may_be_guided(tmp_path):
    """num_off=-1, as LUFFY's YAML has it, with beginnings of half a trace."""
    loop = Loop(
        tmp_path,
        None,
        objective={"preset": "luffy", "num_off": -1},
        off_policy={"prefix_min_ratio": 0.5, "prefix_max_ratio": 0.5},
    ).run()
    for groups in loop.groups:
        assert all(any(r.off_policy) for group in groups for r in group.rollouts)
    assert loop.rows[-1]["off_policy/row_fraction"] == 1.0


def test_luffy_a_continuation_that_fails_is_no_wrong_trace(tmp_path):
    loop = Loop(
        tmp_path,
        lambda request, index: WRONG,
        objective={"preset": "luffy"},
        off_policy={"prefix_min_ratio": 0.3, "prefix_max_ratio": 0.3, "wrong_traces": "drop"},
        max_tokens=24,
    )
    result = draw(loop)
    assert [r.reward for group in result.groups for r in group.rollouts] == [0.0] * 8
    assert result.metrics["off_policy/teacher_dropped"] == 0.0


def test_luffy_without_guidance_and_replay_without_a_buffer_are_refused(tmp_path):
    for preset, part in (("luffy", "guidance"), ("exgrpo", "replay")):
        loop = Loop(tmp_path / preset, objective={"preset": preset})
        setattr(loop, part, None)
        with pytest.raises(ConfigError, match=f"give the loop its {part}"):
            loop.run()


# ---------------------------------------------------------------------------------------- replay


def test_exgrpo_replay_on_several_ranks_is_refused(tmp_path):
    loop = Loop(tmp_path, objective={"preset": "exgrpo"})
    with pytest.raises(ConfigError, match="replay runs on one process"):
        draw(loop, ranks=SimpleNamespace(size=2))


def test_exgrpo_half_of_the_prompts_replay_a_success_beside_fresh_samples(tmp_path):
    loop = Loop(
        tmp_path,
        lambda request, index: RIGHT if index == 0 else WRONG,
        objective={"preset": "exgrpo"},
        prompts_per_step=4,
        num_generations=4,
    )
    first = draw(loop)
    assert first.metrics["replay/share"] == 0.0
    assert len(loop.replay.buffer) == 4
    second = draw(loop, step=1, cursor=first.cursor, started=True)
    assert second.metrics["replay/share"] == 0.5
    assert loop.engine.sampled == [16, 14]
    assert second.cursor == first.cursor + 2
    for group in second.groups[2:]:
        replayed = group.rollouts[-1]
        assert (replayed.source, replayed.weight_version, replayed.reward) == ("replay", 0, 1.0)
        assert replayed.text == RIGHT
        assert list(replayed.recorded_logprobs) == pytest.approx([-4.7] * len(replayed.ids))
    for group in second.groups[:2]:
        assert {r.source for r in group.rollouts} == {"policy"}


def test_exgrpo_a_problem_that_is_always_solved_is_retired(tmp_path):
    """It is replayed no more, and drawn no more as a fresh prompt."""
    loop = Loop(
        tmp_path, by_question([0, 1, 2]), objective={"preset": "exgrpo"}, prompts_per_step=6
    )
    first = draw(loop)
    assert loop.replay.buffer.retired == {"p/0", "p/1", "p/2"}
    assert first.metrics["replay/retired"] == 3.0
    seen = set()
    cursor = first.cursor
    for step in range(1, 5):
        result = draw(loop, step=step, cursor=cursor, started=True)
        cursor = result.cursor
        seen |= set(ids_of(result.groups))
    assert seen == {"p/3", "p/4", "p/5"}
