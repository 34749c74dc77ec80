"""What a run of benchmarks/grading.py measured, as the rows of its results file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any

from grading_pairs import RESTYLED, Pair
from grading_peers import MATH_VERIFY, OURS, PEERS, versions
from grading_runner import MEMORY_BYTES, SECONDS_PER_PAIR, Outcome

from workings.tracking.environment import environment_report, package_versions

SLOW_SECONDS = 2.0
FULL_STOP = "with a full stop"
ACCURACY = "accuracy (false positives/false negatives)"
OUR_PACKAGES = (
    *("workings", "math-verify", "latex2sympy2_extended", "sympy", "mpmath"),
    "antlr4-python3-runtime",
)

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Grades per second of one worker and of two, one number for each repeat."""

    num_pairs: int
    one: Sequence[float]
    two: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Everything that was measured.

    Attributes:
        sets: pairs by name of their set.
        outcomes: of Workings and math-verify, by grader and set, in the order of the pairs.
        shared_sets: the part of the sets that every grader has graded.
        shared_outcomes: of every grader, on the shared sets.
        rounds: by grader, the outcomes on the mix of every round.
        mix: name of the set that speed is measured on.
        bombs: name of the set of adversarial cases, which not every grader meets.
        load: load average of the machine before anything was measured.
    """

    sets: Mapping[str, Sequence[Pair]]
    outcomes: Mapping[str, Mapping[str, Sequence[Outcome]]]
    shared_sets: Mapping[str, Sequence[Pair]]
    shared_outcomes: Mapping[str, Mapping[str, Sequence[Outcome]]]
    rounds: Mapping[str, Sequence[Sequence[Outcome]]]
    mix: str
    bombs: str
    workers: Rates | None
    import_seconds: Sequence[float]
    load: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How often a grader was right on the pairs that are not debatable."""

    num_pairs: int
    num_false_positives: int
    num_false_negatives: int

    @property
    def accuracy(self) -> float:
        """In percent."""
        wrong = self.num_false_positives + self.num_false_negatives
        return 100 * (1 - wrong / self.num_pairs)

    @property
    def errors(self) -> str:
        """Both kinds of error, in words."""
        return f"FP {self.num_false_positives}, FN {self.num_false_negatives}"


def collect(measured: Measured, *, command: str, absent: Sequence[str] = ()) -> Row:
    """The content of the results file."""
    environment = environment_report()
    return {
        "benchmark": "grading",
        "date": datetime.now(UTC).date().isoformat(),
        "commit": (environment["git"] or {}).get("commit"),
        "command": command,
        "machine": {
            **{
                key: environment[key]
                for key in ("processor", "num_usable_cpus", "memory_gb", "platform")
            },
            "load_before": round(measured.load, 2),
        },
        "versions": {
            "python": environment["python"],
            **package_versions(OUR_PACKAGES),
            **{f"{name} of the optional graders": text for name, text in versions().items()},
            **dict.fromkeys(absent, "not installed"),
        },
        "notes": notes(measured),
        "results": [
            *against_math_verify(measured),
            *accuracies(measured),
            *speeds(measured),
            *long_waits(measured),
            *by_style(measured),
        ],
    }


def notes(measured: Measured) -> list[str]:
    """What a reader has to know to judge the numbers, one sentence or two each."""
    calls = [f"{name}: {PEERS[name].note}" for name in measured.shared_outcomes if PEERS[name].note]
    return [
        "The pairs of a data set are made mechanically: every gold itself, one typographic variant "
        "of it, and one digit changed, in a box after about 1,200 characters of other text. The "
        "cases are hard by construction and say nothing about rates on ordinary responses; those "
        "that are debatable are not counted, and Workings was written with both case files in "
        "sight, so that on them it is no prediction. Where all graders stand side by side, every "
        "fourth pair is taken of all sets but the mix, the visible and the adversarial cases.",
        _without_full_stops(measured),
        "Speed is that of one process, one response at a time, counted from the response's text; "
        "Workings asks its worker process about some pairs and waits. Its cache is off, what the "
        "measured process remembers of texts is cleared before every grade, and each response is "
        "given alone, so nothing is deduplicated. The other graders keep the caches they have.",
        f"Every grader has {MEMORY_BYTES >> 30} GiB and {SECONDS_PER_PAIR:.0f} s for one response; "
        "what is killed or fails counts as not accepted.",
        f"How they are called: {'; '.join(calls)}.",
    ]


