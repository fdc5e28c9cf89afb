"""Reads a queue of Amazon SQS: the stream is its name, a receiver is a shard, a record its message."""

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


class SqsFactory(rp.RecordPublisherFactory):
    """Owns the client of all receivers."""

    visibility_seconds = 30.0

    def __init__(self, properties: rp.Properties) -> None:
        self.visibility_seconds = float(properties.value(VISIBILITY))
        self._sqs = boto3.client("sqs", endpoint_url=properties.value(ENDPOINT))

    async def create(
        self, shard: rp.Shard, starting_position: rp.StartingPosition, metrics: rp.ShardMetrics
    ) -> SqsPublisher:
        found = await asyncio.to_thread(self._sqs.get_queue_url, QueueName=shard.stream)
        return SqsPublisher(self._sqs, found["QueueUrl"], shard, int(self.visibility_seconds))

    async def discover(self, stream: str, after: str | None) -> list[rp.Shard]:
        shards = [rp.Shard(stream, f"receiver-{number}") for number in range(RECEIVERS)]
        return [shard for shard in shards if after is None or shard.shard_id > after]

    def order_of(self, sequence: str) -> Any:
        return sequence


class SqsPublisher(rp.RecordPublisher):
    """One receiver. A receive is never cut off: its messages would be hidden from everybody until their time is over."""

    def __init__(self, sqs: Any, url: str, shard: rp.Shard, visibility: int) -> None:
        self._sqs, self._url, self._shard, self._visibility = sqs, url, shard, visibility

    async def run(self, consumer: rp.BatchConsumer) -> rp.RunResult:
        while True:
            receiving = asyncio.ensure_future(asyncio.to_thread(self._receive))
            try:
                messages = await asyncio.shield(receiving)
            except asyncio.CancelledError:
                await self.release(await receiving)
                raise
            behind = None if messages else 0  # an empty receive: nothing is left
            size = sum(len(message.data) for message in messages)
            await consumer(rp.RecordBatch(self._shard, messages, behind, raw_count=len(messages), raw_bytes=size))

    async def acknowledge(self, records: Sequence[rp.UserRecord]) -> None:
        await self._each(self._sqs.delete_message_batch, records)

    async def prolong(self, records: Sequence[rp.UserRecord]) -> None:
        await self._each(self._sqs.change_message_visibility_batch, records, VisibilityTimeout=self._visibility)

    async def release(self, records: Sequence[rp.UserRecord]) -> None:
        await self._each(self._sqs.change_message_visibility_batch, records, VisibilityTimeout=0)

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

    async def _each(self, call: Callable[..., Any], records: Sequence[Any], **more: Any) -> None:
        for start in range(0, len(records), MOST):
            part = enumerate(records[start : start + MOST])
            entries = [{"Id": str(number), "ReceiptHandle": record.receipt, **more} for number, record in part]
            await asyncio.to_thread(call, QueueUrl=self._url, Entries=entries)
