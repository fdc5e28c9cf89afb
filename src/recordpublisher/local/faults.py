"""Injects faults: faults that a test plans, and random ones, drawn by rules with a seed."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from math import inf
from random import Random

from recordpublisher.publishers.errors import ConfigurationError

from .errors import ApiError

WRITES = frozenset({"PutRecord", "PutRecords"})
READS = frozenset(
    {
        "DescribeStream", "DescribeStreamConsumer", "DescribeStreamSummary", "GetRecords", "GetShardIterator", "ListShards",
        "ListStreamConsumers", "ListStreams",
    }
)  # fmt: skip
CONSUMER_CALLS = frozenset({"DeregisterStreamConsumer", "RegisterStreamConsumer", "SubscribeToShard"})
QUEUES = frozenset(
    {
        "AcknowledgeDeadLetterQueueRecords", "AcknowledgeQueueRecords", "ReceiveDeadLetterQueueRecords", "ReceiveQueueRecords",
        "RestoreDeadLetterQueueRecords", "UpdateDeadLetterQueueRecordsVisibility", "UpdateQueueRecordsVisibility",
    }
)  # fmt: skip
QUEUE_SETTINGS = frozenset({"CreateQueue", "DeleteQueue", "DescribeQueue", "ListQueues", "UpdateQueue"})
FAULT_TARGETS = READS | CONSUMER_CALLS | WRITES | QUEUES | QUEUE_SETTINGS
"""All operations to which faults apply."""
WITH_RESPONSE_BODY = READS | WRITES | QUEUES | {"RegisterStreamConsumer"}
"""The operations whose response has a body."""
LISTING, READING = frozenset({"ListShards"}), frozenset({"GetRecords"})
ENTRIES, FRAMES = frozenset({"entry"}), frozenset({"frame"})
"""The targets of faults that hit only a part of a call.

