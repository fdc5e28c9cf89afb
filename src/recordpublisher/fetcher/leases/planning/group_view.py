"""The lease table and the workers' records of one read, and what follows from them for one worker (E5, E6). Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from recordpublisher.fetcher.shards.shard_state import latest

from ..documents.lease_table import LeaseTable
from ..documents.worker_record import WorkerRecord
from ..lease_settings import LeaseSettings
from .lease_balance import balanced_owners
from .shard_loads import weight


@dataclass(frozen=True, slots=True)
class GroupView:
    """A lease table, and the record of each worker, read after the table."""

    table: LeaseTable
    records: Mapping[str, WorkerRecord]

    @property
    def members(self) -> tuple[str, ...]:
        """The workers that shards are planned for: neither sealed, nor leaving, nor asked to leave."""
        members = (name for name, record in self.records.items() if not record.is_sealed and not record.is_leaving)
        return tuple(sorted(set(members) - self.table.drained))

    @property
    def unsealed(self) -> set[str]:
        """The workers that are not sealed."""
        return {name for name, record in self.records.items() if not record.is_sealed}

    @property
    def max_watermark(self) -> int | None:
        """The highest watermark of a shard that an unsealed worker states (W12)."""
        return latest(*(record.max_watermark for record in self.records.values() if not record.is_sealed))

    @property
    def has_handover(self) -> bool:
        """Whether a shard is being transferred between workers. The workers concerned then read the group more often (E5)."""
        unsealed = (record for record in self.records.values() if not record.is_sealed)
        return any(record.released or record.is_leaving for record in unsealed)

    def has_held_besides(self, worker: str) -> bool:
        """Return whether another worker states that it waits for the watermark of the group (E8)."""
        return any(record.is_held and not record.is_sealed for name, record in self.records.items() if name != worker)

    def is_free(self, shard: str) -> bool:
        """Return whether the shard can be taken: no worker has held it yet, or its owner was sealed or has released it.

        An owner without a record may not be sealed, because the records may be slightly old.
        """
        lease = self.table.leases[shard]
        if not self.table.can_be_read(shard):
            return False
        if lease.owner is None:
            return True
        record = self.records.get(lease.owner)
        return record is not None and (record.is_sealed or record.has_released(shard, lease.epoch))

    def shards_of(self, workers: Collection[str]) -> list[str]:
        """Return every shard that can be read and whose lease one of the workers has."""
        leases = self.table.leases.items()
        return [shard for shard, lease in leases if lease.owner in workers and self.table.can_be_read(shard)]

    def free_shards(self) -> list[str]:
        """Return every shard that can be taken."""
        return [shard for shard in self.table.leases if self.is_free(shard)]

    def plan(self) -> dict[str, str]:
        """Return the worker that should have each shard. Shards of a worker that is leaving and not sealed yet are not planned."""
        members = set(self.members)
        owners: dict[str, str | None] = {}
        for shard, lease in self.table.leases.items():
            if self.is_free(shard):
                owners[shard] = None
            elif lease.owner in members and not lease.ended:
                owners[shard] = lease.owner
        return balanced_owners(owners, {shard: weight(self.load_level(shard)) for shard in owners}, members)

    def shards_to_take(
        self, worker: str, plan: Mapping[str, str], free_seconds: Mapping[str, float], settings: LeaseSettings
    ) -> set[str]:
        """Return the free shards that `worker` may take: those that the plan gives it, and those that have been free for too long."""
        patience = settings.patience
        return {shard for shard, seconds in free_seconds.items() if plan.get(shard) == worker or seconds > patience}

    def shards_to_give(self, worker: str, plan: Mapping[str, str], shards: Iterable[str]) -> set[str]:
        """Return the shards among `shards` that another worker should have according to the plan."""
        return {shard for shard in shards if plan.get(shard, worker) != worker}

    def withheld(self, plan: Mapping[str, str], reporter: str) -> dict[str, list[str]]:
        """Return, by worker, the shards that it should have released and has not, although it sends heartbeats (E5).

        These are the shards that another worker should have according to the plan, and all shards of a worker that is leaving or was asked
        to leave. The result has only the shards that `reporter` has to report: exactly one worker reports each.
        """
        found: dict[str, list[str]] = {}
        members, unsealed = self.members, self.unsealed
        for shard, lease in self.table.leases.items():
            owner = lease.owner
            if owner is None or owner not in unsealed or reporter != _first_besides(owner, members):
                continue
            is_due = owner not in members or self.shards_to_give(owner, plan, [shard])
            if is_due and not lease.ended and not self.is_free(shard):
                found.setdefault(owner, []).append(shard)
        return found

    def load_level(self, shard: str) -> int:
        """Return the load level that the owner of the shard states, or 0 if it states none."""
        owner = self.table.leases[shard].owner
        record = None if owner is None else self.records.get(owner)
        return 0 if record is None else record.load_level(shard)


def _first_besides(worker: str, members: Iterable[str]) -> str | None:
    return next((member for member in members if member != worker), None)
