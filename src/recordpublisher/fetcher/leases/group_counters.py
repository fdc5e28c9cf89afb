"""Counters of a process in its group, in a small module of their own, because every job imports it and few jobs have a group."""

from collections.abc import Collection, Iterable, Mapping

import msgspec


class GroupCounters(msgspec.Struct):
    """Counters over all workers that the process has been, one after another. All are 0 for a job that runs alone.

    - `taken`, `given`: shards that this process acquired and released. `given` does not count shards that ended.
    - `sealed`: workers of other processes that this process found silent and declared dead.
    - `replaced`: how often other workers have sealed this process's worker. The records after its last stored positions are read again.
    - `in_flight`: records being written, and running calls of user code, when this process learned that its worker was sealed.
    - `withheld`: the shards that each worker should have released, at the last read of the group (`GroupView.withheld`).
    - `unowned`: number of readable shards without a reader at the last read of the group: no worker owned the shard, or its owner had sent
      no heartbeat for half of its lease.
    - `unowned_seconds`: the longest time for which this process has seen such a shard without a reader.
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
        """Count other workers that were declared dead (sealed)."""
        self.sealed += workers

    def count_replaced(self, in_flight: int) -> None:
        """Count one replacement of this process's worker: other workers have declared it dead (sealed it).

        `in_flight`: number of records being written and of running calls of user code.
        """
        self.replaced += 1
        self.in_flight += in_flight

    def count_moved(self, taken: int, given: int) -> None:
        """Count shards that were acquired and released."""
        self.taken += taken
        self.given += given

    def set_withheld(self, withheld: Mapping[str, Collection[str]]) -> None:
        """Set `withheld` to the result of the last read of the group."""
        self.withheld = withheld

    def set_unowned(self, seconds: Iterable[float]) -> None:
        """Set `unowned` and `unowned_seconds` to the result of the last read of the group.

        `seconds`: how long this process has seen each unowned shard without a reader.
        """
        found = list(seconds)
        self.unowned, self.unowned_seconds = len(found), max(found, default=0.0)
