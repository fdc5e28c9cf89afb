"""FaultKind: every kind of random fault and the operations it applies to. FaultRule: how often, parsed from text."""

import re
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from recordpublisher.publishers.errors import ConfigurationError


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
    EMPTY = "empty"
    STALE = "stale"
    INCOMPLETE = "incomplete"
    SKEW = "skew"
    DELETING = "deleting"
    PARTIAL = "partial"
    REDELIVER = "redeliver"
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
    FaultKind.EMPTY: "a read far behind the tip returns no records, as the service does on sparse shards",
    FaultKind.STALE: "ListShards shows an old state of the stream (default: up to 8 s old)",
    FaultKind.INCOMPLETE: "ListShards lacks shards: in turn open children, closed shards, every third",
    FaultKind.SKEW: "the endpoint's clock jumps ahead, by up to the rule's seconds (default 200)",
    FaultKind.DELETING: "a consumer that does not exist is described as DELETING (default 4 s)",
    FaultKind.PARTIAL: "a record of PutRecords or a handle of an acknowledgement is refused, the others are not",
    FaultKind.REDELIVER: "a queue delivers a record again that was acknowledged",
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
QUEUES = frozenset(
    {
        "AcknowledgeDeadLetterQueueRecords", "AcknowledgeQueueRecords", "ReceiveDeadLetterQueueRecords", "ReceiveQueueRecords",
        "RestoreDeadLetterQueueRecords", "UpdateDeadLetterQueueRecordsVisibility", "UpdateQueueRecordsVisibility",
    }
)  # fmt: skip
QUEUE_SETTINGS = frozenset({"CreateQueue", "DeleteQueue", "DescribeQueue", "ListQueues", "UpdateQueue"})

_CALLS = READS | CHANGES | WRITES | QUEUES | QUEUE_SETTINGS
OPERATIONS_BY_KIND: dict[FaultKind, frozenset[str]] = {
    FaultKind.THROTTLE: _CALLS,
    FaultKind.ERROR: _CALLS,
    FaultKind.RESET: _CALLS,
    FaultKind.SLOW: _CALLS,
    FaultKind.LATE: _CALLS,
    FaultKind.LOST: _CALLS,
    FaultKind.HALF: READS | WRITES | QUEUES | {"RegisterStreamConsumer"},
    FaultKind.PAGE: _CALLS,
    FaultKind.MISSING: frozenset({"GetShardIterator", "SubscribeToShard"}),
    FaultKind.EXPIRE: frozenset({"GetRecords"}),
    FaultKind.EMPTY: frozenset({"GetRecords"}),
    FaultKind.STALE: frozenset({"ListShards"}),
    FaultKind.INCOMPLETE: frozenset({"ListShards"}),
    FaultKind.SKEW: frozenset({"GetRecords", "ListShards"}),
    FaultKind.DELETING: frozenset({"DescribeStreamConsumer"}),
}
"""The operations that a kind applies to; the kinds that are missing here apply to records or frames."""

ENTRY_KINDS = (FaultKind.PARTIAL, FaultKind.REDELIVER)
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


VALID = "KIND[@WHERE][=RATE][*COUNT][~SECONDS], separated by commas, for example throttle@GetRecords=0.1,cut=0.05 or all=0.02"
_RULE = re.compile(
    r"(?P<kind>[a-z-]+)(@(?P<where>[\w.-]+))?(=(?P<rate>\d+(\.\d+)?))?(\*(?P<count>\d+))?(~(?P<seconds>\d+(\.\d+)?))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class FaultRule:
    """One kind of fault and its rate.

    `where` is an operation, a shard id or a consumer's name, None for all. `rate` is the share of calls or frames that fail (0 to 1),
    `count` the largest number of faults, `seconds` the longest delay or jump (None: the kind's default). Below a rate of 1 nothing fails
    more than twice in a row, so that the default number of retries is enough.
    """

    kind: FaultKind
    where: str | None = None
    rate: float = 1.0
    count: float = inf
    seconds: float | None = None

    @property
    def max_seconds(self) -> float:
        """The longest delay or jump."""
        return DEFAULT_SECONDS.get(self.kind, 0.0) if self.seconds is None else self.seconds

    def applies_to(self, *places: str) -> bool:
        """Whether the rule applies to one of these names."""
        return self.where is None or self.where in places


def parse_rules(text: str, option: str = "faults") -> tuple[FaultRule, ...]:
    """Parse rules; `all` stands for every kind. Raises: ConfigurationError that names `option`."""
    return tuple(rule for part in text.split(",") if part.strip() for rule in _parse_rule(part.strip(), option))


def _parse_rule(text: str, option: str) -> list[FaultRule]:
    found = _RULE.fullmatch(text)
    names = (
        list(FaultKind)
        if found and found["kind"] == "all"
        else [kind for kind in FaultKind if found and kind == found["kind"]]
    )
    if found is None or not names or not 0 <= float(found["rate"] or 1) <= 1:
        raise ConfigurationError(option, text, VALID, reason=f"kinds: all, {', '.join(FaultKind)}")
    rate, count = float(found["rate"] or 1), int(found["count"]) if found["count"] else inf
    seconds = float(found["seconds"]) if found["seconds"] else None
    return [FaultRule(kind, found["where"], rate, count, seconds) for kind in names]
