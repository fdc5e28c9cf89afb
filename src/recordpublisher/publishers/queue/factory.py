"""QueueFactory: makes the receivers of a queue, and creates the queue; and the checks of `doctor`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..base import Checks, RecordPublisherFactory, check_clock
from ..clock import Clock, SystemClock
from ..errors import ConfigurationError, RecordPublisherError, ResourceInUseError
from ..initial_position import initial_position
from ..kinesis import endpoint_of, region_of, run_sync
from ..positions import StartingPosition
from ..properties.groups.access import ENDPOINT, REQUEST_TIMEOUT
from ..properties.groups.publisher import INITIAL_POSITION
from ..properties.groups.queue import (
    DUPLICATES,
    QUEUE_CREATION,
    QUEUE_NAME,
    QUEUE_START,
    RECEIVE_WAIT,
    RECEIVERS,
    VISIBILITY_TIMEOUT,
)
from ..properties.groups.retries import DESCRIBE_STREAM_RETRIES, GETRECORDS_RETRIES
from ..properties.properties import Properties
from ..retry import call_with_retries
from ..shard_metrics import ShardMetrics
from ..shards import MAX_HASH_KEY, HashRange, Shard
from ..stream_arns import arn_of, region_of_arn
from .client import QueueClient, QueueDescription
from .publisher import QueueRecordPublisher
from .receipts import Receipts, ReceiverTurns

ACTIVE_TIMEOUT_SECONDS = 300.0
_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
_ARN = re.compile(r"arn:aws[^:]*:kinesis:[^:]+:\d{12}:queue/\S+")
_NAME_WORDS = "1 to 128 of the characters a-z A-Z 0-9 _ . -, or the queue's ARN"


class QueueFactory(RecordPublisherFactory):
    """Owns the client of all receivers, and what they share. A receiver is a shard to the layers above."""

    visibility_seconds = 30.0

    def __init__(
        self, properties: Mapping[str, object], *, client: QueueClient | None = None, clock: Clock | None = None
    ) -> None:
        """Read the properties. Raises: ConfigurationError."""
        self._properties = properties = properties if isinstance(properties, Properties) else Properties(properties)
        self.visibility_seconds = float(properties.value(VISIBILITY_TIMEOUT))
        self._clock = clock or SystemClock()
        self._own_client = client
        self._streams: Sequence[str] = ()
        self._arn: str | None = None
        self._finding = asyncio.Lock()
        self._receipts = Receipts(properties.value(DUPLICATES) == "DROP")
        self._turns = ReceiverTurns()

    @classmethod
    def check(cls, properties: Properties, streams: Sequence[str]) -> None:
        """A queue is of one stream, and has a name. Raises: ConfigurationError."""
        name = properties.value(QUEUE_NAME)
        if name is None or not (_NAME.fullmatch(name) or _ARN.fullmatch(name)):
            raise ConfigurationError(QUEUE_NAME.key, name, _NAME_WORDS)
        if len(streams) != 1:
            raise ConfigurationError("streams", ", ".join(streams), "one stream: a queue delivers the records of one")
        stream_arn = arn_of(streams[0])
        region = region_of(properties, streams) if stream_arn is None else region_of_arn(stream_arn)
        if _ARN.fullmatch(name) and name.split(":")[3] != region and not properties.is_set(ENDPOINT):
            raise ConfigurationError(QUEUE_NAME.key, name, f"a queue in {region}, where its stream is")
        wait, timeout = properties.value(RECEIVE_WAIT), properties.value(REQUEST_TIMEOUT)
        if wait * 1000 >= timeout:
            reason = f"with {REQUEST_TIMEOUT.key} = {timeout} each receive would be cut off, and its records hidden"
            raise ConfigurationError(RECEIVE_WAIT.key, wait, f"less than {REQUEST_TIMEOUT.key}", reason=reason)
        if properties.value(QUEUE_START) == "AT_TIMESTAMP":
            _start_of(properties)

    def prepare(self, streams: Sequence[str]) -> None:
        """With EAGER, create the queue. Raises: ConfigurationError, KinesisError."""
        self._streams = streams
        if self._properties.value(QUEUE_CREATION) == "EAGER":
            self._arn = run_sync(self._find_and_close())

    async def create(
        self, shard: Shard, starting_position: StartingPosition, metrics: ShardMetrics
    ) -> QueueRecordPublisher:
        """Make a receiver; the queue keeps what was delivered, so there is no position."""
        return QueueRecordPublisher(
            self.client(),
            await self.queue_arn(),
            shard,
            metrics,
            self._clock,
            self._receipts,
            self._turns,
            GETRECORDS_RETRIES.policy(self._properties),
            wait_seconds=self._properties.value(RECEIVE_WAIT),
            visibility_seconds=self._properties.value(VISIBILITY_TIMEOUT),
        )

    async def discover(self, stream: str, after: str | None) -> list[Shard]:
        """The receivers, which share the hash range, so that subtasks share them."""
        await self.queue_arn()
        count = self._properties.value(RECEIVERS)
        size = (MAX_HASH_KEY + 1) // count
        ids = [(f"receiver-{number:03}", HashRange(number * size, (number + 1) * size - 1)) for number in range(count)]
        return [Shard(stream, name, hash_range=part) for name, part in ids if after is None or name > after]

    async def queue_arn(self) -> str:
        """The queue's ARN. It is created if need be. Raises: ConfigurationError, KinesisError."""
        async with self._finding:
            if self._arn is None:
                self._arn = await self._find_or_create()
            return self._arn

    def order_of(self, sequence: str) -> Any:
        """Record ids have no order; this one is only stable."""
        return sequence

    async def endpoint_url(self) -> str | None:
        """As set; else it is a host of each queue."""
        return endpoint_of(self._properties)

    def checks(self, stream: str) -> Checks:
        """Whether the queue can be found and is ACTIVE; a receive would take records."""

        async def listed() -> str:
            queue = await self._find(self._stream(stream))
            return f"{queue.name} is {queue.status}" if queue is not None else f"no queue {self._name()} yet"

        async def clock() -> str | None:
            told = self.client().last_response_ms
            return None if told is None else check_clock(self._clock.now_ms(), told)

        return {"kinesis:ListQueues": listed, "clock": clock}

    async def close(self) -> None:
        """Close the client."""
        client, self._own_client = self._own_client, None
        if client is not None:
            await client.close()

    def client(self) -> QueueClient:
        """The client of all receivers; `close` closes it."""
        if self._own_client is None:
            self._own_client = QueueClient(self._properties, self._streams)
        return self._own_client

    def _name(self) -> str:
        return self._properties.value(QUEUE_NAME) or ""

    def _stream(self, name: str = "") -> str:
        return self._streams[0] if self._streams else name

    async def _find_and_close(self) -> str:
        try:
            return await self._find_or_create()
        finally:
            await self.close()  # it is bound to this event loop

    async def _find(self, stream: str) -> QueueDescription | None:
        name, client = self._name(), self.client()
        if _ARN.fullmatch(name):
            return await client.describe_queue(name)
        queues = await client.queues_of(await client.stream_arn(stream))
        return next((queue for queue in queues if queue.name == name), None)

    async def _find_or_create(self) -> str:
        policy = DESCRIBE_STREAM_RETRIES.policy(self._properties)
        queue = await call_with_retries(lambda: self._find(self._stream()), policy)
        if queue is None:
            if self._properties.value(QUEUE_CREATION) == "NONE":
                reason = f"{self._stream()} has no such queue, and {QUEUE_CREATION.key} is NONE"
                raise ConfigurationError(QUEUE_NAME.key, self._name(), "the name of an existing queue", reason=reason)
            queue = await call_with_retries(self._create_queue, policy)
        deadline = self._clock.monotonic() + ACTIVE_TIMEOUT_SECONDS
        attempt = 0
        while queue.status == "CREATING":
            if self._clock.monotonic() > deadline:
                raise RecordPublisherError(f"queue {queue.name} is not ACTIVE after {ACTIVE_TIMEOUT_SECONDS:g} s")
            await asyncio.sleep(0.2 + policy.delay_seconds(attempt))
            attempt += 1
            queue = await call_with_retries(partial(self.client().describe_queue, queue.arn), policy)
        return queue.arn

    async def _create_queue(self) -> QueueDescription:
        client, properties = self.client(), self._properties
        stream_arn, start = await client.stream_arn(self._stream()), _start_of(properties)
        try:
            return await client.create_queue(self._name(), stream_arn, start, properties.value(VISIBILITY_TIMEOUT))
        except ResourceInUseError:  # another process has just created it
            queue = await self._find(self._stream())
            if queue is None:  # the name belongs to a queue of another stream
                raise
            return queue


def _start_of(properties: Properties) -> dict[str, Any]:
    """The StartingPosition of a new queue. Raises: ConfigurationError for a time that cannot be read."""
    kind = properties.value(QUEUE_START)
    if kind != "AT_TIMESTAMP":
        return {"Type": kind}
    at = initial_position(properties.merged({INITIAL_POSITION.key: "AT_TIMESTAMP"}))
    return {"Type": kind, "Timestamp": (at.timestamp_ms or 0) / 1000}
