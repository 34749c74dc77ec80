"""What `workings doctor` finds: one line each, with a reason and, where it is needed, a remedy."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from workings.cli.colour import Colour, paint
from workings.errors import WorkingsError

Status = Literal["ok", "warn", "FAIL", "-"]
_COLOURS: dict[Status, Colour] = {"ok": "green", "warn": "yellow", "FAIL": "red", "-": "dim"}
_STATUS_WIDTH, _WHAT_WIDTH, _LINE_WIDTH = 6, 18, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        status: "ok", "warn" (it runs, but see), "FAIL" (it will not), "-" (absent or left out,
            and not needed).
        what: the thing, in a word or three.
        text: what was found.
        remedy: what to do about it.
        details: lines to show below as they are, such as a table.
    """

    status: Status
    what: str
    text: str
    remedy: str | None = None
    details: tuple[str, ...] = ()


def ok(what: str, text: str, *, details: Sequence[str] = ()) -> Finding:
    """All is well."""
    return Finding(status="ok", what=what, text=text, details=tuple(details))


def warn(what: str, text: str, remedy: str, *, details: Sequence[str] = ()) -> Finding:
    """It will run, but perhaps not as it is meant to."""
    return Finding(status="warn", what=what, text=text, remedy=remedy, details=tuple(details))


def fail(what: str, text: str, remedy: str | None, *, details: Sequence[str] = ()) -> Finding:
    """It will not run."""
    return Finding(status="FAIL", what=what, text=text, remedy=remedy, details=tuple(details))


def absent(what: str, text: str) -> Finding:
    """Not there, or not looked at, which is no fault."""
    return Finding(status="-", what=what, text=text)


def guarded(what: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """The findings of a check; an error of this package is a failure with its hint as remedy."""
    try:
        return list(check())
    except WorkingsError as error:
        return [fail(what, error.message, error.hint)]


def format_finding(finding: Finding) -> str:
    """The line, wrapped, its remedy below it behind an arrow, then its details."""
    margin = " " * (_STATUS_WIDTH + _WHAT_WIDTH)
    width = _LINE_WIDTH - len(margin)
    text = _wrapped(finding.text, width)
    status = paint(f"{finding.status:<{_STATUS_WIDTH}}", _COLOURS[finding.status])
    lines = [f"{status}{finding.what:<{_WHAT_WIDTH}}{text[0]}"]
    lines += [f"{margin}{line}" for line in text[1:]]
    if finding.remedy:
        first, *rest = _wrapped(finding.remedy, width - 3)
        lines += [f"{margin}-> {first}", *(f"{margin}   {line}" for line in rest)]
    lines += [f"{' ' * _STATUS_WIDTH}{line}".rstrip() for line in finding.details]
    return "\n".join(lines)


def summary(findings: Sequence[Finding]) -> str:
    """How many failures and warnings there are, in one line."""
    failures = sum(finding.status == "FAIL" for finding in findings)
    warnings = sum(finding.status == "warn" for finding in findings)
    if not failures and not warnings:
        return "all is well"
    return f"{_count(failures, 'failure')}, {_count(warnings, 'warning')}"


def _wrapped(text: str, width: int) -> list[str]:
    lines: list[str] = []
    for line in text.splitlines() or [""]:
        lines += textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]
    return lines


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"
