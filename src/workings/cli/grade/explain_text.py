"""The way of one pair to its verdict, for people and for machines."""

from __future__ import annotations

import json
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from workings.cli.grade.report import write_text
from workings.cli.terminal_text import for_terminal, on_one_line
from workings.grading.explain import Explanation, Side
from workings.types import Verdict

LONGEST_SHOWN = 400
"""Characters of a text that are printed; of a longer one the end, where the answer stands."""
BARE_HINT = "--bare compares the response as the answer itself"
_COLOURS = {"equal": "green", "different": "red"}


def print_explanation(explanation: Explanation, response: str, console: Console) -> None:
    """What came, what was taken from it, how both sides were read, what each tier said."""
    write_text(
        console,
        *(_what_came(explanation, response), ""),
        *(_sides(explanation), ""),
        *(_steps(explanation), ""),
        _verdict(explanation),
    )


def explanation_json(explanation: Explanation) -> str:
    """The explanation as JSON; characters that a terminal might obey are escaped."""
    grade = {**asdict(explanation.grade), "correct": explanation.grade.correct}
    return json.dumps({**asdict(explanation), "grade": grade}, indent=2)


def shortened(text: str) -> str:
    """The end of a long text, with its length; a short one whole.

    >>> shortened("ab"), shortened("x" * 1000)[:24]
    ('ab', '(1,000 characters) ...xx')
    """
    if len(text) <= LONGEST_SHOWN:
        return text
    return f"({len(text):,} characters) ...{text[-LONGEST_SHOWN:]}"


def _what_came(explanation: Explanation, response: str) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    table.add_row("gold", _text(explanation.gold.text))
    table.add_row("response", _text(response))
    extracted = explanation.extracted
    table.add_row("extracted", Text("nothing") if extracted is None else _text(extracted))
    table.add_row("", Text(f"policy {explanation.policy}: {explanation.extraction_note}"))
    return table


def _sides(explanation: Explanation) -> Table:
    answer, gold = explanation.answer, explanation.gold
    table = _table("", "gold", "answer")
    for name, field in (("normalised", "normalised"), ("kind", "kind"), ("read as", "read_as")):
        table.add_row(name, _field(gold, field), _field(answer, field))
    return table


def _steps(explanation: Explanation) -> Table:
    table = _table("tier", "outcome", "reason")
    for step in explanation.steps:
        outcome = Text(step.outcome, style=_COLOURS.get(step.outcome, ""))
        table.add_row(Text(step.tier), outcome, Text(for_terminal(step.reason)))
    return table


def _verdict(explanation: Explanation) -> Text:
    grade = explanation.grade
    colour = _COLOURS["equal"] if grade.correct else _COLOURS["different"]
    text = Text("verdict  ", style="bold")
    text.append(grade.verdict.value, style=colour)
    decided = f" by the {grade.tier} tier" if grade.tier else ""
    reason = f": {for_terminal(grade.reason)}" if grade.reason else ""
    text.append(f"{decided}, in {grade.milliseconds:.2f} ms{reason}", style="not bold")
    return text


def offers_bare(explanation: Explanation) -> bool:
    """True where nothing was extracted, so that the whole response may have been meant."""
    return explanation.extracted is None and explanation.grade.verdict is Verdict.NO_ANSWER


def _field(side: Side | None, field: str) -> Text:
    return Text("-") if side is None else _text(getattr(side, field))


def _text(value: str) -> Text:
    return Text(for_terminal(shortened(value)))


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(on_one_line(heading), overflow="fold", no_wrap=number == 0)
    return table
