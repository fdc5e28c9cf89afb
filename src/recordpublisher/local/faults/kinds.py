"""FaultKind: every way in which the endpoint can be made to misbehave, and where."""

from enum import StrEnum


class FaultKind(StrEnum):
    """A name as it stands in a rule; the sentence of each is in `SENTENCES`."""

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


SENTENCES = {
    FaultKind.THROTTLE: "a call is refused by a limit; a shard's reads then for a second",
    FaultKind.ERROR: "a call is answered with InternalFailure and status 500",
    FaultKind.RESET: "the connection breaks before a call is carried out",
    FaultKind.SLOW: "a call's first byte comes late, by up to the rule's seconds (default 4)",
    FaultKind.LATE: "a call is carried out at once and answered late, behind calls that came after it (default 4 s)",
    FaultKind.LOST: "a call is carried out and its answer lost",
    FaultKind.HALF: "half an answer, well ended",
    FaultKind.PAGE: "a proxy's page of HTML with status 503",
    FaultKind.MISSING: "a shard that is there is not found",
    FaultKind.EXPIRE: "a shard iterator is refused as expired",
    FaultKind.STALE: "ListShards shows the stream as it was some time ago (default 8 s)",
    FaultKind.SKEW: "the endpoint's clock steps forward, by up to the rule's seconds (default 200)",
    FaultKind.DELETING: "a consumer that is looked up and not there is just being deleted (default 4 s)",
    FaultKind.PARTIAL: "a record of PutRecords is refused, the others are taken",
    FaultKind.CUT: "a subscription breaks in the middle of a frame",
    FaultKind.TRUNCATE: "a subscription's answer ends in the middle of a frame, well ended",
    FaultKind.CORRUPT: "a frame whose checksum does not fit; good ones follow",
    FaultKind.SILENCE: "a subscription stays open and says nothing more",
    FaultKind.END: "a subscription ends cleanly, long before its five minutes",
    FaultKind.EVENT_ERROR: "an InternalFailureException inside the stream",
    FaultKind.TAKE_OVER: "another reader subscribes with the same consumer",
    FaultKind.VANISH: "the consumer is deregistered under its readers",
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
HITS: dict[FaultKind, frozenset[str]] = {
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
    FaultKind.SKEW: frozenset({"GetRecords", "ListShards"}),
    FaultKind.DELETING: frozenset({"DescribeStreamConsumer"}),
}
"""The operations that a kind can befall; the kinds that are missing here befall records or frames."""

OF_FRAMES = (
    FaultKind.CUT,
    FaultKind.TRUNCATE,
    FaultKind.CORRUPT,
    FaultKind.SILENCE,
    FaultKind.END,
    FaultKind.EVENT_ERROR,
    FaultKind.TAKE_OVER,
    FaultKind.VANISH,
)

SECONDS = {
    FaultKind.SLOW: 4.0,
    FaultKind.LATE: 4.0,
    FaultKind.STALE: 8.0,
    FaultKind.SKEW: 200.0,
    FaultKind.DELETING: 4.0,
}
"""How long or how far at most, where a rule does not say."""
