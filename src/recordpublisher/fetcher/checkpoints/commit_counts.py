"""Keeps numbers on the last commit of a process, for its metrics and its readiness."""

from collections.abc import Sequence

import msgspec

from recordpublisher.publishers.clock import Clock, SystemClock

from ..committing_sink import Staged


class CommitCounts(msgspec.Struct):
    """Numbers on the commits of a `CommittingSink`. In a group they cover all workers that this process has been, one after another.

    - `files`, `size`: number of files of the last commit that had records, and their bytes.
    - `age_ms`: time since that commit was stored.
    - `records`: number of records written to the sink before its last commit staged them.
    - `undecided`: the entry and its place, while the write of the entry has no answer; otherwise None.
    """

    clock: Clock = msgspec.field(default_factory=SystemClock)
    files: int = 0
    size: int = 0
    records: int = 0
    undecided: str | None = None
    _stored: float | None = None

    @property
    def age_ms(self) -> int | None:
        """Time since the last commit with records was stored (ms); None if no commit of this process had records."""
        return None if self._stored is None else round((self.clock.monotonic() - self._stored) * 1000)

    def begun(self, entry: str) -> None:
        """Note that an entry is being written."""
        self.undecided = entry

    def decided(self, staged: Sequence[Staged], records: int) -> None:
        """Note that the entry is stored, with what was staged when `records` records had been written."""
        self.undecided, self.records = None, records
        if staged:
            self.files, self.size = sum(each.files for each in staged), sum(each.size for each in staged)
            self._stored = self.clock.monotonic()
