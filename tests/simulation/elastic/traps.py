"""Trap: what happens to one call of one process, so that a schedule need not wait for chance."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Trap:
    """For the first `times` calls of a process between `after` and `until` that write a name with this prefix; "delete NAME": its deletion.

    - "suspend": the process is suspended for `seconds` before the call begins: its time-out does not run yet.
    - "late request", "late answer": it takes `seconds` longer.
    - "lost answer": the call takes effect, and no answer arrives.
    - "kill": the process is killed when the request was sent.
    - "cut-off": all later calls of the process are lost, for `seconds`.
    """

    process: str
    prefix: str
    what: str
    after: float
    seconds: float = 0.0
    times: int = 1
    until: float = math.inf


class Traps:
    """Owns which traps of one process are still to come."""

    def __init__(self, traps: tuple[Trap, ...], process: str) -> None:
        self._left = {trap: trap.times for trap in traps if trap.process == process}

    def of(self, name: str, now: float, *, sent: bool) -> dict[str, Trap]:
        """The traps of this write, by what they do: those when it is sent, or those before."""
        found = {}
        for trap, left in self._left.items():
            if (
                left
                and trap.after <= now < trap.until
                and name.startswith(trap.prefix)
                and sent == (trap.what != "suspend")
            ):
                self._left[trap] -= 1
                found[trap.what] = trap
        return found
