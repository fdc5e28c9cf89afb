"""FaultKind: every kind of random fault, what it does, and which operations it applies to."""

from enum import StrEnum


class FaultKind(StrEnum):
    """The name of a kind in a rule; `DESCRIPTIONS` says what it does."""

    THROTTLE = "throttle"
    ERROR = "error"
    RESET = "reset"
    SLOW = "slow"
    LATE = "late"
    LOST = "lost"
    HALF = "half"
    PAGE = "page"
    MISSING = "missing"
    EXPIRE = "expire"
    STALE = "stale"
    INCOMPLETE = "incomplete"
    SKEW = "skew"
    DELETING = "deleting"
    PARTIAL = "partial"
    CUT = "cut"
    TRUNCATE = "truncate"
    CORRUPT = "corrupt"
    SILENCE = "silence"
    END = "end"
    EVENT_ERROR = "event-error"
    TAKE_OVER = "take-over"
    VANISH = "vanish"


DESCRIPTIONS = {
    FaultKind.THROTTLE: "a call is throttled; after GetRecords, reads of the shard are refused for a second",
    FaultKind.ERROR: "a call fails with InternalFailure and status 500",
    FaultKind.RESET: "the connection breaks before a call is carried out",
    FaultKind.SLOW: "a call is carried out late, by up to the rule's seconds (default 4)",
    FaultKind.LATE: "a call is carried out at once and its response is late, after those of later calls (default 4 s)",
    FaultKind.LOST: "a call is carried out, but its response is lost",
    FaultKind.HALF: "half a response, ended cleanly",
    FaultKind.PAGE: "an HTML page of a proxy, with status 503",
    FaultKind.MISSING: "a shard that exists is not found",
    FaultKind.EXPIRE: "a shard iterator is refused as expired",
    FaultKind.STALE: "ListShards shows an old state of the stream (default: up to 8 s old)",
    FaultKind.INCOMPLETE: "ListShards lacks shards: in turn open children, closed shards, every third",
    FaultKind.SKEW: "the endpoint's clock jumps ahead, by up to the rule's seconds (default 200)",
    FaultKind.DELETING: "a consumer that does not exist is described as DELETING (default 4 s)",
    FaultKind.PARTIAL: "a record of PutRecords is refused, the others are stored",
    FaultKind.CUT: "a subscription's connection breaks in the middle of a frame",
    FaultKind.TRUNCATE: "a subscription ends cleanly in the middle of a frame",
    FaultKind.CORRUPT: "a frame with a wrong checksum; correct ones follow",
    FaultKind.SILENCE: "a subscription stays open and sends nothing more",
    FaultKind.END: "a subscription ends cleanly, long before its five minutes",
    FaultKind.EVENT_ERROR: "an InternalFailureException inside the stream",
    FaultKind.TAKE_OVER: "another client subscribes with the same consumer",
    FaultKind.VANISH: "the consumer is deregistered while subscriptions are open",
}

WRITES = frozenset({"PutRecord", "PutRecords"})
READS = frozenset(
    {
        "DescribeStream", "DescribeStreamConsumer", "DescribeStreamSummary", "GetRecords", "GetShardIterator", "ListShards",
        "ListStreamConsumers", "ListStreams",
    }
)  # fmt: skip
CHANGES = frozenset({"DeregisterStreamConsumer", "RegisterStreamConsumer", "SubscribeToShard"})

_CALLS = READS | CHANGES | WRITES
OPERATIONS_BY_KIND: dict[FaultKind, frozenset[str]] = {
    FaultKind.THROTTLE: _CALLS,
    FaultKind.ERROR: _CALLS,
    FaultKind.RESET: _CALLS,
    FaultKind.SLOW: _CALLS,
    FaultKind.LATE: _CALLS,
    FaultKind.LOST: _CALLS,
    FaultKind.HALF: READS | WRITES | {"RegisterStreamConsumer"},
    FaultKind.PAGE: _CALLS,
    FaultKind.MISSING: frozenset({"GetShardIterator", "SubscribeToShard"}),
    FaultKind.EXPIRE: frozenset({"GetRecords"}),
    FaultKind.STALE: frozenset({"ListShards"}),
    FaultKind.INCOMPLETE: frozenset({"ListShards"}),
    FaultKind.SKEW: frozenset({"GetRecords", "ListShards"}),
    FaultKind.DELETING: frozenset({"DescribeStreamConsumer"}),
}
"""The operations that a kind applies to; the kinds that are missing here apply to records or frames."""

FRAME_KINDS = (
    FaultKind.CUT,
    FaultKind.TRUNCATE,
    FaultKind.CORRUPT,
    FaultKind.SILENCE,
    FaultKind.END,
    FaultKind.EVENT_ERROR,
    FaultKind.TAKE_OVER,
    FaultKind.VANISH,
)

DEFAULT_SECONDS = {
    FaultKind.SLOW: 4.0,
    FaultKind.LATE: 4.0,
    FaultKind.STALE: 8.0,
    FaultKind.SKEW: 200.0,
    FaultKind.DELETING: 4.0,
}
"""The longest delay or jump, where a rule has no `seconds`."""
