"""Declares every kind of random fault in one place, and the rules that say how often each occurs."""

import re
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from recordpublisher.publishers.errors import ConfigurationError

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
CALLS = READS | CHANGES | WRITES | QUEUES | QUEUE_SETTINGS
"""Every operation that a fault applies to."""
ANSWERS = READS | WRITES | QUEUES | {"RegisterStreamConsumer"}
"""Operations whose response has a body."""
LISTING, READING = frozenset({"ListShards"}), frozenset({"GetRecords"})
ENTRIES, FRAMES = frozenset({"entry"}), frozenset({"frame"})
"""Used instead of operation names: the records of PutRecords and handles of an acknowledgement, and the frames of subscriptions."""


class FaultKind(StrEnum):
    """A kind of fault: its name in a rule, what it does, what it applies to, and its longest delay or jump if a rule has no `seconds`."""

    description: str
    targets: frozenset[str]
    default_seconds: float

    def __new__(cls, name: str, description: str, targets: frozenset[str], default_seconds: float = 0.0) -> "FaultKind":
        """Make a member from its name, with the declared attributes of the kind."""
        kind = str.__new__(cls, name)
        kind._value_ = name
        kind.description, kind.targets, kind.default_seconds = description, targets, default_seconds
        return kind

    # fmt: off
    THROTTLE = "throttle", "a call is throttled; after GetRecords, reads of the shard are refused for a second", CALLS
    ERROR = "error", "a call fails with InternalFailure and status 500", CALLS
    RESET = "reset", "the connection breaks before a call is carried out", CALLS
    SLOW = "slow", "a call is carried out late, by up to the rule's seconds (default 4)", CALLS, 4.0
    LATE = "late", "a call is carried out at once and its response is late, after those of later calls (default 4 s)", CALLS, 4.0
    LOST = "lost", "a call is carried out, but its response is lost", CALLS
    HALF = "half", "half a response, ended cleanly", ANSWERS
    PAGE = "page", "an HTML page of a proxy, with status 503", CALLS
    MISSING = "missing", "a shard that exists is not found", frozenset({"GetShardIterator", "SubscribeToShard"})
    EXPIRE = "expire", "a shard iterator is refused as expired", READING
    EMPTY = "empty", "a read far behind the tip returns no records, as the service does on sparse shards", READING
    STALE = "stale", "ListShards shows an old state of the stream (default: up to 8 s old)", LISTING, 8.0
    INCOMPLETE = "incomplete", "ListShards lacks shards: in turn open children, closed shards, every third", LISTING
    SKEW = "skew", "the endpoint's clock jumps ahead, by up to the rule's seconds (default 200)", READING | LISTING, 200.0
    DELETING = (
        "deleting", "a consumer that does not exist is described as DELETING (default 4 s)", frozenset({"DescribeStreamConsumer"}), 4.0
    )
    PARTIAL = "partial", "a record of PutRecords or a handle of an acknowledgement is refused, the others are not", ENTRIES
    REDELIVER = "redeliver", "a queue delivers a record again that was acknowledged", ENTRIES
    CUT = "cut", "a subscription's connection breaks in the middle of a frame", FRAMES
    TRUNCATE = "truncate", "a subscription ends cleanly in the middle of a frame", FRAMES
    CORRUPT = "corrupt", "a frame with a wrong checksum; correct ones follow", FRAMES
    SILENCE = "silence", "a subscription stays open and sends nothing more", FRAMES
    END = "end", "a subscription ends cleanly, long before its five minutes", FRAMES
    EVENT_ERROR = "event-error", "an InternalFailureException inside the stream", FRAMES
    TAKE_OVER = "take-over", "another client subscribes with the same consumer", FRAMES
    VANISH = "vanish", "the consumer is deregistered while subscriptions are open", FRAMES
    # fmt: on


VALID = "KIND[@WHERE][=RATE][*COUNT][~SECONDS], separated by commas, for example throttle@GetRecords=0.1,cut=0.05 or all=0.02"
_RULE = re.compile(
    r"(?P<kind>[a-z-]+)(@(?P<where>[\w.-]+))?(=(?P<rate>\d+(\.\d+)?))?(\*(?P<count>\d+))?(~(?P<seconds>\d+(\.\d+)?))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class FaultRule:
    """One kind of fault and its rate.

    - `where`: an operation, a shard id or a consumer's name. None applies the rule everywhere.
    - `rate`: the share of calls or frames that fail (0 to 1). With a rate below 1 nothing fails more than twice in a row, so that the
      default number of retries is enough.
    - `count`: the largest number of faults.
    - `seconds`: the longest delay or jump. None selects the default of the kind.
    """

    kind: FaultKind
    where: str | None = None
    rate: float = 1.0
    count: float = inf
    seconds: float | None = None

    @property
    def max_seconds(self) -> float:
        """The longest delay or jump (seconds)."""
        return self.kind.default_seconds if self.seconds is None else self.seconds

    def applies_to(self, *places: str) -> bool:
        """Return whether the rule applies to one of these names."""
        return self.where is None or self.where in places


def parse_rules(text: str, option: str = "faults") -> tuple[FaultRule, ...]:
    """Parse rules; `all` selects every kind. Raises: ConfigurationError that names `option`, if a rule is not valid."""
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
