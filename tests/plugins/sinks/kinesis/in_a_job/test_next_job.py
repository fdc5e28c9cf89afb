"""A program that gives its sink to the next DataFetcher: nothing of the job before is written, stored or blamed."""

import asyncio

import pytest

from recordpublisher.fetcher.sink import Checkpoint, SinkContext
from recordpublisher.publishers.errors import FatalKinesisError, TransientError
from recordpublisher.testing import batch_of, run_virtual

from fakes.writable_stream import FakeKinesis, a_sink

CONTEXT = SinkContext(streams=("in",))
GIVEN = {"flink.job.drain.timeout": "1s"}
KINDS = [{}, {"flink.sink.kinesis.ordering": "PER_KEY"}, {"AggregationEnabled": True}]


def state(position):
    return {"version": 2, "generation": 1, "shards": {"in/shardId-000000000000": position}}


@pytest.mark.parametrize("more", KINDS, ids=["plain", "per key", "aggregates"])
def test_records_and_positions_that_an_outage_has_left_are_forgotten(more):  # S6
    """The next start reads the records again. Its first state must be its own, also after its positions were reset."""

    async def job():
        fake = FakeKinesis()
        sink = a_sink(fake, {**GIVEN, **more})
        await sink.open(CONTEXT)
        await sink.flush(Checkpoint(state("first")))
        fake.fail = TransientError("PutRecords", "ClientConnectorError", "refused")
        await sink.write(batch_of(b"1", b"2", stream="in"))
        await asyncio.sleep(5)
        await sink.close()

        await sink.open(CONTEXT)
        begun = await sink.flush(Checkpoint(state("reset"), may_be_partial=True)), sink.unfinished().records
        fake.fail = None
        await sink.write(batch_of(b"1", b"2", stream="in"))
        await sink.flush(Checkpoint(state("second")))
        await sink.close()
        return begun, [data for _, data in fake.user_records()]

    assert run_virtual(job()) == ((state("reset"), 0), [b"1", b"2"])


def test_an_error_that_ended_the_sink_does_not_end_the_next_job():
    async def job():
        fake = FakeKinesis()
        sink = a_sink(fake)
        await sink.open(CONTEXT)
        fake.fail = FatalKinesisError("PutRecords", "AccessDeniedException", "not allowed")
        await sink.write(batch_of(b"1", stream="in"))
        with pytest.raises(FatalKinesisError):
            await sink.flush(Checkpoint(state("first")))
        await sink.close()

        fake.fail = None
        await sink.open(CONTEXT)
        await sink.write(batch_of(b"1", stream="in"))
        await sink.flush(Checkpoint(state("second")))
        await sink.close()
        return [data for _, data in fake.user_records()]

    assert run_virtual(job()) == [b"1"]


def test_dead_letters_of_the_second_job_do_not_depend_on_the_first():  # S7
    async def job():
        fake, letters = FakeKinesis(), []
        fake.refuse = lambda entry: "ValidationException"
        sink = a_sink(fake, {"flink.sink.kinesis.failonerror": "false"})

        async def reject(record, reason):
            letters.append(record.data[0])

        for number, has_letters in enumerate([False, True, False]):
            await sink.open(SinkContext(streams=("in",), reject=reject, has_dead_letters=has_letters))
            await sink.write(batch_of(b"%d" % number, stream="in"))
            await sink.flush(Checkpoint(state(str(number))))
            await sink.close()
        return letters

    assert run_virtual(job()) == [b"1"]


@pytest.mark.parametrize("more", KINDS, ids=["plain", "per key", "aggregates"])
def test_records_of_a_revoked_shard_that_were_never_put_do_not_count_as_put(more, caplog):
    """The shard's next reader puts them, so the group would count them twice; and no call has succeeded."""

    async def job():
        fake = FakeKinesis()
        sink = a_sink(fake, {**GIVEN, **more})
        await sink.open(CONTEXT)
        fake.fail = TransientError("PutRecords", "ClientConnectorError", "refused")
        await sink.write(batch_of(b"1", b"2", stream="in"))
        await asyncio.sleep(20)
        sink.revoked(["in/shardId-000000000000"])
        await asyncio.sleep(5)
        revoked = sink.metrics()
        fake.fail = None
        await sink.write(batch_of(b"3", stream="in", shard_id="shardId-000000000001"))
        await sink.flush(Checkpoint(state("end")))
        await sink.close()
        return revoked, sink.metrics(), [data for _, data in fake.user_records()]

    revoked, end, put = run_virtual(job())
    names = ("outstandingRecordsCount", "outstandingBytes", "numRecordsOut", "kinesisRecords", "numRecordsOutErrors")
    assert [revoked[name] for name in names] == [0, 0, 0, 0, 0]
    assert (end["numRecordsOut"], put) == (1, [b"3"])
    assert "succeed again" not in caplog.text
