"""What planning asks of Kinesis, answered on the driver."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ....fetcher.discovery import Discovery
from ....publishers import property_table as table
from ....publishers.clock import SystemClock
from ....publishers.errors import RecordPublisherError
from ....publishers.initial_position import initial_position
from ....publishers.positions import StartingPosition
from ....publishers.properties import Properties
from ....publishers.shards import Shard
from ...lister import StreamLister, stream_names
from ...manager import load_registry
from .consumers import registered_consumers
from .options import SparkOptions
from .worker import worker_loop


class KinesisService:
    """The Service port. Owns the last listing of each stream, kept fresh in the background, and the consumers' ARNs."""

    def __init__(self, options: SparkOptions) -> None:
        self._options = options
        self._names = stream_names(options.streams)
        publisher = load_registry().publishers.get(options.publisher, table.RECORD_PUBLISHER.key)
        factory = publisher(options.properties)  # type: ignore[call-arg]
        self._lister = StreamLister(factory, options.properties, self._names, SystemClock())
        self._listed: dict[str, list[Shard]] = {}
        self._arns: Mapping[str, str] | None = None
        self._is_looking = False

    def list_shards(self, stream: str) -> list[Shard]:
        """Every listed shard, with the retries of ListShards. Raises: StreamNotFoundError, KinesisError."""
        return worker_loop().run(self._lister.list_shards(stream.rpartition("/")[2]))

    def server_time_ms(self, stream: str) -> int:
        """The service's clock, epoch ms."""
        return worker_loop().run(self._lister.server_time_ms(stream.rpartition("/")[2]))

    def starting_position(self) -> StartingPosition:
        """By `flink.stream.initpos`."""
        return initial_position(self._options.properties)

    def consumer_arns(self) -> Mapping[str, str]:
        """Registers at the first call, and never deregisters: Spark does not say when a query has ended for good (F8)."""
        if self._arns is None:
            options = self._options
            self._arns = registered_consumers(options.streams, options.properties) if options.is_fan_out else {}
        return self._arns

    def newly_listed(self) -> list[Shard]:
        """The newest listing; the first call starts to look in the background."""
        if not self._is_looking:
            self._is_looking = True
            worker_loop().start(self._look())
        return [shard for shards in list(self._listed.values()) for shard in shards]

    async def _look(self) -> None:
        interval = self._options.properties.value(table.DISCOVERY_INTERVAL)
        discovery = Discovery(self._lister, list(self._names), interval)
        try:
            for shard in await discovery.initial():
                self._listed.setdefault(shard.stream, []).append(shard)
        except RecordPublisherError:
            await asyncio.sleep(0)  # the loop below looks again, and says what is wrong
        await discovery.run(self._found)

    async def _found(self, stream: str, shards: list[Shard]) -> None:
        self._listed[stream] = shards


def task_properties(properties: Properties, arns: Mapping[str, str]) -> Properties:
    """What tasks read with: they never register, the driver did."""
    return properties.merged({**arns, table.REGISTRATION.key: "NONE"}) if arns else properties


def check_job(options: SparkOptions) -> None:
    """Every check that needs no call (C2). Raises: ConfigurationError."""
    registry = load_registry()
    publisher = registry.publishers.get(options.publisher, table.RECORD_PUBLISHER.key)
    publisher.check(options.properties, list(options.streams))
    initial_position(options.properties)
