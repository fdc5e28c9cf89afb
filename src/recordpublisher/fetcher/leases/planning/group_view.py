"""GroupView: the lease table and the workers' records as one read found them, and what follows for one worker (E5, E6). Pure."""

from collections.abc import Iterable, Mapping
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
        """The workers that shards are planned for: neither sealed nor leaving, nor asked to leave."""
        members = (name for name, record in self.records.items() if not record.is_sealed and not record.is_leaving)
        return tuple(sorted(set(members) - self.table.drained))

    @property
    def unsealed(self) -> set[str]:
        """The workers that nobody has sealed."""
        return {name for name, record in self.records.items() if not record.is_sealed}

    @property
    def max_watermark(self) -> int | None:
        """The highest watermark of a shard that a worker states which nobody has sealed (W12)."""
        return latest(*(record.max_watermark for record in self.records.values() if not record.is_sealed))

    @property
    def has_handover(self) -> bool:
        """Whether a shard is on its way from one worker to another: then those concerned look more often (E5)."""
        unsealed = (record for record in self.records.values() if not record.is_sealed)
        return any(record.released or record.is_leaving for record in unsealed)

    def is_free(self, shard: str) -> bool:
        """Whether the shard can be taken: nobody had it yet, or its owner was sealed or has released it.

        An owner without a record is not known to be sealed: the records may be slightly old.
        """
        lease = self.table.leases[shard]
        if not self.table.can_be_read(shard):
            return False
        if lease.owner is None:
            return True
        record = self.records.get(lease.owner)
        return record is not None and (record.is_sealed or record.has_released(shard, lease.epoch))

    def free_shards(self) -> list[str]:
        """Every shard that can be taken."""
        return [shard for shard in self.table.leases if self.is_free(shard)]

    def plan(self) -> dict[str, str]:
        """The worker that should have each shard. The shards of a worker that is leaving, and not sealed yet, are not planned."""
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
        """The free shards that `worker` may take: those that the plan gives it, and those that nobody took for too long."""
        patience = settings.patience
        return {shard for shard, seconds in free_seconds.items() if plan.get(shard) == worker or seconds > patience}

    def shards_to_give(self, worker: str, plan: Mapping[str, str], shards: Iterable[str]) -> set[str]:
        """Those of its `shards` that another worker should have by the plan."""
        return {shard for shard in shards if plan.get(shard, worker) != worker}

    def withheld(self, plan: Mapping[str, str], reporter: str) -> dict[str, list[str]]:
        """The shards, by worker, that it should have given up and has not, although it sends heartbeats (E5).

        Those that another worker should have by the plan, and all shards of one that is leaving or was asked to leave. Only those that
        `reporter` has to report: of all workers that could see it, one does.
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
        """The load level that the owner of the shard states."""
        owner = self.table.leases[shard].owner
        record = None if owner is None else self.records.get(owner)
        return 0 if record is None else record.load_level(shard)


def _first_besides(worker: str, members: Iterable[str]) -> str | None:
    return next((member for member in members if member != worker), None)