def _without_full_stops(measured: Measured) -> str:
    """What the variant costs that math-verify does not read at all."""
    pairs = measured.sets[measured.mix]
    kept = [index for index, pair in enumerate(pairs) if pair.style != FULL_STOP]
    ours, peer = (
        score(
            [pairs[index] for index in kept],
            [measured.outcomes[name][measured.mix][index] for index in kept],
        )
        for name in (OURS, MATH_VERIFY)
    )
    return (
        f"Of the mix without full stops inside the box, {ours.num_pairs:,} pairs, {OURS} has "
        f"{ours.accuracy:.4g} % right and {MATH_VERIFY} {peer.accuracy:.4g} %."
    )


# --------------------------------------------------------------------------- ours and math-verify


def against_math_verify(measured: Measured) -> Iterator[Row]:
    """What Workings promises, each beside math-verify in the same run."""
    for title, pairs in measured.sets.items():
        ours, peer = (score(pairs, measured.outcomes[name][title]) for name in (OURS, MATH_VERIFY))
        yield _beside(
            f"accuracy on {title}",
            ours.accuracy,
            peer.accuracy,
            unit="%",
            n=ours.num_pairs,
            note=f"{ours.errors}; {MATH_VERIFY} {peer.errors}",
        )
    rates, peer_rates = (
        [grades_per_second(outcomes) for outcomes in measured.rounds[name]]
        for name in (OURS, MATH_VERIFY)
    )
    yield _beside(
        "grades per second, one process",
        median(rates),
        median(peer_rates),
        n=len(measured.sets[measured.mix]),
        ratio=median(rates) / median(peer_rates),
        note=f"on {measured.mix}; {_repeats(rates)}; {MATH_VERIFY} {_repeats(peer_rates)}",
    )
    for what, share in (("99th percentile of the time", 0.99), ("longest time", 1.0)):
        yield _beside(
            f"{what} of a grade on {measured.mix}",
            *(1e3 * _quantile(measured.rounds[name], share) for name in (OURS, MATH_VERIFY)),
            unit="ms",
            n=len(measured.sets[measured.mix]),
        )
    if measured.bombs in measured.sets:
        waits = [measured.outcomes[name][measured.bombs] for name in (OURS, MATH_VERIFY)]
        yield _beside(
            "longest time of an adversarial case",
            *(max(outcome.seconds for outcome in outcomes) for outcomes in waits),
            unit="s",
            n=len(waits[0]),
            note=f"killed after {SECONDS_PER_PAIR:.0f} s",
        )
    yield from workers_rows(measured.workers)
    yield {
        "name": "time to import grade",
        "value": median(measured.import_seconds),
        "unit": "s",
        "n": len(measured.import_seconds),
        "note": _repeats(measured.import_seconds),
    }


def _beside(name: str, value: float, peer_value: float, **fields: Any) -> Row:
    return {"name": name, "value": value, "peer": MATH_VERIFY, "peer_value": peer_value, **fields}


def workers_rows(rates: Rates | None) -> Iterator[Row]:
    """One row, or none where nothing was measured."""
    if rates is not None:
        yield {
            "name": "grades per second with two workers, pairs for the expression tier",
            "value": median(rates.two),
            "n": rates.num_pairs,
            "peer": "one worker",
            "peer_value": median(rates.one),
            "ratio": median(rates.two) / median(rates.one),
            "note": f"{_repeats(rates.two)}; one worker {_repeats(rates.one)}",
        }


# ---------------------------------------------------------------------------------- every grader


def accuracies(measured: Measured) -> Iterator[Row]:
    """One row for each grader and set, on the pairs that all have graded."""
    for name, by_set in measured.shared_outcomes.items():
        for title, outcomes in by_set.items():
            found = score(measured.shared_sets[title], outcomes)
            yield {
                "name": f"{ACCURACY}: {title}, by {name}",
                "value": found.accuracy,
                "unit": "%",
                "n": found.num_pairs,
                "note": f"{found.num_false_positives}/{found.num_false_negatives}",
            }