An `entry` is a record of PutRecords or a receipt handle of a queue. A `frame` is an event of a subscription, as it is sent.
"""
# fmt: on


VALID = "KIND[@WHERE][=RATE][*COUNT][~SECONDS], separated by commas, for example throttle@GetRecords=0.1,cut=0.05 or all=0.02"
_RULE = re.compile(
    r"(?P<kind>[a-z-]+)(@(?P<where>[\w.-]+))?(=(?P<rate>\d+(\.\d+)?))?(\*(?P<count>\d+))?(~(?P<seconds>\d+(\.\d+)?))?",
    re.ASCII,
)

MAX_FAULTS_IN_A_ROW = 2
"""After this many faults in a row a read succeeds. Every default number of retries is higher."""
MAX_TAKE_OVERS = 3
"""The most take-overs of one subscription in a row. With more of them a client would report that another job uses its consumer."""
_PART_OF = {"GetShardIterator": "GetRecords", "SubscribeToShard": "events"}
"""Operations that are only the first step of a read, each with the name of that read. The success of this step does not end a series of
consecutive faults of the read.
"""


class Faults:
    """The planned faults, each of which is applied once, and the random ones."""

    def __init__(self) -> None:
        self.iterator_generation = 0
        self._kept: dict[FaultKind, DrawnFault] = {}
        self._random_faults = RandomFaults()
        self._calls: dict[str, deque[ApiError | None]] = {}
        self._entries: deque[str] = deque()
        self._redeliveries = 0
        self._streams: list[PlannedStreamFault] = []
        self._wake: Callable[[], None] = lambda: None

    def on_plan(self, wake: Callable[[], None]) -> None:
        """Call `wake` whenever a fault for subscriptions is planned."""
        self._wake = wake

    # --- planning

    def fail_next(
        self, operation: str, code: str, count: int = 1, *, message: str = "injected", status: int = 400
    ) -> None:
        """Fail the next `count` calls of an operation, such as "GetRecords", with the error `code`."""
        self._calls.setdefault(operation, deque()).extend([ApiError(code, message, status)] * count)

    def drop_next(self, operation: str, count: int = 1) -> None:
        """Break the connection of the next `count` calls of the operation without a response."""
        self._calls.setdefault(operation, deque()).extend([None] * count)

    def planned(self, operation: str) -> int:
        """Return for how many further calls of the operation a test has planned an error or a lost connection."""
        return len(self._calls.get(operation, ()))

    def fail_entries(self, count: int, code: str = "ProvisionedThroughputExceededException") -> None:
        """Refuse the next `count` entries: records of PutRecords, or receipt handles of a queue. Other entries of the same call succeed."""
        self._entries.extend([code] * count)

    def redeliver_next(self, count: int = 1) -> None:
        """Make a queue deliver the next `count` acknowledged records again."""
        self._redeliveries += count

    def expire_iterators(self) -> None:
        """Make every iterator that was returned so far expire now."""
        self.iterator_generation += 1

    def fail_subscription(
        self,
        fault: StreamFault,
        *,
        shard_id: str | None = None,
        consumer: str | None = None,
        code: str = "InternalFailureException",
    ) -> None:
        """Apply a fault at once to one open subscription of this shard and consumer, or to the next one if none is open.

        - `shard_id`, `consumer`: None stands for any.
        - `code`: the error that `StreamFault.ERROR` sends.
        """
        self._streams.append(PlannedStreamFault(fault, shard_id, consumer, code))
        self._wake()

    def start_random(self, rules: str | Sequence[FaultRule], seed: int = 0) -> None:
        """Apply random faults from now on, drawn by these rules with `seed`. The counts start at 0.

        Raises: ConfigurationError if a rule is not valid.
        """
        self._random_faults = RandomFaults(parse_rules(rules) if isinstance(rules, str) else rules, seed)

    def stop_random(self) -> Counter[FaultKind]:
        """Stop random faults. Return how many of each kind were applied."""
        counts, self._random_faults = self._random_faults.counts, RandomFaults()
        return counts

    # --- applying

    @property
    def counts(self) -> Counter[FaultKind]:
        """Number of faults of each kind drawn so far."""
        return self._random_faults.counts

    def for_call(self, operation: str, target: Callable[[], str]) -> DrawnFault | None:
        """Return a random fault for this call, or None. `target` returns the shard or consumer that the call names."""
        return self._random_faults.for_call(operation, target)

    def on_success(self, operation: str, target: Callable[[], str]) -> None:
        """Count a successful call. It ends the series of consecutive random faults of the call's target."""
        self._random_faults.on_success(operation, target)

    def keep(self, drawn: DrawnFault) -> None:
        """Keep a fault that changes the result of an operation, until the function of the operation takes it (`take`)."""
        self._kept[drawn.kind] = drawn

    def take(self, kind: FaultKind) -> DrawnFault | None:
        """Remove the fault of this kind that `keep` has kept, and return it. Return None if there is none."""
        return self._kept.pop(kind, None)

    def drop_kept(self) -> None:
        """Drop the faults that `keep` has kept and the call has not taken."""
        self._kept.clear()

    def for_frame(self, consumer: str, shard_id: str) -> DrawnFault | None:
        """Return a random fault for a subscription's next frame, or None."""
        return self._random_faults.for_frame(consumer, shard_id)

    def before_call(self, operation: str) -> None:
        """Raise the planned error of this call: an ApiError, or ConnectionAbortedError for a dropped connection."""
        planned = self._calls.get(operation)
        if planned:
            error = planned.popleft()
            raise error or ConnectionAbortedError(operation)

    def for_entry(self, operation: str) -> str | None:
        """Return the error code for an entry (a record of PutRecords, or a receipt handle of a queue), or None if the entry is accepted."""
        if self._entries:
            return self._entries.popleft()
        if not self._random_faults.for_entry(FaultKind.PARTIAL, operation):
            return None
        return "ProvisionedThroughputExceededException" if operation == "PutRecords" else "ThrottlingException"

    def check_entry(self, operation: str) -> None:
        """Raise an ApiError if this receipt handle of a queue must be refused."""
        code = self.for_entry(operation)
        if code is not None:
            raise ApiError(code, "injected")

    def take_redelivery(self) -> bool:
        """Return whether a queue must deliver a record again although the record was acknowledged."""
        is_planned = self._redeliveries > 0
        self._redeliveries -= is_planned
        return is_planned or self._random_faults.for_entry(FaultKind.REDELIVER, "AcknowledgeQueueRecords")

    def for_subscription(self, consumer: str, shard_id: str) -> PlannedStreamFault | None:
        """Return the fault that is planned for this subscription's next frame, or None."""
        for planned in self._streams:
            if planned.matches(consumer, shard_id):
                self._streams.remove(planned)
                return planned
        return None


