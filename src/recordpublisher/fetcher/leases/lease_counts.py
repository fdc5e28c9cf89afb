"""LeaseCounts: what one process has done in its group, for its metrics (E11)."""

from collections.abc import Collection, Iterable, Mapping

import msgspec


class LeaseCounts(msgspec.Struct):
    """Counted over all workers that the process has been, one after the other. All are 0 with STATIC assignment.

    - `taken`, `given`: shards that came from and went to others, or to nobody. `given` has no shard that ended.
    - `sealed`: workers of other processes that this one found silent and sealed.
    - `replaced`: how often others have sealed this one: what it had not stored was refused, and is read again.
    - `in_flight`: records that the sink was writing when this process learned that it was sealed.
    - `withheld`: the shards that each other worker should have given up and has not, at the last look; see GroupView.
    - `unowned`: shards that could be read and that nobody reads, at the last look.
    - `unowned_seconds`: for how long this process has seen the longest of them.
    """

    taken: int = 0
    given: int = 0
    sealed: int = 0
    replaced: int = 0
    in_flight: int = 0
    withheld: Mapping[str, Collection[str]] = msgspec.field(default_factory=dict)
    unowned: int = 0
    unowned_seconds: float = 0.0

    def count_sealed(self, workers: int) -> None:
        """Other workers were sealed."""
        self.sealed += workers

    def count_replaced(self, in_flight: int) -> None:
        """Others have sealed this worker, while the sink was writing these records."""
        self.replaced += 1
        self.in_flight += in_flight

    def count_moved(self, taken: int, given: int) -> None:
        """Shards have come and gone."""
        self.taken += taken
        self.given += given

    def observe_withheld(self, withheld: Mapping[str, Collection[str]]) -> None:
        """What others should have given up, at this look."""
        self.withheld = withheld

    def observe_unowned(self, seconds: Iterable[float]) -> None:
        """For how long each unowned shard has been seen."""
        found = list(seconds)
        self.unowned, self.unowned_seconds = len(found), max(found, default=0.0)
