"""The port through which planning asks Kinesis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard


class PlanningService(Protocol):
    """What planning asks. Calls that wait have retries of their own, since an exception on the driver ends the query at once; they are
    made when a query starts (or an AvailableNow run would end), never while it runs."""

    def list_shards(self, stream: str) -> list[Shard]:
        """Every listed shard."""
        ...

    def server_time_ms(self, stream: str) -> int:
        """The service's clock, epoch ms (P3)."""
        ...

    def oldest_retained_ms(self, stream: str) -> int | None:
        """The arrival time before which the service has forgotten records, epoch ms; None when nobody says (S5)."""
        ...

    def starting_position(self) -> StartingPosition:
        """Where a new job starts, by its properties."""
        ...

    def consumer_arns(self) -> Mapping[str, str]:
        """The registered fan-out consumer of each stream; registers once (F8). Empty when the job polls."""
        ...

    def discovered_shards(self) -> list[Shard]:
        """The last answer of the discovery in the background; never waits, never raises (S3)."""
        ...

    def watch(self, shards: Mapping[Shard, ShardState]) -> None:
        """Look in the background whether anything comes to these shards behind these states; a watch that is on goes on as it is."""
        ...

    def wait_for_new_data(self, seconds: float) -> bool:
        """Whether a watched shard gave a record, ended, or cannot be read; waits so long for it. Once true, true until `stop_watching`."""
        ...

    def stop_watching(self) -> None:
        """Watch no more."""
        ...
