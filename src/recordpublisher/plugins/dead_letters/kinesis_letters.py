"""Dead letters in Kinesis: in the stream of a dead-letter sink, or of the queue that a job reads."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial

from recordpublisher.fetcher.pipeline.dead_letters import DeadLetter
from recordpublisher.fetcher.sink import State
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.kinesis_queue import KinesisQueue
from recordpublisher.publishers.properties.groups.job import CHECKPOINT_INTERVAL, JOB_NAME, STATE_URI
from recordpublisher.publishers.properties.groups.reading import QUEUE_CREATION
from recordpublisher.publishers.properties.groups.sinks import SINK_STREAM
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.shards import Shard

from ..host.build_from_properties import build_store
from ..host.manager import load_registry
from ..lag.job_state import JobStateReader
from ..runtime.stream_names import StreamNames, streams_argument
from ..runtime.streaming import stream
from ..sinks.kinesis import KinesisSink
from ..stores.by_location import back_end_of, missing_folder
from .stored_letters import Failures, StoredLetters, put_letters


class StreamLetters(StoredLetters):
    """Letters that are in a stream now. Letters that fail again are put to the stream's tip.

    A replay has positions of its own, which are stored next to the positions of the job.

    Raises: ConfigurationError if no stream, or no place for positions, is set.
    """

    def __init__(self, properties: Properties) -> None:
        for needed in (SINK_STREAM, STATE_URI):
            if properties.value(needed) is None:
                raise ConfigurationError(needed.key, None, needed.valid, reason="the dead letters are in a stream")
        self._stream, uri = str(properties.value(SINK_STREAM)), str(properties.value(STATE_URI))
        # The rows of a database are separated by the name of the job, which has a suffix for dead letters.
        self._place = uri if back_end_of(uri) == "SQL" else f"{uri.rstrip('/')}-dead-letters"
        access = {key: value for key, value in properties.items() if key.lower().startswith("aws.")}
        self._reading = Properties({**access, JOB_NAME.key: properties.value(JOB_NAME), CHECKPOINT_INTERVAL.key: 1000})
        self._keeping = self._reading.merged({STATE_URI.key: self._place})
        self._sink_properties = properties

    async def chunks(self, *, is_replay: bool) -> AsyncGenerator[Sequence[DeadLetter], None]:
        """Yield the batches that were read. A batch is finished when the next one is requested."""
        now = int(time.time() * 1000)
        reading = partial(stream, self._stream, self._reading, stop_at_tip=True, until_event_time=now)
        # Only a replay stores positions: `stream` does so only if the call itself names the place.
        batches = reading(state_uri=self._place) if is_replay else reading(restore=await self._stored())
        async with aclosing(batches):
            async for batch in batches:
                yield [DeadLetter(batch.shard, record, "") for record in batch.records]

    async def finish(self, succeeded: Sequence[DeadLetter], failed: Sequence[DeadLetter]) -> None:
        """Put the failed letters into the stream again."""
        if failed:
            async with KinesisSink(self._sink_properties) as sink:
                await put_letters(sink, failed)

    async def _stored(self) -> list[State] | None:
        """Return where the last replay ended, or None if there was none."""
        store = None if missing_folder(self._place) else build_store(load_registry(), self._keeping)
        if store is None:
            return None
        try:
            return [*await JobStateReader(store).load()] or None
        finally:
            await store.close()


# Reads the dead letters of the queue that a job reads. A replay puts them back, with a receive count of 0.

HIDDEN_SECONDS = 120
"""How long letters are hidden from other processes while they are shown or replayed. After that they are visible again."""


class QueueLetters(StoredLetters):
    """Letters of the queue that a job reads. A replay puts them back with a receive count of 0, or discards them.

    Letters are received until none is left. Those that are neither restored nor discarded become visible again.

    - `restores`: whether replayed letters go back into the queue. If not, they are discarded.

    Raises: ConfigurationError if the queue's properties are invalid.
    """

    def __init__(self, properties: Properties, *, restores: bool) -> None:
        streams = list(StreamNames(streams_argument(properties)).given.values())
        KinesisQueue.check(properties, streams)
        # A command that looks at a queue must not create one.
        self._queue = KinesisQueue(properties.merged({QUEUE_CREATION.key: "NONE"}))
        self._queue.prepare(streams)
        self._api = "RestoreDeadLetterQueueRecords" if restores else "AcknowledgeDeadLetterQueueRecords"
        self._stream = streams[0]

    async def chunks(self, *, is_replay: bool) -> AsyncGenerator[Sequence[DeadLetter], None]:
        """Yield ten letters at a time."""
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
            # Letters that were only shown, or that failed, would otherwise stay hidden for two minutes.
            await client.settle("UpdateDeadLetterQueueRecordsVisibility", arn, sorted(self._held), 0)

    async def finish(self, succeeded: Sequence[DeadLetter], failed: Sequence[DeadLetter]) -> Failures:
        """Restore or discard the letters that succeeded. Return those for which that call failed.

        All letters that failed become visible at the end, so they are not received again before.
        """
        handles = [letter.place for letter in succeeded]
        codes = await self._queue.client().settle(self._api, await self._queue.queue_arn(), handles)
        self._held.difference_update(set(handles) - codes.keys())
        return {letter.key: f"{self._api}: {codes[letter.place]}" for letter in succeeded if letter.place in codes}

    async def close(self) -> None:
        """Close the client."""
        await self._queue.close()
