"""LeaseSettings: the times of one worker, by its own lease duration, and positions in a part. What must be equal is in `GroupJob`."""

from dataclasses import dataclass

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

    duration: float = 20.0
    tracker_timeout: float = 60.0
    shards_per_part: int = 16

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
