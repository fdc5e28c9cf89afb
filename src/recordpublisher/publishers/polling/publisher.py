"""Reads one shard by polling: the publisher, its factory and settings, its iterator, and when and how much it reads.

Two functions at the end read only a few records: `measure_tip_distance` and `read_oldest_record`.
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from .. import kinesis
from ..aggregation.deaggregation import Deaggregator, RecordDistributionChecks, RecordDistributionPort
from ..base import BatchConsumer, RecordPublisher, RecordPublisherFactory, RunResult
from ..clock import Clock, SystemClock
from ..errors import (
    DataLossError,
    ExpiredIteratorError,
    RecordPublisherError,
    ResourceNotFoundError,
    ThrottledError,
    TransientError,
)
from ..kinesis.ports import ListingPort, PollingPort, ReadResponse, is_shard_listed
from ..positions import PositionType, SequenceNumber, StartingPosition, next_position
from ..properties.config_fields import of_property, of_retries, values_of
from ..properties.polling_properties import ADAPTIVE_READS, GETRECORDS_INTERVAL, GETRECORDS_MAX, TIP_INTERVAL
from ..properties.properties import Properties
from ..properties.reading_properties import (
    DESCRIBE_STREAM_RETRIES,
    GETITERATOR_RETRIES,
    GETRECORDS_RETRIES,
    LIST_SHARDS_RETRIES,
)
from ..records import columns_of, to_millis
from ..retry import RetryPolicy, call_with_retries
from ..service_limits import (
    GET_RECORDS_CALLS_PER_SECOND,
    GET_RECORDS_RECORDS,
    ITERATOR_SECONDS,
    READ_BYTES_PER_SECOND,
    REFUSED_SECONDS,
    REFUSED_SECONDS_AFTER_LARGEST_RESPONSE,
)
from ..shard_metrics import ShardMetrics
from ..shards import OldestRecord, Shard


class PollingRecordPublisher(RecordPublisher):
    """Reads one shard by GetRecords. Keeps the read position, and decides when the next read may start.

    `run` reads to the shard's end and returns COMPLETE, never INCOMPLETE. To stop it, cancel its task. A later `run` resumes from the last
    position that the consumer returned.

    `carried_states`: the states that earlier publishers in this process have left, by `Shard.key`. This publisher takes the state of its
    shard.
    """

    def __init__(
        self,
        service: PollingService,
        shard: Shard,
        position: StartingPosition,
        config: PollingConfig,
        metrics: ShardMetrics,
        clock: Clock,
        deaggregator: Deaggregator | None = None,
        carried_states: MutableMapping[str, CarriedReaderState] | None = None,
    ) -> None:
        self._service = service
        self._shard = shard
        self._position = position
        self._config = config
        self._metrics = metrics
        self._clock = clock
        self._deaggregator = deaggregator or Deaggregator(shard, metrics)
        self._iterator = ShardIterator(service, shard, config.get_iterator, metrics, clock)
        self._size = RecordSize()
        self._read_budget: int | None = None
        self._read_at = clock.monotonic()
        self._responded_at = self._next_read_at = self._read_at
        self._lost_read_at = -math.inf
        self._loop_seconds = config.interval_seconds
        self._is_complete = False
        self._carried_states = {} if carried_states is None else carried_states
        if (carried := self._carried_states.pop(shard.key, None)) is not None:
            self._resume(carried)

    def set_read_budget(self, held_bytes: int) -> None:
        """Set how many bytes of memory the records of the next reads may take. At least one record is requested."""
        self._read_budget = held_bytes

    async def run(self, consumer: BatchConsumer) -> RunResult:
        """Pass every response to `consumer` as batches, even an empty one, until the shard's end.

        Raises:

        - RetriesExhaustedError if the retries are used up, FatalKinesisError if no retry can help.
        - StreamNotFoundError if the stream no longer exists.
        - DataLossError if the shard vanished before it was read to its end.
        """
        try:
            while not self._is_complete:
                # 1. Wait until the limits of the shard allow a read (R1).
                await asyncio.sleep(max(0.0, self._next_read_at - self._clock.monotonic()))
                # 2. Read a response from the position; steps 3 to 5 are in `_publish`. The response has no name here, because a name would
                #    keep its records in memory until the next read.
                await self._publish(await self._read(), consumer)
        except Exception:
            # The iterator may be the cause of the error, so the next run requests a new one.
            self._iterator.discard()
            raise
        finally:
            self._carry_state()
        return RunResult.COMPLETE

    async def _publish(self, response: ReadResponse, consumer: BatchConsumer) -> None:
        """Pass the response's batches to `consumer`. The next read continues after the position that `consumer` returns."""
        # 3. Expand aggregates, and compute when the next read may start.
        batches = self._deaggregator.batches(response, _position_after(response), self._position)
        size, next_iterator = self._size, response.next_iterator
        read_bytes = batches.raw_bytes + columns_of(response.records).key_bytes
        interval = interval_after(response, self._config)
        self._next_read_at = next_read_at(self._read_at, self._responded_at, interval, read_bytes)
        del response
        # 4. Pass batch after batch. Each moves the position to where the callback wants to continue.
        async for batch in batches:
            self._size = size.after(batches.raw_count, read_bytes, batches.held_bytes)
            position = batch.read_position
            consuming = consumer(batch)
            # This reference must go, so that the callback can free the records before the next batch is made (P6).
            del batch
            returned = await consuming
            self._position = next_position(self._position, returned)
            if returned != position:
                # The next read starts at an earlier record, so neither the other batches nor the iterator can be used.
                return
        # 5. Keep the next iterator, or end with the shard.
        if next_iterator is None:
            self._is_complete = True
        else:
            self._iterator.set(next_iterator, self._responded_at)

    def _resume(self, carried: CarriedReaderState) -> None:
        """Continue with the state of an earlier publisher of the shard. Its iterator is used only if the position is the same."""
        self._size, self._lost_read_at = carried.size, carried.lost_read_at
        self._next_read_at = max(carried.next_read_at, carried.lost_read_at + MIN_CALL_INTERVAL_SECONDS)
        if carried.iterator is not None and carried.position == self._position:
            self._iterator.set(carried.iterator, carried.since)

    def _carry_state(self) -> None:
        if not self._is_complete:
            iterator_and_age = self._iterator.current
            self._carried_states[self._shard.key] = CarriedReaderState(
                self._position, *iterator_and_age, self._size, self._next_read_at, self._lost_read_at
            )
            # The next publisher of a shard may be made in another process, or never. So the states that were left first are forgotten.
            if len(self._carried_states) > MOST_CARRIED_STATES:
                del self._carried_states[next(iter(self._carried_states))]

    async def _read(self) -> ReadResponse:
        """Return the next response.

        The iterator is forgotten when the response has arrived. Therefore, if a run is cancelled before it passes the records on, the next
        run reads them again.
        """
        self._loop_seconds, self._read_at = self._clock.monotonic() - self._read_at, self._clock.monotonic()
        response = await call_with_retries(
            self._read_once, self._config.get_records, on_retry=self._metrics.count_retry, min_pause=self._pause_seconds
        )
        self._responded_at = self._clock.monotonic()
        self._iterator.discard()
        return response

    async def _read_once(self) -> ReadResponse:
        """Make one read. If the iterator has expired, request another one.

        Raises: TransientError if a retry may help. If the service does not find the shard, the error that `explain_not_found` returns.
        """
        while True:
            try:
                iterator = await self._iterator.get(self._position)
                self._read_at = self._clock.monotonic()
                return await self._get_records(iterator)
            except ExpiredIteratorError:
                self._iterator.discard_expired()
                await asyncio.sleep(MIN_CALL_INTERVAL_SECONDS)
            except ResourceNotFoundError as error:
                self._iterator.discard()
                raise await explain_not_found(self._service, self._shard, error, self._config.list_shards) from error

    async def _get_records(self, iterator: str) -> ReadResponse:
        earlier, self._lost_read_at = self._lost_read_at, self._read_at
        try:
            response = await self._service.get_records(self._shard, iterator, self._limit())
        except (ThrottledError, ExpiredIteratorError):
            # A refused read does not count, because the service does not charge it to the quota.
            self._lost_read_at = earlier
            raise
        self._lost_read_at = -math.inf
        self._metrics.saw_duration((self._clock.monotonic() - self._read_at) * 1000)
        return response

    def _pause_seconds(self, error: TransientError) -> float:
        return retry_pause_seconds(error, self._clock.monotonic() - self._lost_read_at)

    def _limit(self) -> int:
        is_adaptive = self._config.adaptive and self._size.is_measured
        return records_to_request(
            self._config.max_records, self._size, self._read_budget, self._loop_seconds if is_adaptive else None
        )


