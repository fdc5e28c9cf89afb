"""Who read each shard when, from what the processes of a group wrote. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from groups.worker_group import Written


class Move(NamedTuple):
    """A shard went from one process to another: the last record of the one, the first one of the other (seconds since the epoch)."""

    shard: str
    giver: str
    taker: str
    last: float
    first: float

    @property
    def seconds(self) -> float:
        """For how long nobody read the shard, at most: it also had no records for a part of this time."""
        return self.first - self.last


def moves(written: Mapping[str, Iterable[Written]]) -> list[Move]:
    """Each change of a shard's reader, in order. `written`: what each process wrote."""
    found, last = [], {}
    for seconds, shard, name in sorted(
        (each.seconds, each.shard, name) for name, lines in written.items() for each in lines
    ):
        giver, before = last.get(shard, (name, seconds))
        if giver != name:
            found.append(Move(shard, giver, name, before, seconds))
        last[shard] = name, seconds
    return found
