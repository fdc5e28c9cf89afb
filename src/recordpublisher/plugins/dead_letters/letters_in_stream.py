"""Reads the dead letters in a stream, and puts records of dead letters into streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from functools import partial

from recordpublisher.fetcher.pipeline.dead_letter_format import DeadLetter
from recordpublisher.fetcher.sink import State
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.properties.job_properties import CHECKPOINT_INTERVAL, JOB_NAME, STATE_URI
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import LIST_SHARDS_RETRIES
from recordpublisher.publishers.properties.sink_properties import SINK_STREAM
from recordpublisher.publishers.retry import call_with_retries
from recordpublisher.publishers.shards import canonical_hash_key

from ..host.build_from_properties import build_store
from ..host.plugin_loading import load_registry
from ..lag.job_state import JobStateReader
from ..runtime.stream_and_consume import stream
from ..sinks.kinesis import KinesisSink
from ..stores.back_ends import back_end_of
from ..stores.by_location import missing_folder
from .base import StoredLetters


class StreamLetters(StoredLetters):
    """Letters in a stream. `chunks` ends at the newest letter. Letters that fail again are put into the stream again.

    A replay stores how far it has read, apart from the job's positions. The next replay continues there.

    Raises: ConfigurationError if `flink.sink.stream` or `flink.state.uri` of the dead-letter sink is not set.
    """

    def __init__(self, properties: Properties) -> None:
        for needed in (SINK_STREAM, STATE_URI):
            if properties.value(needed) is None:
                raise ConfigurationError(needed.key, None, needed.valid, reason="the dead letters are in a stream")
        self._stream, uri = str(properties.value(SINK_STREAM)), str(properties.value(STATE_URI))
        # In a shared place the job and the replay use different names, because the job name of the dead-letter sink has a suffix.
        self._place = uri if back_end_of(uri).is_shared else f"{uri.rstrip('/')}-dead-letters"
        access = {key: value for key, value in properties.items() if key.lower().startswith("aws.")}
        self._reading = Properties({**access, JOB_NAME.key: properties.value(JOB_NAME), CHECKPOINT_INTERVAL.key: 1000})
        self._keeping = self._reading.merged({STATE_URI.key: self._place})
        self._sink_properties = properties

    async def chunks(self, *, is_replay: bool) -> AsyncGenerator[Sequence[DeadLetter], None]:
        """Yield the letters of each batch that was read. A batch counts as replayed when the caller requests the next one."""
        until = await self._service_second()
        if is_replay:
            # Letters that are put again arrive after the second, so they are not replayed again.
            await asyncio.sleep(1.0)
        reading = partial(stream, self._stream, self._reading, stop_at_tip=True, until_event_time=until)
        # Only a replay stores positions, because `stream` stores them only if the call itself names the place.
        batches = reading(state_uri=self._place) if is_replay else reading(restore=await self._stored())
        async with aclosing(batches):
            async for batch in batches:
                yield [DeadLetter(batch.shard, record, "") for record in batch.records]

    async def finish(self, succeeded: Sequence[DeadLetter], failed: Sequence[DeadLetter]) -> None:
        """Put the failed letters into the stream again."""
        if failed:
            async with KinesisSink(self._sink_properties) as sink:
                await put_letters(sink, failed)

    async def _service_second(self) -> int:
        """Return the end of the current second (epoch ms) by the service's clock. This machine's clock may differ."""
        async with KinesisClient(self._reading, [self._stream]) as client:
            asked = partial(client.server_time_ms, self._stream)
            now = await call_with_retries(asked, LIST_SHARDS_RETRIES.policy(self._reading))
        return now // 1000 * 1000 + 999

    async def _stored(self) -> list[State] | None:
        """Return the positions that the last replay stored, or None if there was no replay."""
        store = None if missing_folder(self._place) else build_store(load_registry(), self._keeping)
        if store is None:
            return None
        try:
            return [*await JobStateReader(store).load()] or None
        finally:
            await store.close()


async def put_letters(sink: KinesisSink, letters: Iterable[DeadLetter]) -> None:
    """Put the original records of dead letters into a stream, with their keys. Raises: SinkError if a record cannot be put."""
    for letter in letters:
        record = letter.record
        hash_key = canonical_hash_key(record.explicit_hash_key)
        await sink.put(record.data, record.partition_key or record.sequence_number, hash_key)
