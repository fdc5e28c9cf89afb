"""Measures how old the last stored checkpoint is, and since when storing one has been unsuccessful."""

from collections.abc import Iterator
from contextlib import contextmanager

from recordpublisher.publishers.clock import Clock


class CheckpointAge:
    """Owns when a subtask's checkpoints began and were stored. Only one is taken at a time. `CheckpointScheduler` decides when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started: float | None = None
        self._stored: float | None = None

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the block, which takes and stores a checkpoint. The checkpoint counts as stored if the block does not raise."""
        self._started = self._clock.monotonic() if self._started is None else self._started
        yield
        self._stored, self._started = self._clock.monotonic(), None

    @property
    def age_ms(self) -> int | None:
        """Time since the last checkpoint was stored (ms); None before the first one."""
        return self._since(self._stored)

    @property
    def running_ms(self) -> int:
        """Time since the current checkpoint began (ms), or since the first of those before it that were not stored.

        It is 0 if the last checkpoint is stored.
        """
        return self._since(self._started) or 0

    def _since(self, moment: float | None) -> int | None:
        return None if moment is None else round((self._clock.monotonic() - moment) * 1000)
