"""Decides whether this worker may write to the sink now: only while other workers cannot have replaced it (E4)."""

from typing import NamedTuple

from recordpublisher.publishers.clock import Clock


class SendTime(NamedTuple):
    """When a heartbeat was sent, and the number of suspensions before that."""

    suspensions: int
    seconds: float


class WritePermission:
    """Owns when the last confirmed heartbeat was sent.

    Other workers seal a worker if its heartbeat does not change for the lease duration. The answer to a heartbeat may arrive long after it
    took effect. So the time counts from its sending, on a clock that runs while the machine sleeps. After a suspension that was noticed
    only a new heartbeat counts, because a paused virtual machine has no such clock.

    Pauses of a virtual machine below 2 s (`SuspensionDetector`) are not noticed. They are harmless if together they are shorter than the
    third of the lease duration between the end of the permission and the seal: 6.7 s by default.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._suspensions = 0
        self._confirmed: SendTime | None = None

    def send_time(self) -> SendTime:
        """Return the send time of a heartbeat that is sent now."""
        return SendTime(self._suspensions, self._clock.boottime())

    def confirm(self, sent: SendTime) -> None:
        """Note that a heartbeat was written, which extends the permission."""
        if self._confirmed is None or sent > self._confirmed:
            self._confirmed = sent

    def on_suspension(self) -> None:
        """Withdraw the permission until the next heartbeat, because this process was suspended."""
        self._suspensions += 1

    @property
    def is_given(self) -> bool:
        """Whether the process may write to the sink."""
        confirmed = self._confirmed
        if confirmed is None or confirmed.suspensions != self._suspensions:
            return False
        return self._clock.boottime() - confirmed.seconds < self._seconds
