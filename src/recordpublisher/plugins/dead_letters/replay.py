"""Replays dead letters into the job's handler or sink, or into the streams that the letters came from."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from itertools import groupby
from typing import Self

import msgspec

from recordpublisher.fetcher.conditional_store import wait_for_store
from recordpublisher.fetcher.pipeline.dead_letter_format import DeadLetter
from recordpublisher.fetcher.pipeline.dead_letters import dead_letter_sink_error
from recordpublisher.fetcher.sink import RejectedRecord, SinkContext
from recordpublisher.publishers.errors import ConfigurationError, InvalidRecordError
from recordpublisher.publishers.properties.job_properties import DEAD_LETTER_SINK, ON_BAD_RECORD, SINK, STREAMS
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.retry_properties import outage_policy
from recordpublisher.publishers.properties.sink_properties import SINK_STREAM
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.user_code import describe_error

from ..host.build_from_properties import build_sink, dead_letter_properties
from ..host.plugin_loading import load_registry
from ..runtime.argument_checks import checked_for_no_archive, decorators_and_type
from ..runtime.data_fetcher import DataFetcher
from ..runtime.stream_names import StreamNames, streams_argument
from ..sinks.callback import MemorySink
from ..sinks.kinesis import KinesisSink
from ..sinks.map import MapSink
from .base import Failures, StoredLetters
from .letters_in_stream import put_letters


async def replay_letters(
    letters: StoredLetters,
    target: JobTarget | StreamTarget | DropTarget,
    only: Collection[str] = (),
    payloads: Mapping[tuple[str, str], bytes] | None = None,
) -> AsyncGenerator[tuple[list[DeadLetter], list[tuple[DeadLetter, str]]], None]:
    """Replay every letter once, a chunk at a time. For each chunk, yield the letters that succeeded and those that failed, with the reason.

    - `only`: the sequence numbers of the letters to replay; empty for all.
    - `payloads`: new payloads by the shard's key and the letter's sequence number. If given, only these letters are replayed. A letter that
      fails is kept with its old payload.

    Letters that failed or were not chosen are kept.
    """
    # Closed even after an error, before the letters are: a queue's letters would otherwise stay hidden, and a list would lack them.
    async with aclosing(letters.chunks(is_replay=True)) as chunks:
        async for chunk in chunks:
            chosen = [letter for letter in chunk if not only or letter.number in only]
            if payloads is not None:
                chosen = [
                    _with_payload(letter, payloads)
                    for letter in chosen
                    if (letter.shard.key, letter.number) in payloads
                ]
            reasons = await target.replay(chosen) if chosen else {}
            done = {letter.key for letter in chosen if letter.key not in reasons}
            ended = [letter for letter in chunk if letter.key in done]
            # Letters that were not chosen are passed as failed ones: letters in a stream can be kept only by putting them there again.
            kept = await letters.finish(ended, [letter for letter in chunk if letter.key not in done]) or {}
            reasons = {**reasons, **kept}
            failed = [(letter, reasons[letter.key]) for letter in chunk if letter.key in reasons]
            yield [letter for letter in ended if letter.key not in kept], failed


def _with_payload(letter: DeadLetter, payloads: Mapping[tuple[str, str], bytes]) -> DeadLetter:
    payload = payloads[letter.shard.key, letter.number]
    return msgspec.structs.replace(letter, record=msgspec.structs.replace(letter.record, data=payload))


def stored_letters_of(properties: Properties) -> StoredLetters:
    """Return the dead letters that the job's dead-letter sink has written.

    Raises: ConfigurationError if dead letters of that kind of sink cannot be read, or if a setting of the dead-letter sink is missing.
    """
    name, own = (properties.value(DEAD_LETTER_SINK) or "").lower(), dead_letter_properties(properties)
    try:
        letters = _letters_of_sink(name, own)
    except ConfigurationError as error:
        raise dead_letter_sink_error(error) from None
    if letters is None:
        reason = (
            "" if not name else "this command cannot read the dead letters of that sink; the job can write them there"
        )
        valid = "jsonl, parquet, sql or kinesis"
        raise ConfigurationError(DEAD_LETTER_SINK.key, properties.value(DEAD_LETTER_SINK), valid, reason=reason)
    return letters


def _letters_of_sink(name: str, of_sink: Properties) -> StoredLetters | None:
    if name == "jsonl":
        from recordpublisher.plugins.sinks.files.jsonl_sink import JsonlSink

        from .letters_in_files import FileLetters, json_lines

        return FileLetters(JsonlSink, json_lines, of_sink)
    if name == "parquet":
        from recordpublisher.plugins.sinks.files.parquet_sink import ParquetSink

        from .letters_in_files import FileLetters, parquet_rows

        return FileLetters(ParquetSink, parquet_rows, of_sink)
    if name == "sql":
        from .letters_in_table import TableLetters

        return TableLetters(of_sink)
    if name == "kinesis":
        from .letters_in_stream import StreamLetters

        return StreamLetters(of_sink)
    return None


class JobTarget:
    """Replays letters into the job's handler or sink, with values, order, retries and timeouts as in the job.

    Letters of any age are replayed, even if the job skips old records. Each is written at least once: after a kill, the last ones are
    written again.

    - `program`: the `DataFetcher` of the job if the job is a Python program; None if properties alone describe the job.

    Raises: ConfigurationError if the job has no sink, or if its sink writes an archive, keeps records only in memory, or does not accept
    the values of the letters.
    """

    def __init__(self, properties: Properties, program: DataFetcher | None = None) -> None:
        # With any other policy, a letter that cannot be decoded would end the replay or be lost.
        given, registry, sink = properties.merged({ON_BAD_RECORD.key: "DEAD_LETTER"}), load_registry(), None
        if program is None:
            self._decorator_for, self._value_type = decorators_and_type(registry, given)
        else:
            sink, self._decorator_for, self._value_type = program.sink_and_decorators(given)
        reason = "its files say that they have all records between two, and dead letters are only some; replay with --to stream"
        sink = checked_for_no_archive(given, build_sink(registry, given) if sink is None else sink, reason)
        if isinstance(sink, MemorySink):
            reason = "the replayed records would be lost at the end of this command"
            valid = "another sink, for example -p flink.sink=map -p flink.sink.map.function=MODULE:FUNCTION"
            raise ConfigurationError(SINK.key, "memory", valid, reason=reason)
        self._sink = sink.for_dead_letters() if isinstance(sink, MapSink) else sink
        self._streams = tuple(StreamNames(streams_argument(properties)).given) if program is None else ()
        self._failed: dict[tuple[str, str, int], str] = {}
        self._outages = outage_policy(properties)

    async def __aenter__(self) -> Self:
        context = SinkContext(
            streams=self._streams,
            reject=self._reject_one,
            reject_together=self._reject,
            outages=self._outages,
            value_type=self._value_type,
        )
        await self._sink.open(context)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._sink.close()

    async def replay(self, letters: Sequence[DeadLetter]) -> Failures:
        """Replay the letters and return the failures.

        A handler is called for each letter, with the concurrency of the job. Any other sink gets the letters by `write`, and is flushed.
        """
        self._failed = {}
        # Sorted, because a handler with ordering expects the records of a shard in their order.
        for shard, of_shard in groupby(sorted(letters, key=_order), lambda letter: letter.shard):
            records = [letter.record for letter in of_shard]
            size = sum(len(record.data) for record in records)
            batch = RecordBatch(shard, records, raw_count=len(records), raw_bytes=size)
            decorator = self._decorator_for(shard, ShardMetrics())
            await decorator.prepare(batch)
            for part in decorator.decorated_parts(batch):
                for bad in part.poisoned:
                    self._fail(part, bad.record.sequence_number, bad.record.sub_sequence_number, bad.reason)
                if len(part):
                    await self._sink.write(part)
        await wait_for_store(self._sink.flush, self._outages, f"the sink {type(self._sink).__name__}")
        return self._failed

    async def _reject_one(self, record: RecordBatch, reason: str) -> None:
        await self._reject([(record, reason)], False)

    async def _reject(self, rejected: Sequence[RejectedRecord], is_logged: bool) -> None:
        for batch, reason in rejected:
            self._fail(batch, batch.sequence_numbers[0], batch.sub_sequence_numbers[0], reason)

    def _fail(self, batch: RecordBatch, number: str, sub_number: int, reason: str) -> None:
        self._failed[batch.shard.key, number, sub_number] = reason


class StreamTarget(AsyncExitStack):
    """Puts each letter into the stream that it came from, with its partition key and explicit hash key. It has a sink for each stream.

    A letter that was stored in a stream does not say where it came from. So it goes to the job's stream, if the job has only one.
    """

    def __init__(self, properties: Properties) -> None:
        super().__init__()
        self._properties = properties
        self._streams = StreamNames(streams_argument(properties)).given
        self._sinks: dict[str, KinesisSink] = {}
        is_in_stream = (properties.value(DEAD_LETTER_SINK) or "").lower() == "kinesis"
        self._place = dead_letter_properties(properties).value(SINK_STREAM) if is_in_stream else None

    async def replay(self, letters: Sequence[DeadLetter]) -> Failures:
        """Put the letters, and wait until all are acknowledged. Return the letters that no stream can take, such as one that is too large.

        Raises: ConfigurationError if the job does not read a letter's stream, or if it is not known from which stream a letter came;
        SinkError if a record cannot be put.
        """
        failed: dict[tuple[str, str, int], str] = {}
        for letter in letters:
            sink = await self._sink_of(letter.shard.stream)
            try:
                await put_letters(sink, [letter])
            except InvalidRecordError as error:  # The sink stays usable.
                failed[letter.key] = describe_error(error)
        for sink in self._sinks.values():
            await sink.flush()
        return failed

    async def _sink_of(self, stream: str) -> KinesisSink:
        if stream == self._place and stream not in self._streams:
            if len(self._streams) > 1:
                streams = ", ".join(self._streams)
                reason = f"letters in a stream do not say from which of {streams} they came; replay these to the job"
                raise ConfigurationError(DEAD_LETTER_SINK.key, "kinesis", "jsonl, parquet or sql", reason=reason)
            (stream,) = self._streams
        if stream not in self._sinks:
            if stream not in self._streams:
                reason = f"some dead letters came from the stream '{stream}'"
                raise ConfigurationError(
                    STREAMS.key, ", ".join(self._streams), "the streams of all dead letters", reason=reason
                )
            sink = KinesisSink(self._streams[stream], self._properties)
            self._sinks[stream] = await self.enter_async_context(sink)
        return self._sinks[stream]


def _order(letter: DeadLetter) -> tuple[str, int, str, int]:
    shard, number, sub_number = letter.key
    return shard, len(number), number, sub_number


class DropTarget(AsyncExitStack):
    """Drops the letters: each counts as replayed, so it is removed."""

    async def replay(self, letters: Sequence[DeadLetter]) -> Failures:
        """Return no failures, so that each letter counts as replayed."""
        return {}
