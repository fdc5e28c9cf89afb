"""The settings of one worker in its group: its times, which follow from its lease duration, and how many positions one document has.

Settings that must be equal for all workers are in `GroupJob`.
"""

from __future__ import annotations

from dataclasses import dataclass

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.config_fields import of_property, values_of
from recordpublisher.publishers.properties.job_properties import LEASE_DURATION, TRACKER_TIMEOUT
from recordpublisher.publishers.properties.properties import Properties

from .position_documents import SHARDS_PER_PART

HANDOVER_SECONDS = 0.2
"""Seconds between two reads of the group's documents while shards are transferred between workers."""
ANNOUNCE_SECONDS = 5.0
"""How long a worker that leaves continues to read at most (seconds). In this time the other workers notice its announcement."""
LEAVING_POLL_SECONDS = 0.5
"""Seconds between two reads of the group's documents by a worker that has announced that it will leave."""
HELD_POLL_SECONDS = 1.0
"""Seconds between two reads of the group's documents while alignment holds back a shard of the worker.

Each other worker then sends a heartbeat within a second after its own watermark has changed.
"""
RETRY_SECONDS = 0.5
"""Seconds between two heartbeats while none is confirmed."""


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """The times of one worker in seconds, and the size of the documents with its positions.

    - `duration`: a worker whose heartbeat does not change for this time is sealed (declared dead).
    - `tracker_timeout`: how long a sealed worker may hold back the watermark of the group.
    - `shards_per_part`: number of positions in one document, a part of the worker's positions.
    """

    duration: float = of_property(LEASE_DURATION, 1000)
    tracker_timeout: float = 60.0
    shards_per_part: int = SHARDS_PER_PART

    @classmethod
    def of(cls, properties: Properties, shards_per_part: int) -> LeaseSettings:
        """Read the settings from the job's properties.

        A sealed worker holds back the watermark until other workers have acquired its shards. They need up to twice the lease duration.

        Raises: ConfigurationError if the tracker timeout is less than twice the lease duration.
        """
        duration_ms, timeout_ms = properties.value(LEASE_DURATION), properties.value(TRACKER_TIMEOUT)
        if TRACKER_TIMEOUT.key not in properties:
            timeout_ms = max(timeout_ms, 3 * duration_ms)
        if timeout_ms < 2 * duration_ms:
            valid = f"at least {2 * duration_ms}, twice {LEASE_DURATION.key}"
            raise ConfigurationError(TRACKER_TIMEOUT.key, timeout_ms, valid)
        return cls(tracker_timeout=timeout_ms / 1000, shards_per_part=shards_per_part, **values_of(cls, properties))

    @property
    def interval(self) -> float:
        """Seconds between two heartbeats, and between two reads of the group's documents."""
        return self.duration / 4

    @property
    def announce_seconds(self) -> float:
        """Seconds from a worker's announcement that it will leave until it releases its shards.

        That is one interval, in which every other worker reads the announcement, but at most `ANNOUNCE_SECONDS`.
        """
        return min(self.interval, ANNOUNCE_SECONDS)

    @property
    def reserved_seconds(self) -> float:
        """How long a free shard is reserved for the worker that should have it (seconds). After that any worker may acquire it.

        If that worker has died, it is declared dead within this time, and another worker should have the shard.
        """
        return self.duration * 2

    @property
    def write_seconds(self) -> float:
        """Seconds after the sending of a heartbeat for which the process may write to its sink."""
        return self.duration * 2 / 3
