"""Reads the dead letters of the queue that a job reads. A replay puts them back, with a receive count of 0."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from math import inf

from recordpublisher.fetcher.pipeline.dead_letter_format import DeadLetter
from recordpublisher.publishers.aggregation.deaggregation import Deaggregator
from recordpublisher.publishers.kinesis.ports import ReadResponse
from recordpublisher.publishers.kinesis_queue_source import KinesisQueue, ReceivedRecord
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.queue_properties import QUEUE_CREATION
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import HashRange, Shard

from ..runtime.stream_names import StreamNames, streams_argument
from .base import Failures, StoredLetters

HIDDEN_SECONDS = 120
"""How long letters are hidden from other processes while they are shown or replayed (seconds). After that they are visible again."""

_INCOMPLETE = "kept, because other records of its aggregate have failed or were not chosen: a queue removes an aggregate only as a whole"


class QueueLetters(StoredLetters):
    """Letters of the queue that a job reads. A replay puts them back with a receive count of 0, or discards them.

    Letters are received until every one was received once. At the end those that remain become visible to other receivers again.

    An aggregate of the KPL is shown and replayed as its sub-records, as the job reads it. The queue keeps it until all of them have
    succeeded in one replay.

    - `restores`: whether replayed letters go back into the queue. If not, they are discarded.

    Raises: ConfigurationError if the queue's properties are invalid.
    """

    def __init__(self, properties: Properties, *, restores: bool) -> None:
        names = StreamNames(streams_argument(properties)).given
        streams = list(names.values())
        KinesisQueue.check(properties, streams)
        # A command that looks at a queue must not create one.
        self._queue = KinesisQueue(properties.merged({QUEUE_CREATION.key: "NONE"}))
        self._queue.prepare(streams)
        self._api = "RestoreDeadLetterQueueRecords" if restores else "AcknowledgeDeadLetterQueueRecords"
        # The name, as in the job: a handler or a replay into the stream would not know the stream by its ARN.
        (self._stream,) = names

    async def chunks(self, *, is_replay: bool) -> AsyncGenerator[Sequence[DeadLetter], None]:
        """Yield the records of at most ten letters at a time, each letter once."""
        arn, client = await self._queue.queue_arn(), self._queue.client()
        # Later records are left to the next replay. A replay into the stream whose records fail again would otherwise never end.
        until = inf if client.last_response_ms is None else client.last_response_ms / 1000 + 1
        self._held: dict[str, str] = {}
        seen: set[str] = set()
        # A replay that takes longer than letters are hidden receives again those that it keeps. The number of those received since the
        # last new letter tells whether there are any others.
        again = 0
        try:
            while again <= len(seen) and (received := await client.receive(arn, 1, HIDDEN_SECONDS, are_dead=True)):
                self._held.update((letter.record_id, letter.handle) for letter in received)
                unseen = [letter for letter in received if letter.record_id not in seen]
                again = 0 if unseen else again + len(received)
                seen.update(letter.record_id for letter in unseen)
                if not (new := [letter for letter in unseen if letter.arrival < until]):
                    continue
                shard = Shard(self._stream, "queue")
                yield [
                    DeadLetter(shard, record, "received too often", letter.handle)
                    for letter in new
                    for record in await _records_of(letter)
                ]
        finally:
            # Make letters that were only shown, or that failed, visible at once. Otherwise they would stay hidden for two minutes.
            await client.settle("UpdateDeadLetterQueueRecordsVisibility", arn, sorted(self._held.values()), 0)

    async def finish(self, succeeded: Sequence[DeadLetter], failed: Sequence[DeadLetter]) -> Failures:
        """Restore or discard the letters in `succeeded`. Return those that remain, each with the reason.

        The service may refuse a letter. A letter also remains if it is a sub-record of an aggregate of which another part has failed. The
        letters that failed stay hidden until the replay ends, so the replay does not receive them again.
        """
        incomplete = {letter.place for letter in failed}
        ended = [letter for letter in succeeded if letter.place not in incomplete]
        handles = list(dict.fromkeys(letter.place for letter in ended))
        codes = await self._queue.client().settle(self._api, await self._queue.queue_arn(), handles)
        for letter in ended:
            if letter.place not in codes:
                self._held.pop(letter.record.sequence_number, None)
        refused = {letter.key: f"{self._api}: {codes[letter.place]}" for letter in ended if letter.place in codes}
        return refused | {letter.key: _INCOMPLETE for letter in succeeded if letter.place in incomplete}

    async def close(self) -> None:
        """Close the client."""
        await self._queue.close()


async def _records_of(letter: ReceivedRecord) -> list[UserRecord]:
    """Return the records of a letter: the sub-records if it is an aggregate, otherwise the record itself."""
    record = UserRecord(letter.data, letter.record_id, letter.arrival, letter.partition_key)
    # A queue has no shards, so sub-records of any hash key are kept.
    deaggregator = Deaggregator(Shard("queue", "queue", hash_range=HashRange()), ShardMetrics())
    parts = deaggregator.batches(ReadResponse([record], None), None, StartingPosition.trim_horizon())
    return [each async for part in parts for each in part.records] or [record]
