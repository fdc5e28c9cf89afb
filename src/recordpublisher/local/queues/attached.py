"""Attached: a queue or a channel of a stream. AttachedTable: those of the account, by name and by ARN."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from uuid import uuid4

from ..api_errors import in_use, not_found
from ..clock import Clock
from ..streams.stream import Stream
from ..streams.tags import TagSet


@dataclass(slots=True, eq=False, kw_only=True)
class Attached:
    """One queue or channel. `settings` are as its description shows them; the status follows the clock."""

    name: str
    arn: str
    stream: Stream
    created_ms: int
    settings: dict[str, Any]
    busy_status: str
    busy_until_ms: int
    tags: TagSet = field(default_factory=TagSet)
    policy: str | None = None

    @property
    def id(self) -> str:
        """The generated end of the ARN."""
        return self.arn.rpartition("/")[2]

    def status(self, now_ms: int) -> str:
        """CREATING, UPDATING, DELETING or ACTIVE at that time."""
        return self.busy_status if now_ms < self.busy_until_ms or self.busy_status == "DELETING" else "ACTIVE"

    def is_gone(self, now_ms: int) -> bool:
        """Whether a deletion is complete."""
        return self.busy_status == "DELETING" and now_ms >= self.busy_until_ms

    def require_active(self, now_ms: int) -> None:
        """Raise ResourceInUseException unless it can be changed now."""
        if self.status(now_ms) != "ACTIVE":
            raise in_use(f"{self.arn} not ACTIVE, instead in state {self.status(now_ms)}.")

    def set_busy(self, status: str, until_ms: int) -> None:
        """Show `status` until then."""
        self.busy_status, self.busy_until_ms = status, until_ms


T = TypeVar("T", bound=Attached)


class AttachedTable(Generic[T]):
    """Owns the queues, or the channels, of the account. Names are unique; the id in an ARN is generated."""

    def __init__(self, kind: str, make: Callable[..., T], clock: Clock, arn_prefix: str) -> None:
        self._kind = kind
        self._make = make
        self._clock = clock
        self._arn_prefix = arn_prefix
        self._by_arn: dict[str, T] = {}

    def all(self, stream: Stream | None = None) -> list[T]:
        """Those that exist now, of all streams or of one, in the order of their names."""
        now = self._clock.now_ms()
        self._by_arn = {arn: each for arn, each in self._by_arn.items() if not each.is_gone(now)}
        return sorted((e for e in self._by_arn.values() if stream in (None, e.stream)), key=lambda each: each.name)

    def create(self, name: str, stream: Stream, settings: dict[str, Any], tags: dict[str, str], delay_ms: int) -> T:
        """Add one, which is CREATING for `delay_ms`; raises ResourceInUseException for a taken name, and as `TagSet.add`."""
        if any(each.name == name for each in self.all()):
            raise in_use(f"The {self._kind} {name} already exists.")
        now = self._clock.now_ms()
        arn = f"{self._arn_prefix}:{self._kind}/{uuid4().hex}"
        busy = {"busy_status": "CREATING", "busy_until_ms": now + delay_ms, "tags": TagSet(tags)}
        return self.add(self._make(name=name, arn=arn, stream=stream, created_ms=now, settings=settings, **busy))

    def add(self, made: T) -> T:
        """Add one that was made before."""
        self._by_arn[made.arn] = made
        return made

    def find(self, arn: str, refused: Collection[str] = ()) -> T:
        """Return the one with that ARN; raises ResourceNotFoundException, also in one of the `refused` states."""
        self.all()
        found = self._by_arn.get(arn)
        if found is None:
            raise not_found(f"The {self._kind} {arn} does not exist.")
        status = found.status(self._clock.now_ms())
        if status in refused:
            raise not_found(f"The {self._kind} {arn} is {status}.")
        return found
