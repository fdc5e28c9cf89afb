"""LeaseSettings: the times of one worker, by its own lease duration, and positions in a part. What must be equal is in `GroupJob`."""

from __future__ import annotations

from dataclasses import dataclass

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.config_fields import of_property, values_of
from recordpublisher.publishers.properties.groups.discovery_and_state import LEASE_DURATION
from recordpublisher.publishers.properties.groups.values_and_time import TRACKER_TIMEOUT
from recordpublisher.publishers.properties.properties import Properties

from .documents.position_part import SHARDS_PER_PART

HANDOVER_SECONDS = 0.2
"""Between two looks at the group while shards move (E5)."""
ANNOUNCE_SECONDS = 5.0
"""For how long a worker that is to leave reads on, at most, so that the others know of it (E5)."""
HELD_SECONDS = 1.0
"""Between two heartbeats, and two looks, while a shard waits for the watermark of the group (E8)."""
RETRY_SECONDS = 0.5
"""Between two heartbeats while none is confirmed (E4)."""


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """`duration`: a worker whose heartbeat stands for this time (seconds) is sealed. `shards_per_part`: positions in a part (E2).

    `tracker_timeout`: for how long a sealed worker may hold the watermark of the group (E8).
    """

    duration: float = of_property(LEASE_DURATION, 1000)
    tracker_timeout: float = 60.0
    shards_per_part: int = SHARDS_PER_PART

    @classmethod
    def of(cls, properties: Properties, shards_per_part: int) -> LeaseSettings:
        """From the job's properties. Raises: ConfigurationError.

        A sealed worker holds the watermark until its shards are taken: the tracker timeout must be longer than that (E8).
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
        """Between two heartbeats, and between two looks at the group."""
        return self.duration / 4

    @property
    def announce_seconds(self) -> float:
        """From the announcement of a worker that it will leave until it gives its shards up: others look once in an interval."""
        return min(self.interval, ANNOUNCE_SECONDS)

    @property
    def patience(self) -> float:
        """For how long (seconds) a free shard is left to the worker of the plan: one that died is sealed meanwhile, and replaced (E6)."""
        return self.duration * 2

    @property
    def write_seconds(self) -> float:
        """For how long after a heartbeat was sent the sink may be written to (E4)."""
        return self.duration * 2 / 3
