"""KinesisQueue reads a queue of Kinesis: it finds or creates the queue, receives records, and acknowledges them.

It also has the checks of `recordpublisher doctor`. `QueueClient` makes the calls.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from .aggregation.deaggregation import Deaggregator
from .base import Checks, QueueSource, check_clock
from .clock import Clock, SystemClock
from .errors import (
    ConfigurationError,
    FatalKinesisError,
    KinesisError,
    RecordPublisherError,
    ResourceInUseError,
    RetriesExhaustedError,
    ThrottledError,
    TransientError,
)
from .initial_position import initial_position
from .kinesis import endpoint_of, region_of, run_sync
from .kinesis.client import KinesisClient, server_time_ms_or_none
from .kinesis.error_mapping import reject_malformed
from .kinesis.ports import ReadResponse
from .positions import StartingPosition
from .properties.properties import Properties
from .properties.queue_properties import QUEUE_CREATION, QUEUE_NAME, RECEIVE_WAIT, RECEIVERS, VISIBILITY_TIMEOUT
from .properties.reading_properties import DESCRIBE_STREAM_RETRIES, ENDPOINT, GETRECORDS_RETRIES, REQUEST_TIMEOUT
from .records import ArrivalSeconds, UserRecord
from .retry import call_with_retries
from .shard_metrics import ShardMetrics
from .shards import HashRange, Shard, arn_of, region_of_arn

ACTIVE_TIMEOUT_SECONDS = 300.0
WORTH_A_RETRY = {"ThrottlingException", "InternalFailureException"}
"""The error codes of single records for which a retry may help.

