"""The heartbeat messages between a subtask and the coordinator of its group, when they are in different processes (W6, W9a).

Each message is complete in itself: it may be lost, delayed or duplicated.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

MAX_MILLIS = 2**62
Millis = Annotated[int, Meta(ge=-MAX_MILLIS, le=MAX_MILLIS)]
Count = Annotated[int, Meta(ge=0, le=2**62)]
Timeout = Annotated[int, Meta(ge=1, le=MAX_MILLIS)]

Status = Literal["ACTIVE", "IDLE", "LEFT"]
Rejection = Literal["STALE_REQUEST", "STALE_GENERATION", "PARALLELISM_MISMATCH"]

MAX_SUBTASKS = 100_000
MAX_KEY_CHARACTERS = 8_192
"""How many characters of shard keys one message carries; a longer list is split over several."""


def to_millis(watermark: int | None) -> int | None:
    """A watermark as a message can carry it. Event times always fit (W12), a bound or lookahead far beyond them need not."""
    return None if watermark is None else min(max(watermark, -MAX_MILLIS), MAX_MILLIS)


class HeartbeatRequest(msgspec.Struct, frozen=True, array_like=True):
    """The whole state of a subtask. Times in epoch ms, timeouts in ms.

    `generation` is 0 until the coordinator assigned one; `request_number` grows with every request. `restored_watermark` is the lowest
    one in the restored state, `global_watermark` the last one known, `awaited_watermark` the global one that a held record waits for.
    `finished_shards` are announced; for `queried_shards` the response says which are finished. `last_start` repeats what the last response
    of the coordinator `coordinator_id` said: this process was alive after that start.
    """

    group: Annotated[str, Meta(min_length=1, max_length=1024)]
    subtask: Annotated[int, Meta(ge=0, lt=MAX_SUBTASKS)]
    parallelism: Annotated[int, Meta(ge=1, le=MAX_SUBTASKS)]
    generation: Count
    request_number: Count
    status: Status
    watermark: Millis | None = None
    restored_watermark: Millis | None = None
    global_watermark: Millis | None = None
    awaited_watermark: Millis | None = None
    finished_shards: tuple[str, ...] = ()
    queried_shards: tuple[str, ...] = ()
    timeout_ms: Timeout = 30_000
    startup_timeout_ms: Timeout = 60_000
    max_shard_watermark: Millis | None = None
    coordinator_id: int = 0
    last_start: Count = 0


class HeartbeatResponse(msgspec.Struct, frozen=True, array_like=True, tag="heartbeat"):
    """The coordinator's response to `request_number`, or (0) an unsolicited notification.

    `coordinator_id` changes when the coordinator restarts. `lowest_awaited` is the lowest global watermark that some subtask waits for,
    `finished_shards` are those of the queried ones that are finished. Rejections: STALE_REQUEST (`last_accepted` is the number of a later
    request of that subtask), STALE_GENERATION, PARALLELISM_MISMATCH. A rejection says how long ago (ms) the process that sent
    `last_accepted` joined, None if this coordinator did not see it, and whether that process left or timed out. `last_start` numbers the
    processes that joined this coordinator.
    """

    coordinator_id: int
    generation: int
    request_number: int
    global_watermark: int | None = None
    lowest_awaited: int | None = None
    lowest_subtask: int | None = None
    timed_out_subtasks: tuple[int, ...] = ()
    finished_shards: tuple[str, ...] = ()
    rejection: Rejection | None = None
    last_accepted: int = 0
    max_shard_watermark: Millis | None = None
    joined_ms_ago: int | None = None
    is_gone: bool = False
    last_start: int = 0
