"""Reads dead letters from a stream. A replay has positions of its own. Letters that fail again are put to the stream's tip."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial

from recordpublisher.fetcher.pipeline.dead_letter_format import DeadLetter
from recordpublisher.fetcher.sink import State
from recordpublisher.plugins.host.build_from_properties import build_store
from recordpublisher.plugins.host.manager import load_registry
from recordpublisher.plugins.lag.job_state import JobStateReader
from recordpublisher.plugins.runtime.streaming import stream
from recordpublisher.plugins.sinks.kinesis import KinesisSink
from recordpublisher.plugins.stores.by_location import back_end_of, missing_folder
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.job import CHECKPOINT_INTERVAL, JOB_NAME, STATE_URI
from recordpublisher.publishers.properties.groups.sinks import SINK_STREAM
from recordpublisher.publishers.properties.properties import Properties

from .stored_letters import StoredLetters, put_letters


class StreamLetters(StoredLetters):
    """Reads the letters that are in the stream now. The position of a replay is stored next to the positions of the job.

    Raises: ConfigurationError if no stream, or no place for positions, is set.
    """

    def __init__(self, properties: Properties) -> None:
        for needed in (SINK_STREAM, STATE_URI):
            if properties.value(needed) is None:
                raise ConfigurationError(needed.key, None, needed.valid, reason="the dead letters are in a stream")
        self._stream, uri = str(properties.value(SINK_STREAM)), str(properties.value(STATE_URI))
        self._place = uri if back_end_of(uri) == "SQL" else f"{uri.rstrip('/')}-dead-letters"
        access = {key: value for key, value in properties.items() if key.lower().startswith("aws.")}
        self._reading = Properties({**access, JOB_NAME.key: properties.value(JOB_NAME), CHECKPOINT_INTERVAL.key: 1000})
        self._keeping = self._reading.merged({STATE_URI.key: self._place})
        self._of_sink = properties

    async def chunks(self, *, is_replay: bool) -> AsyncGenerator[Sequence[DeadLetter], None]:
        """Yield the batches that were read. A batch is finished when the next one is requested."""
        now = int(time.time() * 1000)
        reading = partial(stream, self._stream, self._reading, stop_at_tip=True, until_event_time=now)
        # `stream` stores positions only if the call itself says where.
        batches = reading(state_uri=self._place) if is_replay else reading(restore=await self._stored())
        async with aclosing(batches):
            async for batch in batches:
                yield [DeadLetter(batch.shard, record, "") for record in batch.records]

    async def finish(self, succeeded: Sequence[DeadLetter], failed: Sequence[DeadLetter]) -> None:
        """Put the failed letters into the stream again."""
        if failed:
            async with KinesisSink(self._of_sink) as sink:
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
