"""Keeps the shards that a subtask announced as finished, and those that other subtasks announced (S2)."""

from collections.abc import Iterable

from recordpublisher.publishers.shards import stream_of

from .heartbeat_messages import MAX_KEY_CHARACTERS
from .watermark_tracker import STARTED_PREFIX, WITHDRAWN_PREFIX, announced_keys

KEY_OVERHEAD = 8
"""Allowance for the encoding of one key (bytes)."""


class FinishedShardAnnouncements:
    """Owns the announced shards until the coordinator confirms them, the queries to send, and the finished shards known here."""

    def __init__(self) -> None:
        self._own: dict[str, None] = {}
        self._unconfirmed: dict[str, int] = {}
        """Each announced shard with the number of the first request that carried it, or 0 if no request has carried it."""
        self._queries: dict[str, None] = {}
        self._finished: set[str] = set()

    @property
    def has_unsent(self) -> bool:
        """Whether an announcement has not been sent yet."""
        return any(not number for number in self._unconfirmed.values())

    def announce(self, shards: Iterable[str]) -> None:
        """Announce shards, each only once. A key that is too long for a message is ignored."""
        new = [shard for shard in shards if shard not in self._own and _is_sendable(shard)]
        self._own.update(dict.fromkeys(new))
        self._unconfirmed.update(dict.fromkeys(new, 0))
        self._finished.update(new)

    def is_finished(self, shard: str) -> bool:
        """Return whether it is known here that the shard was announced."""
        return shard in self._finished

    def forget_stream(self, stream: str, own: Iterable[str]) -> None:
        """Forget what is known of a deleted stream's shards, and withdraw the announcements of this subtask."""
        announced = [shard for shard in announced_keys(own) if shard in self._own]
        for shard in announced:
            del self._own[shard]
            self._unconfirmed.pop(shard, None)
        self._unconfirmed |= {WITHDRAWN_PREFIX + shard: 0 for shard in announced}
        self._finished = {shard for shard in self._finished if stream_of(shard.removeprefix(STARTED_PREFIX)) != stream}

    def query(self, shard: str) -> None:
        """Ask the coordinator about the shard with the next request."""
        if _is_sendable(shard):
            self._queries[shard] = None

    def take_queries(self) -> tuple[str, ...]:
        """Return the queries for one request. Each is sent once; the caller queries again if it still needs the result."""
        shards = _fitting(self._queries)
        for shard in shards:
            del self._queries[shard]
        return shards

    def take_unconfirmed(self, request_number: int) -> tuple[str, ...]:
        """Return the announcements for one request. They are repeated until a request with them is confirmed."""
        shards = _fitting(self._unconfirmed)
        for shard in shards:
            self._unconfirmed[shard] = self._unconfirmed[shard] or request_number
        return shards

    def confirm(self, request_number: int) -> None:
        """Note that the coordinator accepted this request, and so the announcements that it carried."""
        if self._unconfirmed:
            self._unconfirmed = {
                shard: number for shard, number in self._unconfirmed.items() if not 0 < number <= request_number
            }

    def resend_all(self) -> None:
        """Send all announcements again, because the coordinator or its generation is new and has none of them."""
        self._unconfirmed = dict.fromkeys(self._own, 0)

    def start_generation(self) -> None:
        """Forget the finished shards of other subtasks."""
        self._finished = set(self._own)

    def add_finished(self, shards: Iterable[str]) -> bool:
        """Add shards that the coordinator confirmed as finished, and return whether any of them is new."""
        new = [shard for shard in shards if shard not in self._finished]
        self._finished.update(new)
        return bool(new)


def _is_sendable(shard: str) -> bool:
    return len(shard) < MAX_KEY_CHARACTERS // 2


def _fitting(shards: Iterable[str]) -> tuple[str, ...]:
    """Return the first shards that fit into one message."""
    free, fitting = MAX_KEY_CHARACTERS, []
    for shard in shards:
        free -= len(shard) + KEY_OVERHEAD
        if free < 0:
            break
        fitting.append(shard)
    return tuple(fitting)