class FaultKind(StrEnum):
    """A kind of fault.

    - `description`: its effect.
    - `targets`: the operations to which it applies.
    - `default_seconds`: its longest delay or jump if a rule has no `seconds`.
    """

    description: str
    targets: frozenset[str]
    default_seconds: float

    def __new__(cls, name: str, description: str, targets: frozenset[str], default_seconds: float = 0.0) -> FaultKind:
        """Make a member from its name, with the declared attributes of the kind."""
        kind = str.__new__(cls, name)
        kind._value_ = name
        kind.description, kind.targets, kind.default_seconds = description, targets, default_seconds
        return kind

    # fmt: off
    THROTTLE = "throttle", "a call is throttled; after GetRecords, reads of the shard are refused for a second", FAULT_TARGETS
    ERROR = "error", "a call fails with InternalFailure and status 500", FAULT_TARGETS
    RESET = "reset", "the connection breaks before a call is carried out", FAULT_TARGETS
    SLOW = "slow", "a call is carried out late, by up to the rule's seconds (default 4)", FAULT_TARGETS, 4.0
    LATE = "late", "a call is carried out at once and its response is late, after those of later calls (default 4 s)", FAULT_TARGETS, 4.0
    LOST = "lost", "a call is carried out, but its response is lost", FAULT_TARGETS
    HALF = "half", "half a response, ended cleanly", WITH_RESPONSE_BODY
    PAGE = "page", "an HTML page of a proxy, with status 503", FAULT_TARGETS
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


@dataclass(frozen=True, slots=True)
class FaultRule:
    """A kind of fault, and how often it is applied.

    - `where`: an operation, a shard id or a consumer's name. None means everywhere.
    - `rate`: the share of calls or frames that fail (0 to 1). If it is below 1, nothing fails more than twice in a row, so that the default
      number of retries is enough.
    - `count`: the largest number of faults.
    - `seconds`: the longest delay or jump. None means the default of the kind.
    """

    kind: FaultKind
    where: str | None = None
    rate: float = 1.0
    count: float = inf
    seconds: float | None = None

    @property
    def max_seconds(self) -> float:
        """The longest delay of a response, or the longest jump of the clock (seconds)."""
        return self.kind.default_seconds if self.seconds is None else self.seconds

    def applies_to(self, *places: str) -> bool:
        """Return whether the rule applies to one of these operations, shards or consumers."""
        return self.where is None or self.where in places


def parse_rules(text: str, option: str = "faults") -> tuple[FaultRule, ...]:
    """Return the rules in a text; `all` means every kind. Raises: ConfigurationError that names `option`, if a rule is not valid."""
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


class StreamFault(Enum):
    """A kind of fault that a test can plan for a subscription. The subscription ends after the fault."""

    CUT = FaultKind.CUT
    TRUNCATE = FaultKind.TRUNCATE
    END = FaultKind.END
    CORRUPT = FaultKind.CORRUPT
    ERROR = FaultKind.EVENT_ERROR
    SILENT = FaultKind.SILENCE


@dataclass(frozen=True, slots=True)
class PlannedStreamFault:
    """A planned fault of a subscription. `consumer` and `shard_id` select the subscription; None stands for any."""

    fault: StreamFault
    shard_id: str | None = None
    consumer: str | None = None
    code: str = "InternalFailureException"

    def matches(self, consumer: str, shard_id: str) -> bool:
        """Return whether the fault is for this subscription."""
        return self.consumer in (None, consumer) and self.shard_id in (None, shard_id)


_Numbered = list[tuple[int, FaultRule]]


@dataclass(frozen=True, slots=True)
class DrawnFault:
    """A fault that was chosen at random for a call. `seconds`: how long it delays the call or lasts, or how far it moves the clock."""

    kind: FaultKind
    seconds: float = 0.0


