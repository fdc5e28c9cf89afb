"""The heartbeat messages between a subtask and its group's coordinator, if they run in different processes (W6, W9a).

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
"""How many characters of shard keys one message carries at most. A longer list is split over several messages."""


def to_millis(watermark: int | None) -> int | None:
    """Return a watermark in the range that a message can carry.

    Event times always fit (W12). A bound or a lookahead far beyond them need not.
    """
    return None if watermark is None else min(max(watermark, -MAX_MILLIS), MAX_MILLIS)


class HeartbeatRequest(msgspec.Struct, frozen=True, array_like=True):
    """The whole state of a subtask. Times are in epoch ms, timeouts in ms.

    - `generation`: 0 until the coordinator has assigned one.
    - `request_number`: grows with every request.
    - `restored_watermark`: the lowest watermark in the restored state.
    - `global_watermark`: the last known global watermark.
    - `awaited_watermark`: the global watermark that a held record waits for.
    - `finished_shards`: shards that the subtask announces as finished.
    - `queried_shards`: shards for which the response lists the finished ones.
    - `last_start`: the value from the last response of the coordinator `coordinator_id`. It proves that this process was alive after that
      start.
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
    """The coordinator's response to `request_number`, or an unsolicited notification if that is 0.

    - `coordinator_id`: changes when the coordinator restarts.
    - `lowest_awaited`: the lowest global watermark that any subtask awaits.
    - `finished_shards`: the queried shards that are finished.
    - `rejection`: STALE_REQUEST (a later request of that subtask was accepted), STALE_GENERATION or PARALLELISM_MISMATCH. The next three
      fields belong to a rejection.
    - `last_accepted`: the number of the last accepted request of the subtask.
    - `joined_ms_ago`: how long ago (ms) the process that sent `last_accepted` joined. None if this coordinator did not see it join.
    - `is_gone`: whether that process has left or timed out.
    - `last_start`: number of processes that have joined this coordinator.
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