def _position_after(response: ReadResponse) -> SequenceNumber | None:
    return SequenceNumber(response.records[-1].sequence_number) if response.records else None


class PollingService(PollingPort, ListingPort, RecordDistributionPort, Protocol):
    """The calls to the service that polling needs."""


MOST_CARRIED_STATES = 10_000
"""The most states that a factory keeps for the next publishers of its shards (`CarriedReaderState`). They take about 5 MB."""


class CarriedReaderState(msgspec.Struct, frozen=True):
    """The state that a publisher leaves for the next publisher that reads the same shard.

    - `position`: the position from which the next read continues.
    - `iterator`: the service's shard iterator for `position`, or None.
    - `since`: when the iterator was requested.
    - `size`: the size of the shard's records, as measured so far.
    - `next_read_at`: when the next read may start.
    - `lost_read_at`: the start of a read whose response was lost, or -inf if there is none.

    All times are monotonic seconds.
    """

    position: StartingPosition
    iterator: str | None
    since: float
    size: RecordSize
    next_read_at: float
    lost_read_at: float


class PollingRecordPublisherFactory(RecordPublisherFactory):
    """Makes polling publishers. Owns one client for all shards, which `prepare` or the first publisher makes.

    - `service`: used instead of a client, and not closed.

    The factory keeps the state of each publisher for the next publisher of the shard (`CarriedReaderState`). A Spark worker needs that,
    because it makes new publishers for every batch.

    Raises: ConfigurationError if a property is invalid.
    """

    keyless = True
    ends_open_shards = True
    """A response without a next iterator ends the shard, even if the stream still lists it as open. DynamoDB Streams may list the end only
    later.
    """

    def __init__(
        self, properties: Mapping[str, object], *, service: PollingService | None = None, clock: Clock | None = None
    ) -> None:
        self._properties = properties = properties if isinstance(properties, Properties) else Properties(properties)
        self._config = PollingConfig.of(properties)
        self._clock = clock or SystemClock()
        self._distribution_checks = RecordDistributionChecks(DESCRIBE_STREAM_RETRIES.policy(properties), self._clock)
        self._service = service
        self._own_client: kinesis.KinesisClient | None = None
        self._carried_states: dict[str, CarriedReaderState] = {}

    def prepare(self, streams: Sequence[str]) -> None:
        """Make the client for the job's streams (names or ARNs). This makes no call to the service.

        Raises: ConfigurationError if endpoint, region or credentials are missing or invalid.
        """
        if self._service is None:
            self._own_client = kinesis.KinesisClient(self._properties, streams)

    async def create(
        self, shard: Shard, starting_position: StartingPosition, metrics: ShardMetrics
    ) -> PollingRecordPublisher:
        """Make a publisher of `shard`. No record is read yet."""
        stream = shard.stream_arn or shard.stream
        service = self._service or self._client([stream])
        distribution = self._distribution_checks.check_of(service, stream)
        deaggregator = Deaggregator(shard, metrics, distribution.foreign_sub_records)
        position = await self._pin_latest(service, stream, starting_position)
        return PollingRecordPublisher(
            service, shard, position, self._config, metrics, self._clock, deaggregator, self._carried_states
        )

    async def close(self) -> None:
        """Close the client that this factory made."""
        client, self._own_client = self._own_client, None
        if client is not None:
            await client.close()

    def shared_client(self, streams: Sequence[str]) -> kinesis.KinesisClient | None:
        """Return the client of `streams` (names or ARNs), with which a job also lists shards. Return None if a `service` was given.

        `close` closes the client.
        """
        return None if self._service is not None else self._client(streams)

    def _client(self, streams: Sequence[str]) -> kinesis.KinesisClient:
        if self._own_client is None:
            self._own_client = kinesis.KinesisClient(self._properties, streams)
        return self._own_client

    async def _pin_latest(self, service: PollingService, stream: str, position: StartingPosition) -> StartingPosition:
        """Return the current time of the service's clock as the start instead of LATEST. Return any other start unchanged.

        Each new iterator at LATEST would skip the records before it. Only callers without a job need this: a job replaces LATEST itself.
        """
        if position.type is not PositionType.LATEST:
            return position
        service_time_ms = functools.partial(service.server_time_ms, stream)
        return position.pinned_at(await call_with_retries(service_time_ms, self._config.list_shards))


