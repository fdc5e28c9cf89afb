"""The planned and random faults of an endpoint, consulted for each call, each put record and each event frame."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from ..api_errors import ApiError
from .kinds import FaultKind, FaultRule, parse_rules
from .random_faults import DrawnFault, RandomFaults


class StreamFault(Enum):
    """A planned fault of a subscription. The subscription ends after it, even after CORRUPT."""

    CUT = FaultKind.CUT
    TRUNCATE = FaultKind.TRUNCATE
    END = FaultKind.END
    CORRUPT = FaultKind.CORRUPT
    ERROR = FaultKind.EVENT_ERROR
    SILENT = FaultKind.SILENCE


@dataclass(frozen=True, slots=True)
class PlannedStreamFault:
    """A fault for one subscription. None matches every shard or every consumer."""

    fault: StreamFault
    shard_id: str | None = None
    consumer: str | None = None
    code: str = "InternalFailureException"

    def matches(self, consumer: str, shard_id: str) -> bool:
        """Return whether the fault is for this subscription."""
        return self.consumer in (None, consumer) and self.shard_id in (None, shard_id)


class Faults:
    """Owns the planned faults, each applied once, and the random ones. A planned fault wakes the subscriptions."""

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
        """Fail the next `count` calls of the operation ("GetRecords") with the error `code`."""
        self._calls.setdefault(operation, deque()).extend([ApiError(code, message, status)] * count)

    def drop_next(self, operation: str, count: int = 1) -> None:
        """Break the connection of the next `count` calls of the operation without a response."""
        self._calls.setdefault(operation, deque()).extend([None] * count)

    def planned(self, operation: str) -> int:
        """Return how many of the next calls of the operation fail, or lose their connection."""
        return len(self._calls.get(operation, ()))

    def fail_entries(self, count: int, code: str = "ProvisionedThroughputExceededException") -> None:
        """Refuse the next `count` records of PutRecords, or handles of an acknowledgement, one by one, as a partial failure."""
        self._entries.extend([code] * count)

    def redeliver_next(self, count: int = 1) -> None:
        """Let a queue deliver the next `count` acknowledged records again."""
        self._redeliveries += count

    def expire_iterators(self) -> None:
        """Make every iterator handed out so far expire now."""
        self.iterator_generation += 1

    def fail_subscription(
        self,
        fault: StreamFault,
        *,
        shard_id: str | None = None,
        consumer: str | None = None,
        code: str = "InternalFailureException",
    ) -> None:
        """Apply a fault to one open subscription at once, or to the next one that matches."""
        self._streams.append(PlannedStreamFault(fault, shard_id, consumer, code))
        self._wake()

    def start_random(self, rules: str | Sequence[FaultRule], seed: int = 0) -> None:
        """Apply random faults by these rules from now on, drawn with `seed`. The counts start at 0.

        Raises: ConfigurationError if a rule is not valid.
        """
        self._random_faults = RandomFaults(parse_rules(rules) if isinstance(rules, str) else rules, seed)

    def stop_random(self) -> Counter[FaultKind]:
        """Stop random faults, and return how many of each kind there were."""
        counts, self._random_faults = self._random_faults.counts, RandomFaults()
        return counts

    # --- applying

    @property
    def counts(self) -> Counter[FaultKind]:
        """Number of faults of each kind drawn so far."""
        return self._random_faults.counts

    def for_call(self, operation: str, target: Callable[[], str]) -> DrawnFault | None:
        """Return the random fault of this call."""
        return self._random_faults.for_call(operation, target)

    def on_success(self, operation: str, target: Callable[[], str]) -> None:
        """Count a call that succeeded."""
        self._random_faults.on_success(operation, target)

    def keep(self, drawn: DrawnFault) -> None:
        """Keep a fault for the operation that is carried out next, because it changes that operation's result."""
        self._kept[drawn.kind] = drawn

    def take(self, kind: FaultKind) -> DrawnFault | None:
        """Return the fault of this kind that was kept for the operation, or None. It applies once."""
        return self._kept.pop(kind, None)

    def for_frame(self, consumer: str, shard_id: str) -> DrawnFault | None:
        """Return the random fault of a subscription's next frame."""
        return self._random_faults.for_frame(consumer, shard_id)

    def before_call(self, operation: str) -> None:
        """Raise the planned error of this call: an ApiError, or ConnectionAbortedError for a dropped connection."""
        planned = self._calls.get(operation)
        if planned:
            error = planned.popleft()
            raise error or ConnectionAbortedError(operation)

    def for_entry(self, operation: str) -> str | None:
        """Return the error code planned or drawn for this record of PutRecords, or this handle of an acknowledgement."""
        if self._entries:
            return self._entries.popleft()
        if not self._random_faults.for_entry(FaultKind.PARTIAL, operation):
            return None
        return "ProvisionedThroughputExceededException" if operation == "PutRecords" else "ThrottlingException"

    def check_entry(self, operation: str) -> None:
        """Raise the error planned or drawn for this handle."""
        code = self.for_entry(operation)
        if code is not None:
            raise ApiError(code, "injected")

    def take_redelivery(self) -> bool:
        """Return whether this record is delivered again although it is acknowledged."""
        is_planned = self._redeliveries > 0
        self._redeliveries -= is_planned
        return is_planned or self._random_faults.for_entry(FaultKind.REDELIVER, "AcknowledgeQueueRecords")

    def for_subscription(self, consumer: str, shard_id: str) -> PlannedStreamFault | None:
        """Return the fault planned for this subscription's next frame."""
        for planned in self._streams:
            if planned.matches(consumer, shard_id):
                self._streams.remove(planned)
                return planned
        return None
