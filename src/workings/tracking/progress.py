"""How long a run still takes, and how to say it."""

from __future__ import annotations

from collections import deque


class TimeLeft:
    """An estimate of the remaining seconds from the pace of the latest steps.

    The pace is wall-clock time over steps, so evaluation and checkpoints count where they happen;
    only the last `window` steps are looked at, because response lengths change in training.
    """

    def __init__(self, *, total_steps: int, window: int = 50) -> None:
        self.total_steps = total_steps
        self._marks: deque[tuple[int, float]] = deque(maxlen=window + 1)

    def update(self, step: int, now: float) -> None:
        """Note that `step` steps were done at time `now` (seconds of any clock)."""
        if self._marks and step <= self._marks[-1][0]:
            return
        self._marks.append((step, now))

    @property
    def seconds_per_step(self) -> float | None:
        """Mean wall-clock seconds of the latest steps, None before two of them are known."""
        if len(self._marks) < 2:
            return None
        (first_step, first_time), (last_step, last_time) = self._marks[0], self._marks[-1]
        return (last_time - first_time) / (last_step - first_step)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the last step, None before the pace is known."""
        pace = self.seconds_per_step
        if pace is None:
            return None
        return max(0.0, pace * (self.total_steps - self._marks[-1][0]))


def format_duration(seconds: float) -> str:
    """A duration as people read it, to the second (below a minute with its unit).

    >>> format_duration(7.4), format_duration(75), format_duration(3723), format_duration(90000)
    ('7 s', '1:15', '1:02:03', '1 d 1:00:00')
    """
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    minutes, second = divmod(total, 60)
    hours, minute = divmod(minutes, 60)
    if hours == 0:
        return f"{minute}:{second:02d}"
    days, hour = divmod(hours, 24)
    clock = f"{hour}:{minute:02d}:{second:02d}"
    return clock if days == 0 else f"{days} d {clock}"