@dataclass(frozen=True, slots=True, kw_only=True)
class PollingConfig:
    """The settings of polling.

    - `max_records`: the Limit of one call (1..10,000).
    - `interval_seconds`: time from the start of one read to the start of the next.
    - `tip_interval_seconds`: the same time after an empty read at the tip. It is never shorter than `interval_seconds`.
    - `adaptive`: whether the Limit follows the measured size of records.
    - `get_records`, `get_iterator`, `list_shards`: the retry policy of each call.
    """

    max_records: int = of_property(GETRECORDS_MAX)
    interval_seconds: float = of_property(GETRECORDS_INTERVAL, 1000)
    tip_interval_seconds: float
    adaptive: bool = of_property(ADAPTIVE_READS)
    get_records: RetryPolicy = of_retries(GETRECORDS_RETRIES)
    get_iterator: RetryPolicy = of_retries(GETITERATOR_RETRIES)
    list_shards: RetryPolicy = of_retries(LIST_SHARDS_RETRIES)

    @classmethod
    def of(cls, properties: Properties) -> PollingConfig:
        """Return the settings that the properties describe. Raises: ConfigurationError with key, value and valid values, if one is bad."""
        tip_interval_ms = max(properties.value(GETRECORDS_INTERVAL), properties.value(TIP_INTERVAL) or 0)
        return cls(tip_interval_seconds=tip_interval_ms / 1000, **values_of(cls, properties))


