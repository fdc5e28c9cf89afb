"""ConsumerRefCounts: how many factories of this process use each consumer; the last one deregisters it (F8)."""

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
    """Owns the reference count of each consumer, across the event loops and threads of one process.

    Other processes are not counted. If one deregisters a consumer that another still reads, the other registers it again (F4).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[ConsumerKey, _RefCount] = {}

    def acquire(self, key: ConsumerKey) -> None:
        """Count one more user of the consumer."""
        with self._lock:
            self._counts.setdefault(key, _RefCount()).count += 1

    def release(self, key: ConsumerKey, *, clean: bool) -> bool:
        """Count one user less. Return True when it was the last one and all of them stopped cleanly."""
        with self._lock:
            counted = self._counts[key]
            counted.count -= 1
            counted.is_clean = counted.is_clean and clean
            if counted.count > 0:
                return False
            del self._counts[key]
            return counted.is_clean


PROCESS_REF_COUNTS = ConsumerRefCounts()
