"""What a checkpoint of MapSink stores while a batch is being handled: the position of the first record that is not."""

import asyncio
from dataclasses import replace

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.sink import Checkpoint, SinkContext
from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.testing import EPOCH_MS, run_virtual

from .map_jobs import Running, keyed, settled

ENTRY = {"start": "TRIM_HORIZON", "position": "9", "continuation": "77", "watermark": 99, "ended": True, "lease": 4}


def with_watermarks(batch):
    return replace(batch, read_position=SequenceNumber("9"), watermarks=list(range(10, 10 + len(batch))))


def stored_after(batches, handled, *, ordering="NONE", entry=ENTRY):
    """The entry of the shard that a checkpoint gets when these payloads are handled."""

    async def job():
        handler = Running()
        sink = rp.MapSink(handler, ordering=ordering)
        await sink.open(SinkContext())
        for batch in batches:
            await sink.write(batch)
        await settled()
        for data in handled:
            handler.open[data].set_result(None)
            await settled()
        state = await sink.flush(Checkpoint({"shards": {"orders/shardId-0": entry}}, may_be_partial=True))
        await sink.close()
        return state["shards"].get("orders/shardId-0")

    return run_virtual(job())


def test_the_position_is_that_before_the_first_record_that_is_not_handled():
    entry = stored_after([with_watermarks(keyed("a", "b", "c", "d"))], [b"0", b"1", b"3"])
    assert entry == {"start": "TRIM_HORIZON", "lease": 4, "position": "2", "watermark": 11, "arrivalMs": EPOCH_MS + 500}


@pytest.mark.parametrize("ordering", ["PER_KEY", "PER_SHARD"])
def test_it_is_the_same_in_every_ordering(ordering):
    entry = stored_after([with_watermarks(keyed("a", "a", "a"))], [b"0", b"1"], ordering=ordering)
    assert entry["position"] == "2"


def test_nothing_is_stored_before_the_first_record_is_handled():
    assert stored_after([with_watermarks(keyed("a", "b"))], [b"1"]) is None


def test_within_an_aggregate_it_has_the_sub_sequence_number():
    batch = keyed("a", "b", "c")
    aggregate = [
        rp.UserRecord(record.data, "5", record.arrival, record.partition_key, None, number)
        for number, record in enumerate(batch.records)
    ]
    entry = stored_after([with_watermarks(replace(batch, records=aggregate))], [b"0", b"1"])
    assert ShardState.from_json(entry).position == SequenceNumber("5", 1)


def test_it_is_the_end_of_the_last_batch_that_is_handled_when_the_next_is_not_begun():
    first = replace(with_watermarks(keyed("a", "b")), read_position=SequenceNumber("2"))
    second = with_watermarks(keyed("c"))
    second = replace(second, records=[rp.UserRecord(b"later", "3", second.records[0].arrival, "c")])
    entry = stored_after([first, second], [b"0", b"1"])
    assert (entry["position"], entry["watermark"]) == ("2", 11)


def test_the_whole_state_is_stored_when_everything_is_handled():
    assert stored_after([with_watermarks(keyed("a", "b"))], [b"0", b"1"]) == ENTRY


async def test_a_job_that_ends_at_a_poison_record_handles_the_records_before_it_once(tmp_path, monkeypatch):
    from fakes.memory_streams import PROPERTIES, install

    install(monkeypatch, {"a": [b"%d" % number for number in range(100)]})
    calls = []

    async def handle(record):
        calls.append(record.data)
        await asyncio.sleep(0.002)
        if record.data == b"90":
            raise ValueError("poison")

    given = {
        **PROPERTIES,
        "flink.job.name": "job",
        "flink.state.checkpoint.interval": "20",
        "flink.state.uri": tmp_path,
    }
    for _ in range(3):  # as a supervisor does
        sink = rp.MapSink(handle, ordering="PER_SHARD", retries=0)
        async with rp.DataFetcher(["orders"], {**given, "flink.state.uri": str(tmp_path)}, sink=sink) as fetcher:
            with pytest.raises(rp.SinkError):
                await fetcher.run()
    assert len(calls) < 160
