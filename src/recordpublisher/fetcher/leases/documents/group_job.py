"""GroupJob: what all processes of a group have in common (E10). Pure."""

from __future__ import annotations

import msgspec


class GroupJob(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What a process reads and where it writes. The lease table names it, so that two jobs never share shards by mistake.

    - `sink`: where it writes to, without secrets: `Sink.destination`.
    - `streams`: by name, sorted; None: a list that may change while the job runs (S10).
    - `keeps_positions`: the positions are in the sink, with its rows, and not in the store of the group.
    - `name`: `flink.job.name`; None when it is not set, which contradicts no name.
    """

    sink: str
    streams: tuple[str, ...] | None = None
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

    def _words(self) -> tuple[str, str, str]:
        streams = "a list of streams that may change" if self.streams is None else ", ".join(self.streams)
        place = "in the sink" if self.keeps_positions else "in the store"
        return f"reads {streams}", f"writes to {self.sink}", f"keeps its positions {place}"
