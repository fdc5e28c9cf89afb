"""CommitCounts: what one process has committed last, for its metrics and its readiness."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..committing_sink import Staged


@dataclass(slots=True)
class CommitCounts:
    """Of a sink that commits; over all workers that the process has been, one after the other.

    - `files`, `size`: of the last commit that had files, and their bytes.
    - `records`: how many were written to the sink before its last commit staged them.
    - `undecided`: the entry and its place, while its write has no answer; None: it has one.
    """

    files: int = 0
    size: int = 0
    records: int = 0
    undecided: str | None = None

    def begun(self, entry: str) -> None:
        """An entry is being written."""
        self.undecided = entry

    def decided(self, staged: Sequence[Staged], records: int) -> None:
        """It is stored, with what was staged when so many records were written."""
        self.undecided, self.records = None, records
        if files := sum(each.files for each in staged):
            self.files, self.size = files, sum(each.size for each in staged)
