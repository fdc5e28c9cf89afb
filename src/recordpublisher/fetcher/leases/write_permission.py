"""WritePermission: whether this worker may write to the sink now: only while others cannot have replaced it (E4)."""

from typing import NamedTuple

from recordpublisher.publishers.clock import Clock


class SendTime(NamedTuple):
    """When a heartbeat was sent, and after how many suspensions."""

    suspensions: int
    seconds: float


class WritePermission:
    """Owns when the last confirmed heartbeat was sent.

    Others seal a worker when its heartbeat has stood for the lease duration. The answer may arrive long after the heartbeat took effect, so
    the time counts from the sending, on a clock that runs while the machine sleeps. After a suspension that was noticed only a new
    heartbeat counts: a paused virtual machine has no such clock.

    Its pauses below 2 s (`SuspensionDetector`) are not noticed. They do no harm while they are shorter, together, than the third of the
    lease duration between the end of the permission and the seal: 6.7 s by default.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._suspensions = 0
        self._confirmed: SendTime | None = None

    def send_time(self) -> SendTime:
        """Of a heartbeat that is sent now."""
        return SendTime(self._suspensions, self._clock.boottime())

    def confirm(self, sent: SendTime) -> None:
        """A heartbeat was written."""
        if self._confirmed is None or sent > self._confirmed:
            self._confirmed = sent

    def on_suspension(self) -> None:
        """This process was suspended."""
        self._suspensions += 1

    @property
    def is_given(self) -> bool:
        """Whether the sink may be written to."""
        confirmed = self._confirmed
        if confirmed is None or confirmed.suspensions != self._suspensions:
            return False
        return self._clock.boottime() - confirmed.seconds < self._seconds
