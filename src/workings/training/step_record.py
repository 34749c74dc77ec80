"""What a loop over rollouts writes down of a step: metrics, completions, a word on flat rewards."""

from __future__ import annotations

from dataclasses import replace

from workings.rewards.four_classes import answer_right, format_right
from workings.rewards.reward_metrics import reward_metrics
from workings.rollout.collect import completion_metrics
from workings.tracking.flat_rewards import FlatRewardWarner
from workings.tracking.recorder import Recorder
from workings.tracking.rollout_statistics import rollout_statistics
from workings.training.credit import Credit
from workings.training.draw import Drawn
from workings.training.flops import shape_of, training_flops
from workings.training.learn import Learner, Trained
from workings.training.metrics import Stopwatch, speed_metrics
from workings.training.policy_metrics import policy_metrics
from workings.training.state import TrainerState


class StepRecord:
    """Writes the steps of a run to its recorder; explains flat rewards once."""

    def __init__(self, recorder: Recorder, learner: Learner) -> None:
        self._recorder = recorder
        self._learner = learner
        self._flat = FlatRewardWarner(recorder.warn)
        self._shape = shape_of(learner.model)

    def write(
        self,
        state: TrainerState,
        drawn: Drawn,
        *,
        credit: Credit,
        trained: Trained,
        clock: Stopwatch,
        epoch: float,
    ) -> None:
        """The step that led to `state`."""
        groups, step = drawn.groups, state.step
        moved = {name: state.controllers[name] for name in trained.coefficients.controllers()}
        self._recorder.record(
            step,
            {
                **policy_metrics(trained.outcomes),
                **reward_metrics(groups),
                **credit.metrics,
                **drawn.metrics,
                **{f"controller/{name}": value for name, value in moved.items()},
                **(completion_metrics(groups, weight_version=step - 1) if groups else {}),
                **speed_metrics(
                    self._learner.device, seconds=clock.total, num_tokens=trained.num_tokens
                ),
                **clock.metrics(),
                "model_flops": training_flops(self._shape, trained.work),
                "learning_rate": trained.learning_rate,
                "epoch": epoch,
                "consumed_tokens": state.consumed_tokens,
            },
        )
        self._recorder.record_rollouts(step, groups, advantages=credit.by_row)
        statistics = rollout_statistics(
            groups, format_right=format_right, answer_right=answer_right
        )
        # Samples that are all wrong teach beside a right trace, or against a baseline.
        num_flat = sum(not any(line) for line in credit.by_row)
        self._flat.update(step, replace(statistics, num_flat_groups=num_flat))
