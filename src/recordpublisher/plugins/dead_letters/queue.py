"""QueueLetters: the dead letters of the queue that a job reads; a replay puts them back, with no receive counted."""

from collections.abc import AsyncGenerator, Sequence

from recordpublisher.fetcher.pipeline.dead_letter_format import DeadLetter
from recordpublisher.plugins.runtime.stream_names import StreamNames, streams_argument
from recordpublisher.publishers.properties.groups.queue import QUEUE_CREATION
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.queue.kinesis_queue import KinesisQueue
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.shards import Shard

from .stored_letters import Failures, StoredLetters

HIDDEN_SECONDS = 120
"""From other processes, while letters are shown or replayed; then they are put back."""


class QueueLetters(StoredLetters):
    """Receives letters until there are no more, and makes visible again what is neither restored nor discarded."""

    def __init__(self, properties: Properties, *, restores: bool) -> None:
        """`restores`: what was replayed goes back into the queue; else it is discarded. Raises: ConfigurationError."""
        streams = list(StreamNames(streams_argument(properties)).given.values())
        KinesisQueue.check(properties, streams)
        self._queue = KinesisQueue(properties.merged({QUEUE_CREATION.key: "NONE"}))
        self._queue.prepare(streams)
        self._api = "RestoreDeadLetterQueueRecords" if restores else "AcknowledgeDeadLetterQueueRecords"
        self._stream = streams[0]

    async def chunks(self, *, is_replay: bool) -> AsyncGenerator[Sequence[DeadLetter], None]:
        """Ten letters at a time."""
        arn, client = await self._queue.queue_arn(), self._queue.client()
        self._held: set[str] = set()
        try:
            while received := await client.receive(arn, 1, HIDDEN_SECONDS, are_dead=True):
                self._held.update(letter.handle for letter in received)
                yield [
                    DeadLetter(
                        Shard(self._stream, "queue"),
                        UserRecord(letter.data, letter.record_id, letter.arrival, letter.partition_key),
                        "received too often",
                        letter.handle,
                    )
                    for letter in received
                ]
        finally:
            await client.settle("UpdateDeadLetterQueueRecordsVisibility", arn, sorted(self._held), 0)

    async def finish(self, succeeded: Sequence[DeadLetter], failed: Sequence[DeadLetter]) -> Failures:
        """Restore or discard what succeeded; what failed, also in that, becomes visible at the end, and is not received again before."""
        handles = [letter.place for letter in succeeded]
        codes = await self._queue.client().settle(self._api, await self._queue.queue_arn(), handles)
        self._held.difference_update(set(handles) - codes.keys())
        return {letter.key: f"{self._api}: {codes[letter.place]}" for letter in succeeded if letter.place in codes}

    async def close(self) -> None:
        """Close the client."""
        await self._queue.close()
