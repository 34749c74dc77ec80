"""Responses sampled part by part, by one engine or by several side by side.

What a part holds does not depend on which engine takes it, on how many there are or on where an
earlier start was stopped: its requests, with their seeds, follow from the plan alone.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from workings.rollout.collect import GroupRequests, group_requests, groups_of
from workings.rollout.engine import Engine, Pending, SamplingParams
from workings.types import Prompt, RolloutGroup

PART_ROWS = 128
"""Rows of a part where the caller does not say: what a CPU decodes at once."""
POLL_SECONDS = 0.005
Progress = Callable[[int, int], None]
"""(problems answered, all problems), after every part."""


def part_problems_of(part_rows: int, num_samples: int) -> int:
    """Problems in a part of about `part_rows` rows; at least one.

    >>> part_problems_of(128, 1), part_problems_of(128, 32), part_problems_of(16, 32)
    (128, 4, 1)
    """
    return max(1, part_rows // num_samples)


def asked_of(
    prompts: Sequence[Prompt], sampling: SamplingParams, *, num_samples: int, seed: int
) -> GroupRequests:
    """One request for each prompt, its seed a function of `seed` and the problem's id."""
    return group_requests(prompts, sampling, num_samples=num_samples, seed=seed)


def sample_parts(
    engines: Sequence[Engine],
    asked: GroupRequests,
    sampling: SamplingParams,
    parts: Sequence[range],
    *,
    keep: Callable[[range, list[RolloutGroup]], None],
    progress: Progress | None = None,
) -> None:
    """Sample every part and hand it to `keep` as soon as it is there.

    An engine that fails ends the call with its error; what others have finished is kept.
    """
    waiting, idle = deque(parts), deque(engines)
    working: list[tuple[Engine, range, Pending]] = []
    total = len(asked.prompts)
    answered = total - sum(map(len, parts))
    while waiting or working:
        while waiting and idle:
            engine, part = idle.popleft(), waiting.popleft()
            requests = asked.requests[part.start : part.stop]
            working.append((engine, part, engine.submit(requests, sampling)))
        place = _first_ready(working)
        engine, part, pending = working.pop(place)
        keep(part, groups_of(_part_of(asked, part), engine.collect(pending)))
        idle.append(engine)
        answered += len(part)
        if progress is not None:
            progress(answered, total)


def _first_ready(working: Sequence[tuple[Engine, range, Pending]]) -> int:
    """The place of a batch that can be collected; waits only where there are several."""
    if len(working) == 1:
        return 0
    while True:
        for place, (_, _, pending) in enumerate(working):
            if pending.ready():
                return place
        time.sleep(POLL_SECONDS)


def _part_of(asked: GroupRequests, part: range) -> GroupRequests:
    return GroupRequests(
        prompts=asked.prompts[part.start : part.stop],
        requests=asked.requests[part.start : part.stop],
        owners=tuple((place, None) for place in range(len(part))),
    )
