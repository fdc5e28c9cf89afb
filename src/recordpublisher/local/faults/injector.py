"""The one seam for making the endpoint misbehave: consulted per call, per put record and per event frame."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from ..api_errors import ApiError
from .kinds import FaultKind
from .random_faults import Chance, Drawn
from .rules import FaultRule, rules_of


class StreamFault(Enum):
    """What can happen to a subscription."""

    CUT = "half a frame, then the connection breaks"
    TRUNCATE = "half a frame, then a valid end of the answer: clients see a clean end"
    END = "a clean end between two frames, long before the five minutes are over"
    CORRUPT = "a whole frame whose CRC is wrong"
    ERROR = "an error event, then the end"
    SILENT = "no byte any more, the connection stays"


@dataclass(frozen=True, slots=True)
class PlannedStreamFault:
    """A fault for one subscription; a None matches every shard or consumer."""

    fault: StreamFault
    shard_id: str | None = None
    consumer: str | None = None
    code: str = "InternalFailureException"

    def hits(self, consumer: str, shard_id: str) -> bool:
        """Whether this subscription is meant."""
        return self.consumer in (None, consumer) and self.shard_id in (None, shard_id)


class Faults:
    """Owns the faults that are planned and hands each of them out once, and the dice for those that are not.

    Whoever plans one wakes the subscriptions.
    """

    def __init__(self) -> None:
        self.iterator_round = 0
        self.listing_age_ms = 0
        self._chance = Chance()
        self._calls: dict[str, deque[ApiError | None]] = {}
        self._entries: deque[str] = deque()
        self._streams: list[PlannedStreamFault] = []
        self._wake: Callable[[], None] = lambda: None

    def on_plan(self, wake: Callable[[], None]) -> None:
        """Call `wake` whenever a fault for subscriptions is planned."""
        self._wake = wake

    # --- planning

    def fail_next(
        self, operation: str, code: str, count: int = 1, *, message: str = "injected", status: int = 400
    ) -> None:
        """Answer the next `count` calls of the operation ("GetRecords") with the error `code`."""
        self._calls.setdefault(operation, deque()).extend([ApiError(code, message, status)] * count)

    def drop_next(self, operation: str, count: int = 1) -> None:
        """Break the connection of the next `count` calls of the operation without an answer."""
        self._calls.setdefault(operation, deque()).extend([None] * count)

    def fail_entries(self, count: int, code: str = "ProvisionedThroughputExceededException") -> None:
        """Refuse the next `count` records of PutRecords, one by one, as a partial failure."""
        self._entries.extend([code] * count)

    def expire_iterators(self) -> None:
        """Make every iterator handed out so far expire now."""
        self.iterator_round += 1

    def hit_subscription(
        self,
        fault: StreamFault,
        *,
        shard_id: str | None = None,
        consumer: str | None = None,
        code: str = "InternalFailureException",
    ) -> None:
        """Do this to one open subscription at once, or to the next one that matches."""
        self._streams.append(PlannedStreamFault(fault, shard_id, consumer, code))
        self._wake()

    def at_random(self, rules: str | Sequence[FaultRule], seed: int = 0) -> None:
        """From now on faults strike by these rules, drawn with `seed`; counts begin anew. Raises: ConfigurationError."""
        self._chance = Chance(rules_of(rules) if isinstance(rules, str) else rules, seed)

    def quiet(self) -> Counter[FaultKind]:
        """No more faults at random; answers how many of each kind there were."""
        counts, self._chance = self._chance.counts, Chance()
        return counts

    # --- asking

    @property
    def counts(self) -> Counter[FaultKind]:
        """How many faults of each kind were drawn so far."""
        return self._chance.counts

    def for_call(self, operation: str, target: Callable[[], str]) -> Drawn | None:
        """Return what is drawn for this call."""
        return self._chance.for_call(operation, target)

    def answered(self, operation: str, target: Callable[[], str]) -> None:
        """Hear that a call was answered well."""
        self._chance.answered(operation, target)

    def for_frame(self, consumer: str, shard_id: str) -> Drawn | None:
        """Return what is drawn for a subscription's next frame."""
        return self._chance.for_frame(consumer, shard_id)

    def before_call(self, operation: str) -> None:
        """Raise what is planned for this call: an ApiError, or ConnectionAbortedError for a dropped connection."""
        planned = self._calls.get(operation)
        if planned:
            error = planned.popleft()
            raise error or ConnectionAbortedError(operation)

    def for_entry(self) -> str | None:
        """Return the error code planned or drawn for this record of PutRecords."""
        if self._entries:
            return self._entries.popleft()
        return "ProvisionedThroughputExceededException" if self._chance.for_entry() else None

    def for_subscription(self, consumer: str, shard_id: str) -> PlannedStreamFault | None:
        """Return the fault planned for this subscription's next frame."""
        for planned in self._streams:
            if planned.hits(consumer, shard_id):
                self._streams.remove(planned)
                return planned
        return None
