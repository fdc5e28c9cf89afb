"""ShardIterator is taken at a position, reused from response to response, and replaced before it expires (R2)."""

import functools

from ..clock import Clock
from ..errors import DataLossError, RecordPublisherError, ResourceInUseError, ResourceNotFoundError, TransientError
from ..kinesis.ports import ListingPort, PollingPort, is_shard_listed
from ..positions import StartingPosition
from ..retry import RetryPolicy, call_with_retries
from ..service_limits import ITERATOR_SECONDS
from ..shard_metrics import ShardMetrics
from ..shards import Shard
from .read_rate import retry_pause_seconds

MAX_ITERATOR_AGE_SECONDS = ITERATOR_SECONDS - 60.0
"""The age (seconds) from which on an iterator is replaced before use (R2)."""


class ShardIterator:
    """Owns one shard's iterator and its age. It is requested at its first use, so a paused shard makes no call (W11)."""

    def __init__(
        self, port: PollingPort, shard: Shard, policy: RetryPolicy, metrics: ShardMetrics, clock: Clock
    ) -> None:
        self._port = port
        self._shard = shard
        self._policy = policy
        self._metrics = metrics
        self._clock = clock
        self._value: str | None = None
        self._since = 0.0

    async def get(self, position: StartingPosition) -> str:
        """Return the current iterator, or a new one for `position` if there is none or it is older than four minutes."""
        if self._value is not None and self._clock.monotonic() - self._since > MAX_ITERATOR_AGE_SECONDS:
            self.discard_expired()
        if self._value is None:
            since = self._clock.monotonic()
            self._value = await call_with_retries(
                functools.partial(self._port.get_shard_iterator, self._shard, position),
                self._policy,
                on_retry=self._metrics.count_retry,
                min_pause=retry_pause_seconds,
            )
            self._since = since
        return self._value

    def set(self, value: str, since: float) -> None:
        """Store the iterator of a response that came at `since` (monotonic seconds)."""
        self._value, self._since = value, since

    @property
    def current(self) -> tuple[str | None, float]:
        """The iterator, or None, and when it was taken (monotonic seconds)."""
        return self._value, self._since

    def discard(self) -> None:
        """Forget the iterator, because it was used or belongs to another position."""
        self._value = None

    def discard_expired(self) -> None:
        """Forget the iterator because it is too old, and count that."""
        self._value = None
        self._metrics.add("iterator_refreshes")


async def explain_not_found(
    listing: ListingPort, shard: Shard, error: ResourceNotFoundError, policy: RetryPolicy
) -> RecordPublisherError:
    """Return the error to raise for a shard that the service did not find. A shard that vanished is never marked complete.

    It is a TransientError if the shard is still listed, and a DataLossError if it is not, because its unread records
    are lost.

    Raises: StreamNotFoundError if the whole stream is gone.
    """

    async def still_listed() -> bool:
        try:
            return await is_shard_listed(listing, shard)
        except ResourceInUseError as busy:  # the stream is being created or deleted, so list again
            raise TransientError(busy.api, busy.code, str(busy)) from busy

    if await call_with_retries(still_listed, policy):
        return TransientError(error.api, error.code, f"{shard.key} is not found, though it is listed")
    return DataLossError(
        f"shard {shard.key} vanished before it was read to its end: it is past retention, or the stream was deleted and created again; "
        f"to continue without the lost records, start without its state ({error})"
    )
