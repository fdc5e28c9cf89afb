"""A position in a shard that is valid for five minutes, and the start of each iterator type."""

from datetime import UTC, datetime

import msgspec

from recordpublisher.publishers.service_limits import ITERATOR_SECONDS

from ..api_errors import ApiError, invalid_argument
from .shard import Shard

LIFETIME_MS = int(ITERATOR_SECONDS * 1000)
NUMBER_AND_TYPE = (
    "Must either specify (1) AT_SEQUENCE_NUMBER or AFTER_SEQUENCE_NUMBER and StartingSequenceNumber or "
    "(2) TRIM_HORIZON or LATEST and no StartingSequenceNumber."
)


class ShardIterator(msgspec.Struct, frozen=True, array_like=True, tag="i"):
    """A position in a shard. Raising `generation` expires all iterators."""

    stream: str
    stream_created_ms: int
    shard_id: str
    counter: int
    issued_ms: int
    generation: int

    def require_fresh(self, now_ms: int, current_generation: int) -> None:
        """Raise ExpiredIteratorException if the token is five minutes old, or of an earlier generation."""
        if now_ms - self.issued_ms >= LIFETIME_MS or self.generation != current_generation:
            raise ApiError(
                "ExpiredIteratorException",
                f"Iterator expired. The iterator was created at time {_date(self.issued_ms)} while right now it is {_date(now_ms)} "
                f"which is further in the future than the tolerated delay of {LIFETIME_MS} milliseconds.",
            )


def _date(ms: int) -> str:
    """Return a time as the service writes it, in the format of Java's Date."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%a %b %d %H:%M:%S UTC %Y}"


def start_counter(shard: Shard, kind: str, sequence_number: str | None, timestamp: float | None, now_ms: int) -> int:
    """Return the counter at which a read of this type starts.

    Raises: InvalidArgumentException if the number or timestamp is missing, is not allowed, or is not valid for this shard.
    """
    if kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
        return _counter_of(shard, kind, sequence_number) + (kind == "AFTER_SEQUENCE_NUMBER")
    if sequence_number is not None:
        raise invalid_argument(f"{NUMBER_AND_TYPE} Request specified {kind} and also a StartingSequenceNumber.")
    if kind == "AT_TIMESTAMP":
        return shard.log.counter_at(_past_ms(timestamp, now_ms))
    return 0 if kind == "TRIM_HORIZON" else shard.log.tip


def _counter_of(shard: Shard, kind: str, sequence_number: str | None) -> int:
    if sequence_number is None:
        raise invalid_argument(f"{NUMBER_AND_TYPE} Request specified {kind} and no StartingSequenceNumber.")
    counter = shard.log.numbers.counter(sequence_number)
    if counter is None:
        raise invalid_argument(
            f"StartingSequenceNumber {sequence_number} used on shard {shard.id} is invalid because it did not come "
            "from this shard."
        )
    return counter


def to_ms(seconds: float) -> int:
    """Return a time of a request in milliseconds. Raises: InvalidArgumentException if a double cannot hold it."""
    try:
        return round(seconds * 1000)
    except OverflowError as error:
        raise invalid_argument(f"The timestamp {seconds} is out of range.") from error


def _past_ms(timestamp: float | None, now_ms: int) -> int:
    if timestamp is None:
        raise invalid_argument(
            "Must specify timestampInMillis parameter for iterator of type AT_TIMESTAMP. "
            "Current request has no timestamp parameter."
        )
    timestamp_ms = to_ms(timestamp)
    if timestamp_ms > now_ms:
        raise invalid_argument(
            "The timestampInMillis parameter cannot be greater than the currentTimestampInMillis. "
            f"timestampInMillis: {timestamp_ms}, currentTimestampInMillis: {now_ms}"
        )
    return timestamp_ms
