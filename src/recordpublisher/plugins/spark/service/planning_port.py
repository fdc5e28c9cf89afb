"""PlanningPort: the port through which the driver calls Kinesis."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from recordpublisher.fetcher.checkpoints.snapshot import RestoredState
from recordpublisher.fetcher.shards.retention_check import Gap
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.shards import Shard


class PlanningPort(Protocol):
    """Calls to Kinesis that planning needs.

    Blocking calls are made when a query starts, and when an AvailableNow run would end; never in between. They have their own retries;
    after these `QueryPlanner` waits for a service that is away, and every other error ends the query.
    """

    def list_shards(self, stream: str) -> list[Shard]:
        """Every listed shard."""

    def list_restored(
        self, streams: Collection[str], restored: RestoredState
    ) -> tuple[Sequence[Shard], frozenset[str]]:
        """Every listed shard of `streams` (names), and which restored shards, by `Shard.key`, are not listed and have expired (S2, S5)."""

    def server_time_ms(self, stream: str) -> int:
        """The service's time, epoch ms (P3)."""

    def oldest_retained_ms(self, stream: str) -> int | None:
        """The arrival time before which records are past retention, epoch ms; None when the service does not tell (S5)."""

    def retention_ms(self, stream: str) -> int | None:
        """How long a stream (name) keeps its records, as the background discovery last saw it; None while not known. Never blocks."""

    def gap_after(self, shard: Shard, state: ShardState, seen_ms: int) -> Gap:
        """Whether records behind a state were lost; `seen_ms` as in `fetcher.shards.retention_check.may_have_gap` (S5)."""

    def consumer_arns(self) -> Mapping[str, str]:
        """The registered fan-out consumer of each stream; registers once (F8). Empty when the job polls."""

    def discovered_shards(self) -> list[Shard]:
        """The shards that the background discovery has listed so far; never blocks or raises (S3)."""

    def watch(self, shards: Mapping[Shard, ShardState]) -> None:
        """Watch in the background for anything new after these states. A running watch continues unchanged."""

    def wait_for_new_data(self, seconds: float) -> bool:
        """Wait up to `seconds` for a record, end or error of a watched shard; returns whether there was one since the watch began."""

    def finds_nothing(self, seconds: float) -> bool:
        """Wait up to `seconds` for a first look at every watched shard; returns whether that was done and found nothing new."""

    def tip_ms(self, key: str) -> int | None:
        """When a watch last found nothing new in a shard (`Shard.key`), epoch ms; None: it has not."""

    def stop_watching(self) -> None:
        """End the watch."""