class RandomFaults:
    """Draws random faults. With the same seed and the same calls, the faults are the same."""

    def __init__(self, rules: Sequence[FaultRule] = (), seed: int = 0, max_in_a_row: int = MAX_FAULTS_IN_A_ROW) -> None:
        self.counts: Counter[FaultKind] = Counter()
        self._random = Random(seed)  # noqa: S311 - faults that can be repeated, not secrets
        self._max_in_a_row = max_in_a_row
        self._in_a_row: Counter[Hashable] = Counter()
        self._take_overs: Counter[Hashable] = Counter()
        numbered = list(enumerate(rules))
        self._left = {number: rule.count for number, rule in numbered}
        self._call_rules = {operation: _for_operation(numbered, operation) for operation in FAULT_TARGETS}
        self._frame_rules = [(number, rule) for number, rule in numbered if rule.kind.targets == FRAMES]
        self._entry_rules = [(number, rule) for number, rule in numbered if rule.kind.targets == ENTRIES]

    def for_call(self, operation: str, target: Callable[[], str]) -> DrawnFault | None:
        """Draw the fault of this call, if any. `target` returns the shard or consumer that the call names."""
        rules = self._call_rules.get(operation)
        if not rules:
            return None
        name = target()
        return self._draw_within_limit((_PART_OF.get(operation, operation), name), rules, operation, name)

    def on_success(self, operation: str, target: Callable[[], str]) -> None:
        """Count a successful call. It ends the series of consecutive faults of the call's target."""
        if operation not in _PART_OF and self._call_rules.get(operation):
            self._in_a_row[operation, target()] = 0

    def for_frame(self, consumer: str, shard_id: str) -> DrawnFault | None:
        """Draw the fault of the next frame of a subscription, if any."""
        if not self._frame_rules:
            return None
        rules = self._frame_rules
        if self._take_overs[shard_id] >= MAX_TAKE_OVERS:
            rules = [(number, rule) for number, rule in rules if rule.kind is not FaultKind.TAKE_OVER]
        drawn = self._draw_within_limit(("events", shard_id), rules, consumer, shard_id)
        if drawn is None:
            self._in_a_row["events", shard_id] = 0
        else:
            self._take_overs[shard_id] = self._take_overs[shard_id] + 1 if drawn.kind is FaultKind.TAKE_OVER else 0
        return drawn

    def for_entry(self, kind: FaultKind, operation: str) -> bool:
        """Draw whether a fault of this kind hits an entry of the operation: a record of PutRecords, or a receipt handle of a queue."""
        rules = [(number, rule) for number, rule in self._entry_rules if rule.kind is kind]
        return self._draw(rules, operation) is not None

    def _draw_within_limit(self, goal: Hashable, rules: _Numbered, *places: str) -> DrawnFault | None:
        """Draw a fault, or return None. After too many consecutive faults with the same `goal`, only rules with rate 1 apply.

        - `goal`: the operation and its shard or consumer, whose consecutive faults are counted.
        - `places`: the names that the `where` of a rule is compared with.
        """
        if self._in_a_row[goal] >= self._max_in_a_row:
            rules = [(number, rule) for number, rule in rules if rule.rate >= 1]
        drawn = self._draw(rules, *places)
        self._in_a_row[goal] += drawn is not None
        return drawn

    def _draw(self, rules: _Numbered, *places: str) -> DrawnFault | None:
        for number, rule in rules:
            if rule.applies_to(*places) and self._left[number] > 0 and self._random.random() < rule.rate:
                self._left[number] -= 1
                self.counts[rule.kind] += 1
                return DrawnFault(rule.kind, self._random.random() * rule.max_seconds)
        return None


def _for_operation(numbered: _Numbered, operation: str) -> _Numbered:
    """Return the rules that can apply to an operation. A rule for a shard or a consumer can apply to every operation of its kind."""
    return [
        (number, rule)
        for number, rule in numbered
        if operation in rule.kind.targets and (rule.where not in FAULT_TARGETS or rule.where == operation)
    ]
