"""What a forked copy of a process must make anew: locks, connections and workers of its parent."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Renewable(Protocol):
    """State that does not survive a fork."""

    def renew(self) -> None:
        """Become usable in a forked child, which has one thread and owns nothing yet."""
        ...


_STATES: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_after_fork(state: Renewable) -> None:
    """Call `state.renew()` first of all in every process that this one forks; held weakly."""
    _STATES.add(state)


def _renew_all() -> None:
    for state in list(_STATES):
        state.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
