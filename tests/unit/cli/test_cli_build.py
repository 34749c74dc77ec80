"""Settings to objects."""

from __future__ import annotations

from pathlib import Path

from workings.cli.build import build_grader, build_run_reward
from workings.config.sections import GraderConfig, RewardConfig


def test_a_grader_with_the_settings_of_its_section(tmp_path: Path) -> None:
    file = tmp_path / "grades.sqlite"
    settings = GraderConfig(num_workers=2, deadline_seconds=1.5, store=str(file))
    for _ in range(2):
        with build_grader(settings) as grader:
            assert grader.policy.deadline_seconds == 1.5
            assert grader.grade(r"\boxed{0.5}", "1/2").correct
    assert file.is_file()
    with build_grader(GraderConfig()) as grader:
        assert grader.grade(r"\boxed{0.5}", "1/2").correct
    assert list(tmp_path.iterdir()) == [file]


def test_the_equality_of_a_reward_can_be_the_grader_s() -> None:
    with build_grader(GraderConfig()) as grader:
        paid = {
            equality: build_run_reward(
                RewardConfig(name="question_only", equality=equality),
                grader,
                eos_token=None,
                max_tokens=16,
            ).settings["strict_compat"]
            for equality in ("strict", "grader")
        }
    assert paid == {"strict": True, "grader": False}
