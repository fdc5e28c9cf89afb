"""CheckpointAge: how old the last stored checkpoint is, and since when one is not stored."""

from collections.abc import Iterator
from contextlib import contextmanager

from recordpublisher.publishers.clock import Clock


class CheckpointAge:
    """Owns when a subtask's checkpoints began and were stored; one is taken at a time. `CheckpointScheduler` decides when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started: float | None = None
        self._stored: float | None = None

    @contextmanager
    def measured(self) -> Iterator[None]:
        """The block takes and stores a checkpoint; it counts as stored if the block does not raise."""
        self._started = self._clock.monotonic() if self._started is None else self._started
        yield
        self._stored, self._started = self._clock.monotonic(), None

    @property
    def age_ms(self) -> int | None:
        """Since the last one was stored; None before the first."""
        return self._since(self._stored)

    @property
    def running_ms(self) -> int:
        """Since the current one began, or one before it that was not stored; 0 when the last one is stored."""
        return self._since(self._started) or 0

    def _since(self, moment: float | None) -> int | None:
        return None if moment is None else round((self._clock.monotonic() - moment) * 1000)
