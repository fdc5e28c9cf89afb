"""QueueClient: a KinesisClient with the calls about one queue. If single records cannot be settled, the call does not raise."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from ..errors import FatalKinesisError, TransientError
from ..kinesis.client import KinesisClient, server_time_ms_or_none
from ..kinesis.error_mapping import reject_malformed
from ..properties.properties import Properties
from ..records import ArrivalSeconds
from ..stream_arns import arn_of

MOST_ENTRIES = 10
"""Most records of a receive, and most entries of an acknowledgement (API reference)."""


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
    """A received record, with the handle of this receipt. `arrival` is epoch seconds, `receives` counts from 1."""

    handle: str
    record_id: str
    data: bytes
    arrival: ArrivalSeconds
    receives: int
    partition_key: str | None = None


class QueueClient(KinesisClient):
    """Makes the calls about the queues of one stream. A queue is named by its ARN.

    If the stream is given by its ARN, the calls use the ARN's region and role. No call is retried here.
    """

    def __init__(self, properties: Properties, streams: Sequence[str] = ()) -> None:
        super().__init__(properties, streams)
        self._stream_arn = next(filter(None, map(arn_of, streams)), None)
        self._last_response: dict[str, Any] | None = None

    @property
    def last_response_ms(self) -> int | None:
        """The service's clock at its last response, in whole seconds (epoch ms)."""
        return None if self._last_response is None else server_time_ms_or_none(self._last_response)

    async def create_queue(
        self, name: str, stream_arn: str, start: dict[str, Any], visibility_seconds: int
    ) -> QueueDescription:
        """Create a queue with the StartingPosition `start`. The queue is CREATING for some seconds."""
        return await self._described(
            "CreateQueue",
            QueueName=name,
            StreamConfigurationList=[{"StreamARN": stream_arn, "StartingPosition": start}],
            QueueAttributes={"VisibilityTimeoutSeconds": visibility_seconds},
        )

    async def describe_queue(self, arn: str) -> QueueDescription:
        """Return a queue. Raises: ResourceNotFoundError if it does not exist."""
        return await self._described("DescribeQueue", QueueARN=arn)

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
                raise TransientError("ListQueues", "MalformedResponse", "the same page comes again and again")
            asked["NextToken"] = following

    async def receive(
        self, arn: str, wait_seconds: int, visibility_seconds: int, *, are_dead: bool = False
    ) -> list[ReceivedRecord]:
        """Receive at most ten records, or dead letters if `are_dead`, and hide them from others.

        Return [] if none became visible in time.
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
        """Acknowledge or restore records, or change their visibility. Return the error code of each handle that failed.

        The records are sent ten a call; the calls run at the same time.

        Raises: KinesisError if a call fails.
        """
        more = {} if visibility_seconds is None else {"VisibilityTimeoutSeconds": visibility_seconds}
        entries = [{"ReceiptHandle": handle, **more} for handle in handles]
        parts = [entries[start : start + MOST_ENTRIES] for start in range(0, len(entries), MOST_ENTRIES)]
        calls = [self._call_queue(api, QueueARN=arn, Entries=part) for part in parts]
        failed: dict[str, str] = {}
        for response in [await calls[0]] if len(calls) == 1 else await asyncio.gather(*calls):  # mostly one: no task
            with reject_malformed(api):
                failed |= {str(entry["ReceiptHandle"]): str(entry["ErrorCode"]) for entry in response["Failed"]}
        return failed

    async def _described(self, api: str, **parameters: Any) -> QueueDescription:
        response = await self._call_queue(api, **parameters)
        with reject_malformed(api):
            return msgspec.convert(response["QueueDescription"], QueueDescription)

    async def _call_queue(self, api: str, **parameters: Any) -> dict[str, Any]:
        try:
            response = await self._transports.of(self._stream_arn).call(api, **parameters)
        except FatalKinesisError as error:
            if error.code in ("UnknownOperationException", "InvalidAction"):
                error.add_note("this endpoint or region has no queues")
            raise
        self._last_response = {"ResponseMetadata": response.get("ResponseMetadata")}
        return response
