"""Reads a queue of Amazon SQS: the stream is its name, a record its message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import boto3

import recordpublisher as rp
from recordpublisher.publishers.properties import integer, text

ENDPOINT = text("flink.sqs.endpoint", "Another endpoint than that of the region.", group="SQS")
VISIBILITY = integer("flink.sqs.visibility.timeout", "For how long a message is hidden.", 30, unit="s", group="SQS")
RECEIVERS, WAIT_SECONDS, MOST = 4, 1, 10


class Message(rp.UserRecord):
    """A record with what acknowledges it."""

    receipt: str = ""


class SqsQueue(rp.QueueSource):
    """Owns the client. A receive is never cut off: its messages would be hidden from everybody until their time is over."""

    most_receivers, full_receive = RECEIVERS, MOST

    def __init__(self, properties: rp.Properties) -> None:
        self._visibility = properties.value(VISIBILITY)
        self.visibility_seconds = float(self._visibility)
        self._sqs = boto3.client("sqs", endpoint_url=properties.value(ENDPOINT))

    def prepare(self, streams: Sequence[str]) -> None:
        self._name = streams[0]

    async def open(self) -> None:
        self._url = (await asyncio.to_thread(self._sqs.get_queue_url, QueueName=self._name))["QueueUrl"]

    async def receive(self, metrics: rp.ShardMetrics) -> list[Message]:
        receiving = asyncio.ensure_future(asyncio.to_thread(self._receive))
        try:
            return await asyncio.shield(receiving)
        except asyncio.CancelledError:
            await self.release(await receiving)
            raise

    async def acknowledge(self, records: Sequence[rp.UserRecord]) -> set[str]:
        return await self._each(self._sqs.delete_message_batch, records)

    async def prolong(self, records: Sequence[rp.UserRecord]) -> set[str]:
        return await self._each(self._sqs.change_message_visibility_batch, records, VisibilityTimeout=self._visibility)

    async def release(self, records: Sequence[rp.UserRecord]) -> set[str]:
        return await self._each(self._sqs.change_message_visibility_batch, records, VisibilityTimeout=0)

    def _receive(self) -> list[Message]:
        received = self._sqs.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=MOST,
            WaitTimeSeconds=WAIT_SECONDS,
            VisibilityTimeout=self._visibility,
            MessageSystemAttributeNames=["SentTimestamp"],
        )
        return [
            Message(
                message["Body"].encode(),
                message["MessageId"],
                int(message["Attributes"]["SentTimestamp"]) / 1000,
                receipt=message["ReceiptHandle"],
            )
            for message in received.get("Messages", ())
        ]

    async def _each(self, call: Callable[..., Any], records: Sequence[Any], **more: Any) -> set[str]:
        failed = set[str]()
        for start in range(0, len(records), MOST):
            part = records[start : start + MOST]
            entries = [{"Id": str(number), "ReceiptHandle": each.receipt, **more} for number, each in enumerate(part)]
            answer = await asyncio.to_thread(call, QueueUrl=self._url, Entries=entries)
            failed |= {part[int(each["Id"])].sequence_number for each in answer.get("Failed", ())}
        return failed
