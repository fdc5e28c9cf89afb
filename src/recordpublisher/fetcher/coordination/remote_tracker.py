"""The base class for trackers whose coordinator runs in another process. Subclasses carry the messages (W10)."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping

from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.properties.groups.job import (
    STARTUP_TIMEOUT,
    SYNC_INTERVAL,
    TRACKER_TIMEOUT,
    WATERMARK_GROUP,
)
from recordpublisher.publishers.properties.properties import Properties

from .group_member import GroupMember, MemberConfig
from .heartbeat_messages import HeartbeatRequest, HeartbeatResponse
from .watermark_tracker import SubtaskReport, SubtaskStatus, WatermarkTracker

DEFAULT_GROUP = "job"


class RemoteTracker(WatermarkTracker):
    """One subtask's tracker; extend it to carry messages in another way. Owns the subtask's `GroupMember`.

    A subclass implements `send`, which sends requests to the group's `Coordinator`, and passes each response to `handle_response`. Every
    call returns at once. A request may be dropped, because a later one carries the whole state.
    """

    def __init__(self, properties: Properties, clock: Clock | None = None) -> None:
        self._properties = properties
        self._clock = clock or SystemClock()
        self._callbacks: list[Callable[[], None]] = []
        self.config = MemberConfig(DEFAULT_GROUP, 0, 1)
        self.member = GroupMember(self.config, 0, 0)

    @abstractmethod
    def send(self, request: HeartbeatRequest) -> None:
        """Send a request, or drop it; must never block or raise."""

    async def open(self, subtask: int, parallelism: int) -> None:
        """Set which subtask this is. Its first report joins the group."""
        given = self._properties
        sync_interval_ms = given.value(SYNC_INTERVAL)
        self.config = MemberConfig(
            group=given.value(WATERMARK_GROUP) or DEFAULT_GROUP,
            subtask=subtask,
            parallelism=parallelism,
            sync_interval_ms=sync_interval_ms,
            timeout_ms=max(given.value(TRACKER_TIMEOUT), 3 * sync_interval_ms),
            startup_timeout_ms=given.value(STARTUP_TIMEOUT),
        )
        self.member = GroupMember(self.config, self._clock.now_ms() * 1000, self.now())

    def report(self, report: SubtaskReport) -> int | None:
        """Report the subtask's watermark, and return the last known global watermark."""
        self.member.report(report)
        self.send_due_request()
        return self.member.group.global_watermark

    def current(self) -> int | None:
        """Return the last known global watermark."""
        return self.member.group.global_watermark

    @property
    def is_reachable(self) -> bool:
        """Whether the coordinator responded recently."""
        return self.member.is_reachable(self.now())

    @property
    def response_age_ms(self) -> int | None:
        """Time since the coordinator's last response (ms), or None if it has never responded."""
        return self.member.response_age_ms(self.now())

    def after_suspension(self) -> None:
        """Restart the response timeout of the coordinator."""
        self.member.after_suspension(self.now())

    def start_at(self, watermark: int | None) -> None:
        """Set the lowest watermark in the restored state."""
        self.member.start_at(watermark)

    def on_advance(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the global watermark rises or a queried shard is finished."""
        self._callbacks.append(callback)

    def notify_at(self, watermark: int) -> None:
        """Send the awaited watermark to the coordinator."""
        self.member.await_watermark(watermark)
        self.send_due_request()

    def announce_finished(self, shards: Mapping[str, int | None]) -> None:
        """Announce shards. Their final watermarks are not sent: children in other processes begin at the global watermark."""
        self.member.shards.announce(shards)
        self.send_due_request()

    def is_finished(self, shard: str) -> bool:
        """Return whether a subtask announced the shard.

        If that is not known, the next request queries it, and the `on_advance` callbacks are called if the shard is finished.
        """
        if self.member.shards.is_finished(shard):
            return True
        self.member.shards.query(shard)
        return False

    def forget_stream(self, stream: str, own: Collection[str]) -> None:
        """Forget what is known of the stream's shards. The next request withdraws what this subtask has announced."""
        self.member.shards.forget_stream(stream, own)
        self.send_due_request()

    def timed_out_subtasks(self) -> tuple[int, ...]:
        """Return some of the subtasks that timed out."""
        return self.member.group.timed_out_subtasks

    def max_shard_watermark(self) -> int | None:
        """Return the highest watermark of any shard of the job, according to the last response."""
        return self.member.group.max_shard_watermark

    def lowest_subtask(self) -> int | None:
        """Return the subtask with the lowest watermark, according to the last response."""
        return self.member.group.lowest_subtask

    def handle_response(self, response: HeartbeatResponse) -> None:
        """Process a response of the coordinator."""
        if self.member.handle_response(response, self.now()):
            for callback in self._callbacks:
                callback()
        self.send_due_request()

    def on_connected(self) -> None:
        """Handle a new connection: the state is sent again, because requests in flight are lost."""
        self.member.reset_connection()
        self.send_due_request()

    def send_due_request(self) -> None:
        """Send a heartbeat or news, if either is due."""
        request = self.member.prepare_request(self.now())
        if request is not None:
            self.send(request)

    async def close(self) -> None:
        """Leave the group, if the subtask has not left already."""
        self.report(SubtaskReport(self.config.subtask, SubtaskStatus.LEFT))

    def now(self) -> float:
        """Return the time in monotonic ms."""
        return self._clock.monotonic() * 1000
