"""Standing: for how long a thing was seen unchanged, by looks that really took place (A2)."""

from __future__ import annotations


class Standing:
    """Adds up the time between looks that saw the same thing.

    A gap between two looks counts up to `longest_gap` seconds: a process that was suspended or starved did not look meanwhile, and must not
    wake up with an alarm about others.
    """

    def __init__(self, longest_gap: float) -> None:
        self._longest_gap = longest_gap
        self._thing: object = None
        self._looked: float | None = None
        self.seconds = 0.0

    def saw(self, thing: object, now: float) -> float:
        """A look saw `thing`; answers for how many seconds it has been so."""
        if self._looked is None or thing != self._thing:
            self.seconds = 0.0
        else:
            self.seconds += min(now - self._looked, self._longest_gap)
        self._thing, self._looked = thing, now
        return self.seconds

    def missed(self, thing: object, now: float) -> float:
        """A look could not find out: what was known of this thing stands, and the time since is not counted."""
        if self._looked is not None and thing == self._thing:
            self._looked = now
            return self.seconds
        self.over()
        return 0.0

    def over(self) -> None:
        """It is no more: begin anew."""
        self._looked, self.seconds = None, 0.0
