"""What a subtask and the coordinator of its group say to each other, where they are apart (W6, W9a).

Each message stands for itself: it may be lost, be late or come twice.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Millis = Annotated[int, Meta(ge=-(2**62), le=2**62)]
Count = Annotated[int, Meta(ge=0, le=2**62)]
Wait = Annotated[int, Meta(ge=1, le=86_400_000)]

Status = Literal["ACTIVE", "IDLE", "LEFT"]
Refusal = Literal["", "OLD", "GENERATION", "PARALLELISM"]

MOST_SUBTASKS = 100_000
MOST_KEY_CHARACTERS = 8_192
"""How many characters of shard keys one message carries; a longer list goes in several."""


class Statement(msgspec.Struct, frozen=True, array_like=True):
    """All that a subtask has to say. Times in epoch ms, patience in ms.

    `generation` is 0 until the coordinator named one, `counter` grows with every statement. `start` is the lowest restored watermark,
    `value` the last global one known, `awaited` the one that a held subtask waits for. `finished` are shards to announce, `asked` are
    shards that it wants to know of, `furthest` is where its furthest shard stands.
    """

    group: Annotated[str, Meta(min_length=1, max_length=1024)]
    subtask: Annotated[int, Meta(ge=0, lt=MOST_SUBTASKS)]
    parallelism: Annotated[int, Meta(ge=1, le=MOST_SUBTASKS)]
    generation: Count
    counter: Count
    status: Status
    watermark: Millis | None = None
    start: Millis | None = None
    value: Millis | None = None
    awaited: Millis | None = None
    finished: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    timeout_ms: Wait = 30_000
    startup_ms: Wait = 60_000
    furthest: Millis | None = None


class Answer(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """What the coordinator says: to the statement `counter`, or (0) without being asked.

    `needed` is the lowest value that somebody waits for, `finished` the shards among those asked about, `coordinator` tells one that was
    restarted from the one before. A refusal is OLD (a later statement of that subtask was taken: `counter`), GENERATION or PARALLELISM.
    """

    coordinator: int
    generation: int
    counter: int
    value: int | None = None
    needed: int | None = None
    holder: int | None = None
    left_out: tuple[int, ...] = ()
    finished: tuple[str, ...] = ()
    refusal: Refusal = ""
    taken: int = 0
    furthest: Millis | None = None