MAX_ITERATOR_AGE_SECONDS = ITERATOR_SECONDS - 60.0
"""An iterator of this age is replaced before it is used (seconds)."""


class ShardIterator:
    """The shard iterator of one shard, and its age. It is requested only when a read needs it, so a paused shard makes no call."""

    def __init__(
        self, port: PollingPort, shard: Shard, policy: RetryPolicy, metrics: ShardMetrics, clock: Clock
    ) -> None:
        self._port = port
        self._shard = shard
        self._policy = policy
        self._metrics = metrics
        self._clock = clock
        self._value: str | None = None
        self._since = 0.0

    async def get(self, position: StartingPosition) -> str:
        """Return the current iterator, or a new one for `position` if there is none or it is older than four minutes."""
        if self._value is not None and self._clock.monotonic() - self._since > MAX_ITERATOR_AGE_SECONDS:
            self.discard_expired()
        if self._value is None:
            since = self._clock.monotonic()
            self._value = await call_with_retries(
                functools.partial(self._port.get_shard_iterator, self._shard, position),
                self._policy,
                on_retry=self._metrics.count_retry,
                min_pause=retry_pause_seconds,
            )
            self._since = since
        return self._value

    def set(self, value: str, since: float) -> None:
        """Store the iterator from a response that arrived at `since` (monotonic seconds)."""
        self._value, self._since = value, since

    @property
    def current(self) -> tuple[str | None, float]:
        """The iterator, or None if there is none, and when the service gave it (monotonic seconds)."""
        return self._value, self._since

    def discard(self) -> None:
        """Forget the iterator, because it was used or belongs to another position."""
        self._value = None

    def discard_expired(self) -> None:
        """Forget the iterator, because it has expired or will soon. Count that as a refresh in the metrics."""
        self._value = None
        self._metrics.add("iterator_refreshes")


