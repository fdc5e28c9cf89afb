"""WrittenStates: the newest state of a job of which the Kinesis sink has written everything."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection

from recordpublisher.fetcher.sink import State

MOST_WAITING = 16
"""States that wait for their records. A further one takes the place of the last, so their memory is bounded in an outage, too."""


class WrittenStates:
    """Owns the states of checkpoints whose records are not all written, each with its flush epoch, and the newest that may be stored."""

    def __init__(self, is_complete: Callable[[int], bool]) -> None:
        """`is_complete`: whether all records up to the end of an epoch are written."""
        self._is_complete = is_complete
        self._waiting: deque[tuple[int, State]] = deque()
        self._written: State | None = None

    def add(self, epoch: int, state: State) -> None:
        """Remember a state: it may be stored when this epoch is complete."""
        if len(self._waiting) == MOST_WAITING:
            self._waiting.pop()
        self._waiting.append((epoch, state))

    def newest(self) -> State:
        """The newest state that may be stored. Before there is any it has no shards: each is read again from where it was begun."""
        while self._waiting and self._is_complete(self._waiting[0][0]):
            self._written = self._waiting.popleft()[1]
        return {**self._waiting[-1][1], "shards": {}} if self._written is None else self._written

    def revoke(self, shards: Collection[str]) -> None:
        """Forget shards. What is queued of them is not written, and one that comes back begins at another position."""
        self._waiting = deque([(epoch, _without(shards, state)) for epoch, state in self._waiting])
        if self._written is not None:
            self._written = _without(shards, self._written)


def _without(shards: Collection[str], state: State) -> State:
    return {**state, "shards": {key: entry for key, entry in state["shards"].items() if key not in shards}}
