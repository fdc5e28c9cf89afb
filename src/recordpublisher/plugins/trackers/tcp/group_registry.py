"""Keeps the groups of a tracker server. Each has a coordinator and the connections of its subtasks."""

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from recordpublisher.fetcher.coordination.coordinator import Coordinator
from recordpublisher.fetcher.coordination.heartbeat_messages import HeartbeatRequest, HeartbeatResponse

log = logging.getLogger("recordpublisher.tracker")

NOTIFICATION_DELAY_SECONDS = 0.005
"""How long changes are collected, so that many heartbeats cause one batch of notifications (seconds)."""

MAX_LOGGED_SUBTASKS = 20


class MemberConnection(Protocol):
    """A connection that reports for a subtask."""

    last_request_number: int
    """The number of its last accepted request."""

    def send_response(self, response: HeartbeatResponse) -> None:
        """Send a response or a notification. Must never block."""


@dataclass(slots=True)
class RegisteredGroup:
    """One group: its coordinator, its connections by subtask, and since when it has been empty (ms)."""

    name: str
    coordinator: Coordinator
    connections: dict[int, MemberConnection] = field(default_factory=dict)
    parallelism: int = 0
    empty_since: float | None = None


class GroupRegistry:
    """Owns all groups of a tracker. `call_later` calls a function after some seconds. Times are ms of a monotonic clock.

    A group that stays empty for `retention_ms` is removed. A subtask that reconnects sends its whole state.
    """

    def __init__(
        self,
        call_later: Callable[[float, Callable[[], None]], object],
        retention_ms: float = 900_000,
        max_groups: int = 1_000,
        max_subtasks: int = 200_000,
    ) -> None:
        self._call_later = call_later
        self._retention_ms = retention_ms
        self._max_groups = max_groups
        self._max_subtasks = max_subtasks
        self._groups: dict[str, RegisteredGroup] = {}
        self._changed: dict[str, RegisteredGroup] = {}
        self.heartbeats = 0
        """Number of requests that were handled."""

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def connected_subtasks(self) -> int:
        """Number of connected subtasks."""
        return sum(len(group.connections) for group in self._groups.values())

    def get_or_create(self, request: HeartbeatRequest) -> RegisteredGroup | None:
        """Return the group of a request, created if it is new, or None if there is no capacity for it."""
        group = self._groups.get(request.group)
        if group is None or request.parallelism > group.parallelism:
            others = sum(each.parallelism for each in self._groups.values() if each is not group)
            is_full = group is None and len(self._groups) >= self._max_groups
            if is_full or others + request.parallelism > self._max_subtasks:
                return None
        if group is None:
            group = self._groups[request.group] = RegisteredGroup(request.group, Coordinator(secrets.randbits(62)))
        return group

    def handle_heartbeat(
        self, group: RegisteredGroup, connection: MemberConnection, request: HeartbeatRequest, now: float
    ) -> HeartbeatResponse:
        """Process a request that came over `connection`, and return the response."""
        self.heartbeats += 1
        response = group.coordinator.handle_heartbeat(request, now)
        if response.rejection is None:
            group.parallelism = request.parallelism
            group.connections[request.subtask] = connection
            connection.last_request_number = request.request_number
        if not self._changed:
            self._call_later(NOTIFICATION_DELAY_SECONDS, self.send_notifications)
        self._changed[group.name] = group
        return response

    def disconnect(self, group: RegisteredGroup, connection: MemberConnection, subtask: int) -> None:
        """Remove a connection that was lost. A newer connection of the same subtask is not affected."""
        if group.connections.get(subtask) is connection:
            del group.connections[subtask]
            group.coordinator.disconnect(subtask, connection.last_request_number)

    def send_notifications(self) -> None:
        """Notify the subtasks whose awaited watermark is reached, or for which others wait (W9a)."""
        changed, self._changed = self._changed, {}
        for group in changed.values():
            for subtask, response in group.coordinator.take_notifications():
                if subtask in group.connections:
                    group.connections[subtask].send_response(response)

    def expire(self, now: float) -> None:
        """Exclude silent subtasks, and remove groups that stayed empty. Call this several times a second."""
        for group in list(self._groups.values()):
            timed_out = group.coordinator.expire(now)
            if timed_out:
                log.warning(
                    "group %r: subtasks %s timed out and do not count until they report again",
                    group.name,
                    _shortened(timed_out),
                )
                self._changed[group.name] = group
            self._remove_if_expired(group, now)
        self.send_notifications()

    def _remove_if_expired(self, group: RegisteredGroup, now: float) -> None:
        if group.connections or not group.coordinator.is_empty:
            group.empty_since = None
        elif group.empty_since is None:
            group.empty_since = now
        elif now - group.empty_since >= self._retention_ms:
            del self._groups[group.name]
            log.info("group %r was empty for %.0f s and is removed", group.name, self._retention_ms / 1000)


def _shortened(subtasks: list[int]) -> str:
    rest = len(subtasks) - MAX_LOGGED_SUBTASKS
    more = f" and {rest} more" if rest > 0 else ""
    return ", ".join(map(str, subtasks[:MAX_LOGGED_SUBTASKS])) + more