async def explain_not_found(
    listing: ListingPort, shard: Shard, error: ResourceNotFoundError, policy: RetryPolicy
) -> RecordPublisherError:
    """Return the error to raise when the service did not find a shard. Such a shard is never taken as read to its end.

    - TransientError if the stream still lists the shard.
    - Otherwise DataLossError, because the shard's unread records are lost.

    Raises: StreamNotFoundError if the stream itself does not exist.
    """

    if await call_with_retries(lambda: is_shard_listed(listing, shard), policy):
        return TransientError(error.api, error.code, f"{shard.key} is not found, although ListShards returns it")
    return DataLossError(
        f"shard {shard.key} vanished before it was read to its end: it is past retention, or the stream was deleted and created again "
        f"({error})",
        "To continue without the lost records, start the job without its stored state",
    )


MIN_CALL_INTERVAL_SECONDS = 1 / GET_RECORDS_CALLS_PER_SECOND
"""The shortest time between two GetRecords calls on a shard (seconds)."""


def interval_after(response: ReadResponse, config: PollingConfig) -> float:
    """Return the time from the start of a read to the start of the next one (seconds). It is longer after an empty read at the tip."""
    is_empty_at_tip = not response.records and response.millis_behind_latest == 0
    return config.tip_interval_seconds if is_empty_at_tip else config.interval_seconds


def next_read_at(started: float, responded: float, interval_seconds: float, read_bytes: int) -> float:
    """Return when the next read may start. All times are in seconds of one monotonic clock.

    - The interval, and the limit of five calls a second, count from the start of the last read.
    - The limit of bytes counts from the response, because the service does not tell when it has counted them. If a read comes a little too
      early, the service refuses reads for a whole second.
    """
    return max(
        started + max(interval_seconds, MIN_CALL_INTERVAL_SECONDS), responded + read_bytes / READ_BYTES_PER_SECOND
    )


def retry_pause_seconds(error: TransientError, since_lost_read: float = math.inf) -> float:
    """Return the shortest pause before a failed call is repeated (seconds). The backoff with its jitter is added to it.

    `since_lost_read`: the time since a read whose response was lost (seconds). That response may have had 10 MiB, and then the service
    refuses reads for 5 s. With a shorter pause the retries would be used up in that time.
    """
    if isinstance(error, ThrottledError):
        return max(REFUSED_SECONDS, REFUSED_SECONDS_AFTER_LARGEST_RESPONSE - since_lost_read)
    return MIN_CALL_INTERVAL_SECONDS


FIRST_READ_BUDGET_BYTES = 2**20
"""The memory budget of the first read, if none was set (bytes). That read measures the size of records.

The budget is small, because a thousand shards may start at once.
"""


class RecordSize(msgspec.Struct, frozen=True):
    """The mean size of a Kinesis record (bytes): `read` as the service counts it, `held` in memory after de-aggregation.

    The defaults are larger than usual records, so that the first read stays within its budget.
    """

    read: float = 10_240.0
    held: float = 10_240.0
    is_measured: bool = False

    def after(self, raw_count: int, read_bytes: int, held_bytes: int) -> RecordSize:
        """Return the mean sizes of the records of a response, or this size unchanged if it had no records.

        - `raw_count`: number of records in the response.
        - `read_bytes`: their bytes by the count of the service.
        - `held_bytes`: bytes of memory that they take.
        """
        if raw_count == 0:
            return self
        return RecordSize(max(read_bytes / raw_count, 1.0), held_bytes / raw_count, is_measured=True)


