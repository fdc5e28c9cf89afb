"""RemoteTracker: the tracker port for a coordinator that is elsewhere; how messages travel is left to subclasses (W10)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable

from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.properties import table
from recordpublisher.publishers.properties.properties import Properties

from .group_member import Membership, Place
from .heartbeat_messages import Answer, Statement
from .watermark_tracker import SubtaskReport, SubtaskStatus, WatermarkTracker

NO_GROUP = "job"


class RemoteTracker(WatermarkTracker):
    """One subtask's tracker, to build one on for another way of carrying messages. Owns its membership.

    A subclass sends statements (`send`) to wherever a `Coordinator` of the group takes them, and hands what that says to `hear`. Every
    call returns at once. What cannot be sent now is not kept: a later statement says it all again.
    """

    def __init__(self, properties: Properties, clock: Clock | None = None) -> None:
        self._properties = properties
        self._clock = clock or SystemClock()
        self._listeners: list[Callable[[], None]] = []
        self.place = Place(NO_GROUP, 0, 1)
        self.membership = Membership(self.place, 0, 0)

    @abstractmethod
    def send(self, statement: Statement) -> None:
        """Send a statement or drop it; never blocks, never raises."""

    @property
    def silence_ms(self) -> float:
        """After how long without an answer the coordinator counts as not answering."""
        return self.place.silence_ms

    async def open(self, subtask: int, parallelism: int) -> None:
        """Take a place; the first report joins."""
        given = self._properties
        sync_ms = given.value(table.SYNC_INTERVAL)
        self.place = Place(
            group=given.value(table.WATERMARK_GROUP) or NO_GROUP,
            subtask=subtask,
            parallelism=parallelism,
            sync_ms=sync_ms,
            timeout_ms=max(given.value(table.TRACKER_TIMEOUT), 3 * sync_ms),
            startup_ms=given.value(table.STARTUP_TIMEOUT),
        )
        self.membership = Membership(self.place, self._clock.now_ms() * 1000, self.now())

    def report(self, report: SubtaskReport) -> int | None:
        """State where the subtask stands; answers the last value known."""
        self.membership.state(report)
        self.send_due()
        return self.membership.value

    def current(self) -> int | None:
        """The last value known."""
        return self.membership.value

    @property
    def is_reachable(self) -> bool:
        """Whether the coordinator was heard of lately."""
        return self.membership.is_reachable(self.now())

    @property
    def response_age_ms(self) -> int | None:
        """How long ago the coordinator was last heard of."""
        return self.membership.response_age_ms(self.now())

    def start_at(self, watermark: int | None) -> None:
        """The lowest watermark in the restored state."""
        self.membership.start_at(watermark)

    def on_advance(self, callback: Callable[[], None]) -> None:
        """Call `heard` when the value rises or a shard that was asked about is finished."""
        self._listeners.append(callback)

    def notify_at(self, watermark: int) -> None:
        """State what the subtask is held for."""
        self.membership.wait_for(watermark)
        self.send_due()

    def announce_finished(self, shards: Iterable[str]) -> None:
        """Announce shards."""
        self.membership.announce(shards)
        self.send_due()

    def is_finished(self, shard: str) -> bool:
        """Whether somebody announced the shard; if not, the next statement asks."""
        return self.membership.is_finished(shard)

    def timed_out_subtasks(self) -> tuple[int, ...]:
        """Some of the subtasks that nobody hears of."""
        return self.membership.left_out

    def max_shard_watermark(self) -> int | None:
        """Where the furthest shard of the job stood when the coordinator was last heard of."""
        return self.membership.furthest

    def lowest_subtask(self) -> int | None:
        """Who held the value when the coordinator was last heard of."""
        return self.membership.holder

    def hear(self, answer: Answer) -> None:
        """Take an answer of the coordinator."""
        if self.membership.hear(answer, self.now()):
            for heard in self._listeners:
                heard()
        self.send_due()

    def reconnected(self) -> None:
        """A new way to the coordinator: what was under way is lost, and said again at once."""
        self.membership.connected()
        self.send_due()

    def send_due(self) -> None:
        """Send what is to be said now."""
        statement = self.membership.due(self.now())
        if statement is not None:
            self.send(statement)

    async def close(self) -> None:
        """Leave, if the subtask has not said so already."""
        self.report(SubtaskReport(self.place.subtask, SubtaskStatus.LEFT))

    def now(self) -> float:
        """Milliseconds that only grow."""
        return self._clock.monotonic() * 1000