def speeds(measured: Measured) -> Iterator[Row]:
    """Grades per second, 99th percentile and longest time on the mix."""
    count = len(measured.sets[measured.mix])
    for name, rounds in measured.rounds.items():
        rates = [grades_per_second(outcomes) for outcomes in rounds]
        yield {
            "name": f"time: grades per second, by {name}",
            "value": median(rates),
            "n": count,
            "note": f"{min(rates):,.0f} to {max(rates):,.0f}" if len(rates) > 1 else "one round",
        }
        for what, share in (("99th percentile", 0.99), ("longest", 1.0)):
            milliseconds = 1e3 * _quantile(rounds, share)
            yield _timed(f"time: {what}, by {name}", milliseconds, "ms", count)


def long_waits(measured: Measured) -> Iterator[Row]:
    """How the graders fare with the adversarial cases."""
    for name, by_set in measured.shared_outcomes.items():
        outcomes = by_set.get(measured.bombs, ())
        if not outcomes:
            continue
        times = [outcome.seconds for outcome in outcomes]
        killed = sum(outcome.killed for outcome in outcomes)
        slow = sum(seconds > SLOW_SECONDS for seconds in times)
        for what, value in ((f"over {SLOW_SECONDS:.0f} s", slow), ("killed", killed)):
            yield {
                "name": f"adversarial: {what}, by {name}",
                "value": value,
                "n": len(outcomes),
            }
        yield _timed(f"adversarial: longest, by {name}", max(times), "s", len(outcomes))


def by_style(measured: Measured) -> Iterator[Row]:
    """How many typographic variants each grader accepts, by what was done."""
    variants = {
        name: [
            (pair.style, outcome.accepted)
            for title, outcomes in by_set.items()
            for pair, outcome in zip(measured.shared_sets[title], outcomes, strict=True)
            if pair.kind == RESTYLED
        ]
        for name, by_set in measured.shared_outcomes.items()
    }
    for style in sorted({style for style, _ in variants[OURS] if style is not None}):
        for name, found in variants.items():
            accepted = [is_accepted for done, is_accepted in found if done == style]
            yield {
                "name": f"typographic variants accepted: {name}, by {style} ({len(accepted)})",
                "value": round(100 * sum(accepted) / len(accepted), 1),
                "unit": "%",
            }


def _timed(name: str, value: float, unit: str, count: int) -> Row:
    return {"name": name, "value": round(value, 3), "unit": unit, "n": count}


# ------------------------------------------------------------------------------------- counting


def score(pairs: Sequence[Pair], outcomes: Sequence[Outcome]) -> Score:
    """The errors of a grader; a grader that failed or was killed has not accepted."""
    settled = [
        (pair.expected, outcome.accepted)
        for pair, outcome in zip(pairs, outcomes, strict=True)
        if not pair.debatable
    ]
    return Score(
        num_pairs=len(settled),
        num_false_positives=sum(accepted and not expected for expected, accepted in settled),
        num_false_negatives=sum(expected and not accepted for expected, accepted in settled),
    )


def grades_per_second(outcomes: Sequence[Outcome]) -> float:
    """Over the time that the grader worked; its process's pipe is not counted."""
    return len(outcomes) / sum(outcome.seconds for outcome in outcomes)


def _quantile(rounds: Sequence[Sequence[Outcome]], share: float) -> float:
    """The median over rounds of the time that `share` of the grades keep to."""
    times = [sorted(outcome.seconds for outcome in outcomes) for outcomes in rounds]
    return median(of_round[int(share * (len(of_round) - 1))] for of_round in times)


def _repeats(values: Sequence[float]) -> str:
    if len(values) == 1:
        return "one repeat"
    low, high = (f"{value:,.0f}" if value >= 10 else f"{value:.2g}" for value in _ends(values))
    return f"median of {len(values)} repeats from {low} to {high}"


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)