def records_to_request(max_records: int, size: RecordSize, budget_bytes: int | None, loop_seconds: float | None) -> int:
    """Return the Limit of the next read, 1 to 10,000.

    - `loop_seconds`: the time between two reads if reads are adaptive, else None. An adaptive read requests as many records as the shard
      can deliver in this time, even more than `max_records`.
    - `budget_bytes`: the memory that the records may take. None means no limit, except for the first read.
    """
    limit = max_records
    if loop_seconds is not None:
        limit = int(READ_BYTES_PER_SECOND * max(loop_seconds, MIN_CALL_INTERVAL_SECONDS) / size.read)
    if budget_bytes is None and not size.is_measured:
        budget_bytes = FIRST_READ_BUDGET_BYTES
    if budget_bytes is not None:
        limit = min(limit, int(budget_bytes / size.held))
    return max(1, min(limit, GET_RECORDS_RECORDS))


# --- small reads: how far a position is behind the tip (A2), and the oldest record (S5) -------------------------------------------------

MAX_READS, MAX_READS_OF_OLDEST = 5, 20
"""The most reads of `measure_tip_distance`, and of `read_oldest_record`. Responses may be empty before the next record is found (service
documentation).
"""
PAUSE_SECONDS = 0.25
"""Seconds between two reads of `measure_tip_distance` or `read_oldest_record`. They share the shard's 5 calls a second with the job."""


class TipDistance(msgspec.Struct, frozen=True):
    """The distance of a position from the shard's tip.

    - `has_unread`: whether there is a record after the position.
    - `oldest_ms`: when the first of these records arrived (epoch ms), or None if there is none.
    - `millis_behind`: MillisBehindLatest of the last response.
    """

    has_unread: bool
    oldest_ms: int | None = None
    millis_behind: int = 0


async def measure_tip_distance(port: PollingPort, shard: Shard, position: StartingPosition) -> TipDistance | None:
    """Return how far `position` is behind the tip, by reading one record after it.

    Return None if several empty responses in a row did not reach the tip.

    As a rule this takes two calls: one for the iterator, and one GetRecords with Limit 1.

    Raises: KinesisError if a call fails. No call is retried.
    """
    iterator: str | None = await port.get_shard_iterator(shard, position)
    for _ in range(MAX_READS):
        if iterator is None:
            break
        response = await port.get_records(shard, iterator, 1)
        distance = _distance_from(response)
        if distance is not None:
            return distance
        iterator = response.next_iterator
        await asyncio.sleep(PAUSE_SECONDS)
    return None


def _distance_from(response: ReadResponse) -> TipDistance | None:
    behind = response.millis_behind_latest or 0
    if response.records:
        return TipDistance(True, to_millis(response.records[0].arrival), behind)
    return TipDistance(False) if behind == 0 or response.next_iterator is None else None


async def read_oldest_record(port: PollingPort, shard: Shard) -> OldestRecord:
    """Return the oldest record that the shard still has, by reading from TRIM_HORIZON.

    Raises: TransientError if many responses in a row were empty; KinesisError if a call fails. No call is retried.
    """
    iterator: str | None = await port.get_shard_iterator(shard, StartingPosition.trim_horizon())
    for _ in range(MAX_READS_OF_OLDEST):
        response = await port.get_records(shard, iterator, 1) if iterator is not None else None
        if response is None or (not response.records and response.millis_behind_latest == 0):
            return OldestRecord()
        if response.records:
            return OldestRecord(response.records[0].sequence_number, to_millis(response.records[0].arrival))
        iterator = response.next_iterator
        await asyncio.sleep(PAUSE_SECONDS)
    raise TransientError(
        "GetRecords",
        "OnlyEmptyResponses",
        f"{MAX_READS_OF_OLDEST} reads of {shard.key} from its beginning found no record",
    )
