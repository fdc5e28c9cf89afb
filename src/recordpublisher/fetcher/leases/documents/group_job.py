"""The job that all processes of a group have in common (E10). Pure."""

from __future__ import annotations

import msgspec


class GroupJob(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The job of a process: what it reads and where it writes. The lease table contains it, so that two jobs never share shards by mistake.

    - `sink`: the destination without secrets (`Sink.destination`).
    - `streams`: names of the streams, sorted; None if the list may change while the job runs (S10).
    - `keeps_positions`: whether the positions are stored in the sink with its rows, and not in the group's store.
    - `name`: `flink.job.name`, or None if it is not set. None is compatible with every name.
    """

    sink: str
    streams: tuple[str, ...] | None = None
    keeps_positions: bool = False
    name: str | None = None

    def contradiction(self, of_group: GroupJob | None) -> str | None:
        """Return how the group's job differs from the job of this process, in words.

        Return None if they are the same, or if the table names no job.
        """
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

    def _words(self) -> tuple[str, str, str]:
        streams = "a list of streams that may change" if self.streams is None else ", ".join(self.streams)
        place = "in the sink" if self.keeps_positions else "in the store"
        return f"reads {streams}", f"writes to {self.sink}", f"keeps its positions {place}"
