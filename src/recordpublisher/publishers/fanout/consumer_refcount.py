"""ConsumerRefCounts: how many factories of this process use each consumer, so that the last one out deregisters it (F8)."""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConsumerKey:
    """One consumer of one stream at one endpoint."""

    endpoint: str
    stream_arn: str
    name: str


@dataclass(slots=True)
class _RefCount:
    count: int = 0
    is_clean: bool = True


class ConsumerRefCounts:
    """Owns the count of holders for each consumer, across the loops and threads of one process.

    Other processes are not seen: one that deregisters while another still reads makes the other register again (F4).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[ConsumerKey, _RefCount] = {}

    def acquire(self, key: ConsumerKey) -> None:
        """Somebody begins to use the consumer."""
        with self._lock:
            self._counts.setdefault(key, _RefCount()).count += 1

    def release(self, key: ConsumerKey, *, clean: bool) -> bool:
        """Somebody stops; True when that was the last one and all of them stopped cleanly."""
        with self._lock:
            counted = self._counts[key]
            counted.count -= 1
            counted.is_clean = counted.is_clean and clean
            if counted.count > 0:
                return False
            del self._counts[key]
            return counted.is_clean


PROCESS_REF_COUNTS = ConsumerRefCounts()
