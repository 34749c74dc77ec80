"""Grade answers: what counts as equal, what the verdicts mean, and what a reward makes of them.

python examples/grade_answers.py
"""

from __future__ import annotations

from workings import Grader, r1_zero_reward_fn

PAIRS = (
    (r"so half of it is \boxed{\frac{1}{2}}", "0.5"),
    (r"\boxed{1{,}000}", "1000"),
    (r"\boxed{(x+1)^2}", "x^2+2x+1"),
    (r"first \boxed{3}, no: \boxed{4}", "3"),
    ("I think it is 4", "4"),
    (r"\boxed{9^{9^{9^{9}}}}", "7"),
)


def main() -> None:
    """Print one line per pair, then a reward."""
    with Grader() as grader:
        responses, golds = zip(*PAIRS, strict=True)
        for response, gold, grade in zip(
            responses, golds, grader.grade_batch(responses, golds), strict=True
        ):
            print(f"{response:45} gold {gold:12} {grade.verdict:12} tier {grade.tier}")
        text = "12 of 24 is half </think> <answer>1/2</answer>"
        print(r1_zero_reward_fn(text, "0.5", grader=grader))


if __name__ == "__main__":
    main()
