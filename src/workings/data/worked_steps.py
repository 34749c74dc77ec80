"""How worked steps and the response around them are written: the texts of the arithmetic tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from workings.data.exercises import Exercise, Step, split_places, write_expression

RESPONSE = "{steps}</think> <answer>{answer}</answer>"
RUNNING_STYLES = ("chain", "totals", "all_totals")


def write_response(
    exercise: Exercise, *, style: str, places: bool = False, spaces: bool = False
) -> str:
    """The response of a demonstration: worked steps, then the answer in its tags.

    >>> write_response(Exercise(operands=(3, 8, 5), operations=("+", "+")), style="lines")
    '3+8=11\\n11+5=16</think> <answer>16</answer>'
    """
    steps = write_steps(exercise, style=style, places=places, spaces=spaces)
    return RESPONSE.format(steps=steps, answer=exercise.answer)


def write_steps(
    exercise: Exercise, *, style: str, places: bool = False, spaces: bool = False
) -> str:
    """The worked steps alone, in one of `STYLES`.

    `places` does each step place by place (see `split_places`); "rewrite" writes the whole
    expression anew after each operation and takes no notice of it.
    """
    if style == "rewrite":
        return _rewrite(exercise, spaces)
    steps = exercise.steps()
    if places:
        steps = [small for step in steps for small in split_places(step)]
    return STYLES[style](steps, spaces)


def _equation(step: Step, spaces: bool) -> str:
    left = write_expression((step.left, step.right), (step.operation,), spaces=spaces)
    return f"{left} = {step.result}" if spaces else f"{left}={step.result}"


def _joined_by(separator: str) -> Callable[[Sequence[Step], bool], str]:
    return lambda steps, spaces: separator.join(_equation(step, spaces) for step in steps)


def _chain(steps: Sequence[Step], spaces: bool) -> str:
    """`3+8=11+5=16`: each result is carried straight on."""
    text = str(steps[0].left)
    for step in steps:
        operation = f" {step.operation} " if spaces else step.operation
        equals = " = " if spaces else "="
        text += f"{operation}{step.right}{equals}{step.result}"
    return text


def _totals(steps: Sequence[Step], spaces: bool) -> str:
    return (", " if spaces else ",").join(str(step.result) for step in steps)


def _all_totals(steps: Sequence[Step], spaces: bool) -> str:
    return (", " if spaces else ",").join([str(steps[0].left), _totals(steps, spaces)])


def _nothing(steps: Sequence[Step], spaces: bool) -> str:
    return ""


def _rewrite(exercise: Exercise, spaces: bool) -> str:
    """`3+8+5=11+5=16`: true equations all along."""
    written = [exercise.expression(spaces=spaces)]
    for _, operands, operations in exercise.reductions():
        written.append(write_expression(operands, operations, spaces=spaces))
    return (" = " if spaces else "=").join(written)


STYLES: Mapping[str, Callable[[Sequence[Step], bool], str]] = {
    "lines": _joined_by("\n"),
    "commas": _joined_by(", "),
    "semicolons": _joined_by("; "),
    "chain": _chain,
    "totals": _totals,
    "all_totals": _all_totals,
    "none": _nothing,
}
STYLE_NAMES = (*STYLES, "rewrite")
