"""The port through which planning asks Kinesis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ....publishers.positions import StartingPosition
from ....publishers.shards import Shard


class Service(Protocol):
    """What planning asks; synchronous and with retries of its own, since an exception on the driver ends the query at once."""

    def list_shards(self, stream: str) -> list[Shard]:
        """Every listed shard."""
        ...

    def server_time_ms(self, stream: str) -> int:
        """The service's clock, epoch ms (P3)."""
        ...

    def starting_position(self) -> StartingPosition:
        """Where a new job starts, by its properties."""
        ...

    def consumer_arns(self) -> Mapping[str, str]:
        """The registered fan-out consumer of each stream; registers once (F8). Empty when the job polls."""
        ...

    def newly_listed(self) -> list[Shard]:
        """The last answer of the discovery in the background; never waits, never raises (S3)."""
        ...