Any other code means that the record no longer exists, or that another process has received it.
"""
MOST_TRIES = 5
MOST_CALLS = 16
"""The most calls at a time that acknowledge or release records. Without a limit, one commit could start hundreds of calls."""
MOST_ENTRIES = 10
"""The most records of one receive, and of one acknowledgement (API reference)."""
_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
_ARN = re.compile(r"arn:aws[^:]*:kinesis:[^:]+:\d{12}:queue/\S+")
_NAME_WORDS = "1 to 128 of the characters a-z A-Z 0-9 _ . -, or the queue's ARN"


class KinesisQueue(QueueSource):
    """Receives from a job's queue. Owns the client that makes the calls.

    Raises: ConfigurationError if a property is invalid.
    """

    full_receive = MOST_ENTRIES
    full_bytes = 5 * 2**20
    """A response of this size (bytes) counts as full: half of the largest response. Ten large records never fit into one response."""

    def __init__(
        self, properties: Mapping[str, object], *, client: QueueClient | None = None, clock: Clock | None = None
    ) -> None:
        self._properties = properties = properties if isinstance(properties, Properties) else Properties(properties)
        self._visibility = properties.value(VISIBILITY_TIMEOUT)
        self.visibility_seconds = float(self._visibility)
        self.most_receivers = properties.value(RECEIVERS)
        self._wait_seconds = properties.value(RECEIVE_WAIT)
        self._retries = GETRECORDS_RETRIES.policy(properties)
        self._clock = clock or SystemClock()
        self._own_client = client
        self._streams: Sequence[str] = ()
        self._arn: str | None = None
        self._finding = asyncio.Lock()
        self._metrics = ShardMetrics()
        """The metrics of the receiver that received last. They also count the retries of the other calls."""
        # A queue has no shards, so sub-records of any hash key are kept. The job counts the records, so these metrics are not reported.
        self._deaggregator = Deaggregator(Shard("queue", "queue", hash_range=HashRange()), ShardMetrics())

    @classmethod
    def check(cls, properties: Properties, streams: Sequence[str]) -> None:
        """Check the properties of a queue.

        Raises: ConfigurationError if one of these is invalid: the queue's name, its region, the number of streams (a queue belongs to one),
        the longest wait of a receive, the start time.
        """
        name = properties.value(QUEUE_NAME)
        if name is None or not (_NAME.fullmatch(name) or _ARN.fullmatch(name)):
            raise ConfigurationError(QUEUE_NAME.key, name, _NAME_WORDS)
        if len(streams) != 1:
            reason = "a queue has the records of one stream"
            raise ConfigurationError("streams", ", ".join(streams), "one stream", reason=reason)
        stream_arn = arn_of(streams[0])
        region = region_of(properties, streams) if stream_arn is None else region_of_arn(stream_arn)
        if _ARN.fullmatch(name) and name.split(":")[3] != region and not properties.is_set(ENDPOINT):
            reason = f"the job's stream is in {region}"
            raise ConfigurationError(QUEUE_NAME.key, name, f"a queue in {region}", reason=reason)
        wait, timeout = properties.value(RECEIVE_WAIT), properties.value(REQUEST_TIMEOUT)
        if wait * 1000 >= timeout:
            reason = (
                f"with {REQUEST_TIMEOUT.key} = {timeout} each receive would time out, and its records would stay hidden"
            )
            raise ConfigurationError(RECEIVE_WAIT.key, wait, f"less than {REQUEST_TIMEOUT.key}", reason=reason)
        initial_position(properties)

    def prepare(self, streams: Sequence[str]) -> None:
        """Find or create the queue, if `flink.queue.create` is EAGER.

        Raises: ConfigurationError if the queue does not exist and may not be created, KinesisError if a call fails.
        """
        self._streams = streams
        if self._properties.value(QUEUE_CREATION) == "EAGER":
            self._arn = run_sync(self._find_and_close())

    async def open(self) -> None:
        """Find the queue, or create it."""
        await self.queue_arn()

    async def receive(self, metrics: ShardMetrics) -> Sequence[UserRecord]:
        """Receive at most ten records. An aggregate counts as one of them, and is replaced by all its sub-records."""
        self._metrics = metrics
        received = await call_with_retries(self._receive_once, self._retries, on_retry=metrics.count_retry)
        handles = {each.record_id: each.handle for each in received}
        try:
            parts = await self._expand(received)
            await self._acknowledge_empty(handles, {part.sequence_number for part in parts})
        except BaseException:  # The records must be released here, because no caller has received them.
            await self._make_visible(handles.values())
            raise
        return [
            QueuedRecord(
                part.data,
                part.sequence_number,
                part.arrival,
                part.partition_key,
                part.explicit_hash_key,
                part.sub_sequence_number,
                handles[part.sequence_number],
            )
            for part in parts
        ]

    async def acknowledge(self, records: Sequence[UserRecord]) -> set[str]:
        """Acknowledge records, ten in a call. Records whose error may be temporary are retried.

        Return the sequence numbers of the records that failed.
        """
        return await self._settle("AcknowledgeQueueRecords", records)

    async def prolong(self, records: Sequence[UserRecord]) -> set[str]:
        """Start the visibility timeout of these records again. Return the sequence numbers of the records that failed."""
        return await self._settle("UpdateQueueRecordsVisibility", records, self._visibility)

    async def release(self, records: Sequence[UserRecord]) -> set[str]:
        """Make these records visible to other receivers at once. Return the sequence numbers of the records that failed."""
        return await self._settle("UpdateQueueRecordsVisibility", records, 0)

    async def queue_arn(self) -> str:
        """Return the queue's ARN. The first call finds the queue, or creates it.

        Raises: ConfigurationError if the queue does not exist and may not be created, KinesisError if a call fails.
        """
        async with self._finding:
            if self._arn is None:
                self._arn = await self._find_or_create()
            return self._arn

    async def endpoint_url(self) -> str | None:
        """Return the endpoint of the properties. Return None if it is not set, because each queue then has a host of its own."""
        return endpoint_of(self._properties)

    def checks(self, stream: str) -> Checks:
        """Return two checks for `recordpublisher doctor`: whether the queue exists, with its status, and whether the clock is right.

        Neither check receives records, because the job would then not get them.
        """

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
        """Return the client; `close` closes it."""
        if self._own_client is None:
            self._own_client = QueueClient(self._properties, self._streams)
        return self._own_client

    # --- receive and acknowledge ---

    async def _receive_once(self) -> list[ReceivedRecord]:
        """Make one call that receives. If it is cancelled, wait for its response, and make the records in it visible again."""
        # If the call were interrupted, its records would be hidden from all receivers until their visibility timeout is over.
        call = self.client().receive(await self.queue_arn(), self._wait_seconds, self._visibility)
        receiving = asyncio.ensure_future(call)
        try:
            return await asyncio.shield(receiving)
        except asyncio.CancelledError:
            with suppress(KinesisError):
                await self._make_visible([received.handle for received in await receiving])
            raise

    async def _expand(self, received: Sequence[ReceivedRecord]) -> list[UserRecord]:
        """Return the received records. Each aggregate is replaced by its sub-records; one without sub-records is left out."""
        records = [UserRecord(each.data, each.record_id, each.arrival, each.partition_key) for each in received]
        parts = self._deaggregator.batches(
            ReadResponse(records, 1, next_iterator=""), None, StartingPosition.trim_horizon()
        )
        return [record async for part in parts for record in part.records]

    async def _acknowledge_empty(self, handles: Mapping[str, str], passed_on: set[str]) -> None:
        """Acknowledge the received aggregates without sub-records. The job does not get them, so it cannot acknowledge them.

        `handles`: the handle of each received record, by its sequence number. `passed_on`: the sequence numbers that the job gets.
        """
        if empty := [handle for number, handle in handles.items() if number not in passed_on]:
            with suppress(TransientError):  # If this fails, they are delivered again, and acknowledged then.
                await self.client().settle("AcknowledgeQueueRecords", await self.queue_arn(), empty)

    async def _make_visible(self, handles: Iterable[str]) -> None:
        """Let others receive records that this process will not handle.

        If the call fails, nothing is raised: the records become visible when their visibility timeout is over.
        """
        if left := list(handles):
            with suppress(KinesisError):
                await self.client().settle("UpdateQueueRecordsVisibility", await self.queue_arn(), left, 0)

    async def _settle(self, api: str, records: Sequence[UserRecord], visibility: int | None = None) -> set[str]:
        """Make calls of `api` for these records. Return the sequence numbers of the records that failed.

        Raises: RetriesExhaustedError if every call fails after its retries; KinesisError if a call fails for another reason.
        """
        numbers = {record.handle: record.sequence_number for record in records if isinstance(record, QueuedRecord)}
        handles, limit = list(numbers), asyncio.Semaphore(MOST_CALLS)
        tens = [handles[start : start + MOST_ENTRIES] for start in range(0, len(handles), MOST_ENTRIES)]

        async def settle(ten: list[str]) -> set[str]:
            async with limit:
                return await self._settle_ten(api, ten, visibility)

        found = await asyncio.gather(*map(settle, tens), return_exceptions=True)
        errors = [each for each in found if isinstance(each, BaseException)]
        # If some calls have succeeded, the records of the others count as failed, and the job continues.
        fatal = [each for each in errors if not isinstance(each, RetriesExhaustedError)]
        if fatal or (errors and len(errors) == len(found)):
            raise (fatal or errors)[0]
        failed = (ten if isinstance(each, BaseException) else each for ten, each in zip(tens, found, strict=True))
        return {numbers[handle] for part in failed for handle in part}

    async def _settle_ten(self, api: str, left: list[str], visibility: int | None) -> set[str]:
        """Make a call of `api` for at most ten receipt handles (`left`). Return the handles that failed.

        The call is repeated for the handles whose error may be temporary.

        Raises: RetriesExhaustedError or KinesisError if the call itself fails.
        """
        arn, failed = await self.queue_arn(), set[str]()
        for attempt in range(MOST_TRIES):
            call = partial(self.client().settle, api, arn, left, visibility)
            codes = await call_with_retries(call, self._retries, on_retry=self._count_retry)
            failed = (failed - set(left)) | codes.keys()
            left = [handle for handle in left if codes.get(handle) in WORTH_A_RETRY]
            if not left:
                break
            await asyncio.sleep(self._retries.delay_seconds(attempt))
        return failed

    def _count_retry(self, error: TransientError) -> None:
        """Count a retry of a call other than a receive. The metric `last_failure` is not set, because it is only for reads."""
        self._metrics.add("retries")
        self._metrics.add("throttles", isinstance(error, ThrottledError))

    # --- find and create ---

    def _name(self) -> str:
        return self._properties.value(QUEUE_NAME) or ""

    def _stream(self, name: str = "") -> str:
        return self._streams[0] if self._streams else name

    async def _find_and_close(self) -> str:
        try:
            return await self._find_or_create()
        finally:
            await self.close()  # The client is bound to this event loop, and the job runs in another one.

    async def _find(self, stream: str) -> QueueDescription | None:
        name, client = self._name(), self.client()
        if _ARN.fullmatch(name):
            return await client.describe_queue(name)
        queues = await client.queues_of(await client.stream_arn(stream))
        return next((queue for queue in queues if queue.name == name), None)

    async def _find_or_create(self) -> str:
        """Create the queue if it does not exist and `flink.queue.create` allows that, wait until it is ACTIVE, and return its ARN."""
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
                raise RecordPublisherError(
                    f"queue {queue.name} is not ACTIVE after {ACTIVE_TIMEOUT_SECONDS:g} s: try again later, or name another queue"
                )
            await asyncio.sleep(0.2 + policy.delay_seconds(attempt))
            attempt += 1
            queue = await call_with_retries(partial(self.client().describe_queue, queue.arn), policy)
        return queue.arn

    async def _create_queue(self) -> QueueDescription:
        client, properties = self.client(), self._properties
        stream_arn, start = (
            await client.stream_arn(self._stream()),
            _start_of(properties, client.last_response_ms or self._clock.now_ms()),
        )
        try:
            return await client.create_queue(self._name(), stream_arn, start, properties.value(VISIBILITY_TIMEOUT))
        except ResourceInUseError:  # Another process has just created the queue.
            queue = await self._find(self._stream())
            if queue is None:  # The queue with this name belongs to another stream.
                raise
            return queue


def _start_of(properties: Properties, now_ms: int) -> dict[str, Any]:
    """Return the parameter StartingPosition of a new queue. Raises: ConfigurationError if the start time cannot be read."""
    at = initial_position(properties)
    if at.ago_ms:
        at = StartingPosition.at_timestamp(now_ms - at.ago_ms)
    kind = at.type.value
    return {"Type": kind} if at.timestamp_ms is None else {"Type": kind, "Timestamp": at.timestamp_ms / 1000}


class QueuedRecord(UserRecord):
    """A received record, or a sub-record of one. The receipt `handle` acknowledges it."""

    handle: str = ""


# --- the calls ----------------------------------------------------------------------------------------------------------------------


class QueueClient(KinesisClient):
    """Makes the calls about the queues of one stream. Each call gets the ARN of its queue.

    If the stream is given by its ARN, the calls use the ARN's region and role. No call is retried here.
    """

    def __init__(self, properties: Properties, streams: Sequence[str] = ()) -> None:
        super().__init__(properties, streams)
        self._stream_arn = next(filter(None, map(arn_of, streams)), None)
        self._last_response: dict[str, Any] | None = None

    @property
    def last_response_ms(self) -> int | None:
        """The time of the service's clock at its last response (epoch ms, whole seconds), or None if it is not known."""
        return None if self._last_response is None else server_time_ms_or_none(self._last_response)

    async def create_queue(
        self, name: str, stream_arn: str, start: dict[str, Any], visibility_seconds: int
    ) -> QueueDescription:
        """Create a queue that begins at the StartingPosition `start`. The queue is CREATING for some seconds."""
        return await self._call_for_description(
            "CreateQueue",
            QueueName=name,
            StreamConfigurationList=[{"StreamARN": stream_arn, "StartingPosition": start}],
            QueueAttributes={"VisibilityTimeoutSeconds": visibility_seconds},
        )

    async def describe_queue(self, arn: str) -> QueueDescription:
        """Return a queue. Raises: ResourceNotFoundError if it does not exist."""
        return await self._call_for_description("DescribeQueue", QueueARN=arn)

    async def queues_of(self, stream_arn: str) -> list[QueueDescription]:
        """Return every queue of a stream."""
        asked: dict[str, Any] = {"StreamFilter": [{"StreamARN": stream_arn}]}
        queues: list[QueueDescription] = []
        while True:
            response = await self._call_queue("ListQueues", **asked)
            with reject_malformed("ListQueues"):
                queues += msgspec.convert(response["QueueSummaries"], list[QueueDescription])
            following = response.get("NextToken")
            if following is None:
                return queues
            if following == asked.get("NextToken"):
                raise TransientError(
                    "ListQueues", "MalformedResponse", "the service returns the same page again and again"
                )
            asked["NextToken"] = following

    async def receive(
        self, arn: str, wait_seconds: int, visibility_seconds: int, *, are_dead: bool = False
    ) -> list[ReceivedRecord]:
        """Receive at most ten records, and hide them from others for `visibility_seconds`. Return [] if none came within `wait_seconds`.

        `are_dead`: receive dead letters instead of records.
        """
        api = "ReceiveDeadLetterQueueRecords" if are_dead else "ReceiveQueueRecords"
        response = await self._call_queue(
            api,
            QueueARN=arn,
            Limit=MOST_ENTRIES,
            WaitTimeSeconds=wait_seconds,
            VisibilityTimeoutSeconds=visibility_seconds,
        )
        with reject_malformed(api):
            return msgspec.convert(response["QueueRecords"], list[ReceivedRecord])

    async def settle(
        self, api: str, arn: str, handles: Sequence[str], visibility_seconds: int | None = None
    ) -> dict[str, str]:
        """Make calls of `api` for records: acknowledge them, or change their visibility. Return an error code for each handle that failed.

        Each call has at most ten records. The calls run at the same time.

        Raises: KinesisError if a call fails.
        """
        more = {} if visibility_seconds is None else {"VisibilityTimeoutSeconds": visibility_seconds}
        entries = [{"ReceiptHandle": handle, **more} for handle in handles]
        parts = [entries[start : start + MOST_ENTRIES] for start in range(0, len(entries), MOST_ENTRIES)]
        calls = [self._call_queue(api, QueueARN=arn, Entries=part) for part in parts]
        failed: dict[str, str] = {}
        # Usually there is only one call, which needs no task.
        for response in [await calls[0]] if len(calls) == 1 else await asyncio.gather(*calls):
            with reject_malformed(api):
                failed |= {str(entry["ReceiptHandle"]): str(entry["ErrorCode"]) for entry in response["Failed"]}
        return failed

    async def _call_for_description(self, api: str, **parameters: Any) -> QueueDescription:
        response = await self._call_queue(api, **parameters)
        with reject_malformed(api):
            return msgspec.convert(response["QueueDescription"], QueueDescription)

    async def _call_queue(self, api: str, **parameters: Any) -> dict[str, Any]:
        try:
            response = await self._transports.for_stream(self._stream_arn).call(api, **parameters)
        except FatalKinesisError as error:
            if error.code in ("UnknownOperationException", "InvalidAction"):
                error.add_note("this endpoint or region has no queues")
            raise
        self._last_response = {"ResponseMetadata": response.get("ResponseMetadata")}
        return response


class QueueDescription(
    msgspec.Struct, frozen=True, rename={"name": "QueueName", "arn": "QueueARN", "status": "QueueStatus"}
):
    """A queue as the service lists it."""

    name: str
    arn: str
    status: str


class ReceivedRecord(
    msgspec.Struct,
    frozen=True,
    rename={
        "handle": "ReceiptHandle",
        "record_id": "RecordId",
        "data": "Data",
        "arrival": "ApproximateArrivalTimestamp",
        "receives": "ReceiveCount",
        "partition_key": "PartitionKey",
    },
):
    """A received record. The receipt `handle` acknowledges it.

    - `arrival`: epoch seconds.
    - `receives`: how often the record was received, from 1.
    """

    handle: str
    record_id: str
    data: bytes
    arrival: ArrivalSeconds
    receives: int
    partition_key: str | None = None
