"""Dead letters are replayed from each place once; what fails again stays."""

import asyncio
import json
import sys
from dataclasses import dataclass
from sqlite3 import connect

import pyarrow.parquet as pq
import pytest

import recordpublisher as rp
from recordpublisher.fetcher.pipeline.dead_letter_format import DeadLetter
from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.dead_letters.letters_in_queue import QueueLetters
from recordpublisher.plugins.dead_letters.replay import (
    DropTarget,
    JobTarget,
    StreamTarget,
    replay_letters,
    stored_letters_of,
)
from recordpublisher.publishers.kinesis_queue_source import ReceivedRecord
from recordpublisher.testing import run_virtual

from servers.kpl_aggregates import aggregate

HANDLER = """
handled, failing, kept = [], set(), []
def keep(record):
    kept.append(record.data)
def handle(record):
    if record.value["n"] in failing:
        raise ValueError(f"no {record.value['n']}")
    handled.append((record.partition_key, record.value["n"]))
"""


@pytest.fixture(scope="module")
def service():
    with serve_in_thread(streams={"orders": 1, "dead": 1}) as served:
        yield served


@pytest.fixture
def shop(tmp_path, monkeypatch):
    (tmp_path / "shop_of_letters.py").write_text(HANDLER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shop_of_letters", raising=False)
    import shop_of_letters

    return shop_of_letters


def places(folder):
    return {
        "jsonl": {"flink.deadletter.jsonl.path": f"{folder}/letters"},
        "parquet": {"flink.deadletter.parquet.path": f"{folder}/letters"},
        "sql": {"flink.deadletter.sql.uri": f"sqlite:///{folder}/letters.db"},
        "kinesis": {"flink.deadletter.kinesis.stream": "dead"},
    }


@pytest.fixture(params=["jsonl", "parquet", "sql", "kinesis"])
def properties(request, service, shop, tmp_path):
    """Those of a job whose letters are in this place."""
    if request.param == "kinesis":
        service.create_stream(dead := f"dead-{tmp_path.name[-20:]}")
    service.create_stream(stream := f"orders-{tmp_path.name[-20:]}")
    given = {
        **service.properties(),
        "flink.job.name": "shop",
        "flink.streams": stream,
        "flink.stream.initpos": "TRIM_HORIZON",
        "flink.state.uri": f"{tmp_path}/state",
        "flink.deserializer": "json",
        "flink.deserializer.error": "DEAD_LETTER",
        "flink.deadletter.sink": request.param,
        **places(tmp_path)[request.param],
        "flink.sink": "map",
        "flink.sink.map.function": "shop_of_letters:handle",
        "flink.sink.map.on.failure": "DEAD_LETTER",
        "flink.sink.map.retries": 0,
    }
    return rp.Properties(given | ({"flink.deadletter.kinesis.stream": dead} if request.param == "kinesis" else {}))


@pytest.fixture
async def job(properties, service, shop):
    """It has run, with 1, 2 and 3 as dead letters."""
    stream = properties["flink.streams"]
    service.stream(stream).put(*({"n": number} for number in range(5)), key="k")
    shop.failing |= {1, 2, 3}
    async with rp.DataFetcher(stream, properties) as fetcher:
        await fetcher.run_bounded(stop_at_tip=True)
    shop.handled.clear()
    return properties


async def letters_left(properties):
    letters = stored_letters_of(properties)
    try:
        return [letter async for chunk in letters.chunks(is_replay=False) for letter in chunk]
    finally:
        await letters.close()


async def replay(properties, target, mended=None):
    letters, done, failed = stored_letters_of(properties), 0, []
    try:
        async with target:
            async for ended, again in replay_letters(letters, target, (), mended):
                done += len(ended)
                failed += [(letter.record.data, reason) for letter, reason in again]
    finally:
        await letters.close()
    return done, failed


async def test_what_succeeds_is_removed_and_what_fails_again_stays(job, shop):
    assert [letter.record.data for letter in await letters_left(job)] == [b'{"n":1}', b'{"n":2}', b'{"n":3}']
    shop.failing = {2}

    assert await replay(job, JobTarget(job)) == (2, [(b'{"n":2}', "1 attempt: ValueError: no 2")])
    assert shop.handled == [("k", 1), ("k", 3)]
    assert [letter.record.data for letter in await letters_left(job)] == [b'{"n":2}']


class QueueWithAFault:
    """What `KinesisQueue` gives: two dead letters, of which the service does not put back the second."""

    last_response_ms = None

    def __init__(self):
        self.letters = [ReceivedRecord(name, name, b"x", 1.7e9, 7, "k") for name in ("one", "two")]
        self.made_visible = []

    async def queue_arn(self):
        return "arn"

    def client(self):
        return self

    async def receive(self, *_, are_dead):
        found, self.letters = self.letters, []
        return found

    async def settle(self, api, arn, handles, visibility_seconds=None):
        if not api.startswith("Restore"):
            self.made_visible += handles
        return {"two": "InternalFailureException"} if api.startswith("Restore") else {}


async def test_a_letter_of_a_queue_that_is_not_put_back_has_failed_and_is_made_visible():
    letters = QueueLetters.__new__(QueueLetters)
    letters._queue, letters._stream, letters._api = QueueWithAFault(), "s", "RestoreDeadLetterQueueRecords"

    ((ended, failed),) = [each async for each in replay_letters(letters, DropTarget())]

    assert [letter.place for letter in ended] == ["one"]
    assert [(letter.place, reason) for letter, reason in failed] == [
        ("two", "RestoreDeadLetterQueueRecords: InternalFailureException")
    ]
    assert letters._queue.made_visible == ["two"]


@pytest.mark.parametrize("properties", ["jsonl", "parquet"], indirect=True)
async def test_letters_with_any_explicit_hash_key_go_to_their_stream(properties, service, shop):
    stream = properties["flink.streams"]
    keys = ["7", "007", "no number", "9" * 50]
    service.stream(stream).put(aggregate(*(("k", b"{", key) for key in keys)))
    async with rp.DataFetcher(stream, properties) as fetcher:
        await fetcher.run_bounded(stop_at_tip=True)

    assert [letter.record.explicit_hash_key for letter in await letters_left(properties)] == keys
    assert await replay(properties, StreamTarget(properties)) == (4, [])


async def test_a_handler_may_take_the_dead_letters(properties, service, shop):
    stream = properties["flink.streams"]
    service.stream(stream).put(b"{", key="bad")
    given = {**properties, "flink.deadletter.sink": "map", "flink.deadletter.map.function": "shop_of_letters:keep"}
    async with rp.DataFetcher(stream, given) as fetcher:
        await fetcher.run_bounded(stop_at_tip=True)

    assert shop.kept == [b"{"]


class AwayForAMoment(rp.Sink):
    """Its service does not answer the first two flushes."""

    def __init__(self):
        self.records, self.flushes = [], 0

    async def write(self, batch):
        self.records += batch.records

    async def flush(self, checkpoint=None):
        self.flushes += 1
        if self.flushes < 3:
            raise rp.StoreUnavailableError("the service is away")


@pytest.mark.parametrize("properties", ["jsonl"], indirect=True)
async def test_an_outage_of_the_sink_is_outlasted(job, monkeypatch):
    sink = AwayForAMoment()
    monkeypatch.setattr("recordpublisher.plugins.dead_letters.replay.build_sink", lambda registry, given: sink)

    assert await replay(job, JobTarget(job)) == (3, [])
    assert len(sink.records) == 3
    assert sink.flushes >= 3


@pytest.mark.parametrize("properties", ["jsonl"], indirect=True)
async def test_an_outage_longer_than_its_limit_ends_the_replay_and_names_the_sink(job, monkeypatch):
    sink = AwayForAMoment()
    monkeypatch.setattr("recordpublisher.plugins.dead_letters.replay.build_sink", lambda registry, given: sink)

    with pytest.raises(
        rp.StoreUnavailableError, match=r"the sink AwayForAMoment failed .*flink\.job\.max\.outage decides"
    ):
        await replay(job, JobTarget(job.merged({"flink.job.max.outage": "1ms"})))
    assert len(await letters_left(job)) == 3


async def test_a_second_replay_repeats_nothing(job, shop):
    shop.failing = {2}
    await replay(job, JobTarget(job))
    shop.failing = set()

    assert await replay(job, JobTarget(job)) == (1, [])
    assert await replay(job, JobTarget(job)) == (0, [])
    assert shop.handled == [("k", 1), ("k", 3), ("k", 2)]
    assert await letters_left(job) == []


async def test_a_letter_that_still_cannot_be_decoded_stays(job, shop):
    shop.failing = set()
    broken = job.merged({"flink.deserializer": "avro", "flink.deserializer.avro.schema": '"long"'})

    done, failed = await replay(broken, JobTarget(broken))

    assert (done, len(failed)) == (0, 3)
    assert len(await letters_left(job)) == 3


@pytest.mark.parametrize("properties", ["jsonl", "parquet", "sql"], indirect=True)
async def test_an_interrupted_replay_has_removed_the_chunks_before(job, shop, monkeypatch):
    monkeypatch.setattr("recordpublisher.plugins.dead_letters.letters_in_files.CHUNK", 1)
    monkeypatch.setattr("recordpublisher.plugins.dead_letters.letters_in_table.CHUNK", 1)
    shop.failing = set()
    letters, target = stored_letters_of(job), JobTarget(job)
    async with target:
        async for _ in (replaying := replay_letters(letters, target)):
            break
        await replaying.aclose()
    await letters.close()

    assert [letter.record.data for letter in await letters_left(job)] == [b'{"n":2}', b'{"n":3}']


@pytest.mark.parametrize("properties", ["kinesis"], indirect=True)
async def test_of_several_streams_that_of_a_letter_in_a_stream_is_not_known(job):
    several = job.merged({"flink.streams": f"{job['flink.streams']}, clicks"})
    with pytest.raises(
        rp.ConfigurationError,
        match=r"letters in a stream do not say from which of .*, clicks they came",
    ):
        await replay(job, StreamTarget(several))


async def test_letters_go_to_the_tip_of_their_stream_with_their_keys(job, shop, service):
    assert await replay(job, StreamTarget(job)) == (3, [])
    shop.failing = set()
    async with rp.DataFetcher(job["flink.streams"], job) as fetcher:
        await fetcher.run_bounded(stop_at_tip=True)

    assert shop.handled == [("k", 1), ("k", 2), ("k", 3)]
    assert await letters_left(job) == []


@dataclass
class Priced:
    n: int


SINKS = {
    "jsonl": lambda folder: [json.loads(line)["value"] for file in folder.rglob("*.jsonl") for line in file.open()],
    "sql": lambda folder: [{"n": n} for (n,) in connect(folder / "rows.db").execute("SELECT n FROM rows")],
    "parquet": lambda folder: [
        {"n": n} for file in folder.rglob("*.parquet") for n in pq.read_table(file)["n"].to_pylist()
    ],
}


@pytest.mark.parametrize("properties", ["jsonl"], indirect=True)
@pytest.mark.parametrize("sink", SINKS)
async def test_a_mended_payload_goes_to_the_sink_of_the_job_alone(properties, service, shop, tmp_path, sink):
    shop.Priced = Priced
    (out := tmp_path / "out").mkdir()
    job = properties.merged(
        {
            "flink.deserializer": "shop_of_letters:Priced",
            "flink.sink": sink,
            "flink.sink.jsonl.path": str(out),
            "flink.sink.parquet.path": str(out),
            "flink.sink.sql.uri": f"sqlite:///{out}/rows.db",
            "flink.sink.sql.table": "rows",
            "flink.sink.sql.columns": "AUTO",
        }
    )
    stream = job["flink.streams"]
    service.stream(stream).put({"n": 0}, {"n": "one"}, {"n": "two"}, key="k")
    async with rp.DataFetcher(stream, job) as fetcher:
        await fetcher.run_bounded(stop_at_tip=True)
    one, two = await letters_left(job)
    mended = {(one.shard.key, one.number): b'{"n":1}', (two.shard.key, two.number): b'{"n":"2"}'}

    done, failed = await replay(job, JobTarget(job), mended)
    assert (done, [data for data, _ in failed]) == (1, [b'{"n":"two"}'])
    assert sorted(row["n"] for row in SINKS[sink](out)) == [0, 1]
    assert [letter.record.data for letter in await letters_left(job)] == [b'{"n":"two"}']  # with its own payload

    assert await replay(job, JobTarget(job), {(two.shard.key, two.number): b'{"n":2}'}) == (1, [])
    assert sorted(row["n"] for row in SINKS[sink](out)) == [0, 1, 2]


def test_a_sink_that_keeps_nothing_takes_no_letters(properties):
    with pytest.raises(rp.ConfigurationError, match="would be lost at the end of this command"):
        JobTarget(properties.merged({"flink.sink": "memory"}))


def test_letters_of_another_sink_cannot_be_read(properties):
    with pytest.raises(
        rp.ConfigurationError, match=r"cannot read the dead letters of that sink.*jsonl, parquet, sql or kinesis"
    ):
        stored_letters_of(properties.merged({"flink.deadletter.sink": "memory"}))


@pytest.mark.parametrize("key", ["jsonl.path", "parquet.path", "sql.uri"])
def test_a_missing_setting_has_the_key_that_the_dead_letter_sink_has(key):
    given = {
        "flink.deserializer.error": "DEAD_LETTER",
        "flink.deadletter.sink": key.partition(".")[0],
        f"flink.sink.{key}": "there",
    }
    with pytest.raises(rp.ConfigurationError, match=rf"'flink\.deadletter\.{key}' is required"):
        stored_letters_of(rp.Properties(given))


def test_a_folder_that_no_letter_has_made_yet_has_none_and_a_mistyped_path_is_an_error(tmp_path):
    def letters_in(path):
        sink = {"flink.deadletter.sink": "jsonl", "flink.deadletter.jsonl.path": str(path)}
        return stored_letters_of(rp.Properties({"flink.deserializer.error": "DEAD_LETTER", **sink}))

    async def numbers():
        return [letter async for chunk in letters_in(tmp_path / "letters").chunks(is_replay=False) for letter in chunk]

    assert run_virtual(numbers()) == []
    with pytest.raises(rp.ConfigurationError, match="the folder with the dead letters"):
        letters_in(tmp_path / "mistyped" / "letters")


class SinkOfAServiceThatIsAway(rp.Sink):
    """Its service answers after five minutes."""

    def __init__(self):
        self.rows = []

    async def open(self, context):
        self.context, self.back_at = context, asyncio.get_running_loop().time() + 300

    async def write(self, batch):
        await self.context.retry(lambda: self.post(batch.data), on=OSError)

    async def post(self, rows):
        if asyncio.get_running_loop().time() < self.back_at:
            raise ConnectionError("away")
        self.rows += rows


def test_a_sink_waits_for_its_service_in_a_replay_as_in_the_job(tmp_path):
    given = rp.Properties({"flink.streams": "s", "flink.sink": "jsonl", "flink.sink.jsonl.path": str(tmp_path)})
    shard, record = rp.Shard("s", "shardId-000000000000"), rp.UserRecord(b"1", "7", 1.7e9, "k")
    target = JobTarget(given)
    target._sink = sink = SinkOfAServiceThatIsAway()

    async def story():
        async with target:
            await target.replay([DeadLetter(shard, record, "")])

    run_virtual(story())
    assert sink.rows == [b"1"]


@pytest.mark.parametrize("properties", ["jsonl", "sql"], indirect=True)
async def test_a_letter_that_no_stream_can_take_is_kept_and_the_others_go_to_the_stream(job, shop):
    """Its new payload is too large. The key of a sub-record may be too long as well."""
    letters = await letters_left(job)
    mended = {(letter.shard.key, letter.number): letter.record.data for letter in letters}
    mended[letters[1].shard.key, letters[1].number] = b"x" * (2**20 + 1)

    done, ((data, reason),) = await replay(job, StreamTarget(job), mended)
    assert (done, data) == (2, b'{"n":2}')
    assert "but the stream accepts at most 1048576" in reason
    assert [letter.record.data for letter in await letters_left(job)] == [b'{"n":2}']
    shop.failing = set()
    async with rp.DataFetcher(job["flink.streams"], job) as fetcher:
        await fetcher.run_bounded(stop_at_tip=True)
    assert shop.handled == [("k", 1), ("k", 3)]
