"""CommitCounts: what one process has committed last, for its metrics and its readiness."""

from collections.abc import Sequence

import msgspec

from recordpublisher.publishers.clock import Clock, SystemClock

from ..committing_sink import Staged


class CommitCounts(msgspec.Struct):
    """Of a sink that commits; over all workers that the process has been, one after the other.

    - `files`, `size`: of the last commit that had records, and their bytes; `age_ms`: since it was stored.
    - `records`: how many were written to the sink before its last commit staged them.
    - `undecided`: the entry and its place, while its write has no answer; None: it has one.
    """

    clock: Clock = msgspec.field(default_factory=SystemClock)
    files: int = 0
    size: int = 0
    records: int = 0
    undecided: str | None = None
    _stored: float | None = None

    @property
    def age_ms(self) -> int | None:
        """None: no commit of this process had records."""
        return None if self._stored is None else round((self.clock.monotonic() - self._stored) * 1000)

    def begun(self, entry: str) -> None:
        """An entry is being written."""
        self.undecided = entry

    def decided(self, staged: Sequence[Staged], records: int) -> None:
        """It is stored, with what was staged when so many records were written."""
        self.undecided, self.records = None, records
        if staged:
            self.files, self.size = sum(each.files for each in staged), sum(each.size for each in staged)
            self._stored = self.clock.monotonic()
