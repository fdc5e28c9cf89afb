"""GroupJob: what all processes of a group have in common (E10). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class GroupJob:
    """What a process reads and where it writes. The lease table names it, so that two jobs never share shards by mistake.

    - `streams`: by name, sorted; None: a list that may change while the job runs (S10).
    - `sink`: where it writes to, without secrets: `Sink.destination`.
    - `keeps_positions`: the positions are in the sink, with its rows, and not in the store of the group.
    - `name`: `flink.job.name`; None when it is not set, which contradicts no name.
    """

    streams: tuple[str, ...] | None
    sink: str
    keeps_positions: bool = False
    name: str | None = None

    def contradiction(self, of_group: GroupJob | None) -> str | None:
        """How the group's job differs from that of this process, in words. None: they are the same, or the table does not say."""
        if of_group is None:
            return None
        differences = [
            f"it {theirs}, and this process {ours}"
            for theirs, ours in zip(of_group._words(), self._words(), strict=True)
            if theirs != ours
        ]
        if of_group.name is not None and self.name is not None and of_group.name != self.name:
            differences.insert(0, f"its name is {of_group.name}, and that of this process {self.name}")
        return "; ".join(differences) or None

    def to_json(self) -> dict[str, Any]:
        """A plain dict, without what has its default."""
        streams = {} if self.streams is None else {"streams": self.streams}
        kept = {"keepsPositions": True} if self.keeps_positions else {}
        named = {} if self.name is None else {"name": self.name}
        return {**streams, "sink": self.sink, **kept, **named}

    def _words(self) -> tuple[str, str, str]:
        streams = "a list of streams that may change" if self.streams is None else ", ".join(self.streams)
        place = "in the sink" if self.keeps_positions else "in the store"
        return f"reads {streams}", f"writes to {self.sink}", f"keeps its positions {place}"


class StoredJob(msgspec.Struct, rename="camel"):
    """A job as the lease table has it."""

    sink: str
    streams: tuple[str, ...] | None = None
    keeps_positions: bool = False
    name: str | None = None

    @property
    def job(self) -> GroupJob:
        """The job itself."""
        return GroupJob(self.streams, self.sink, self.keeps_positions, self.name)
