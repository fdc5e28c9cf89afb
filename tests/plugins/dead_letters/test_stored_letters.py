"""A replay reads what the dead-letter sink has written, and keeps letters that cannot be read."""

import errno
import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyarrow import parquet
from sqlalchemy import create_engine

import recordpublisher as rp
from recordpublisher.fetcher.pipeline.dead_letter_format import DeadLetter
from recordpublisher.fetcher.sink import Checkpoint, SinkContext
from recordpublisher.local import LocalKinesis
from recordpublisher.plugins.dead_letters.letters_in_stream import StreamLetters
from recordpublisher.plugins.dead_letters.replay import DropTarget, replay_letters, stored_letters_of
from recordpublisher.plugins.host.build_from_properties import build_dead_letter_sink
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.sinks.sql.rows import record_columns
from recordpublisher.plugins.sinks.sql.target_table import create_table, new_table
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.shards import Shard

SHARD = Shard("orders", "shardId-000000000001")
LETTERS = [
    DeadLetter(SHARD, UserRecord(b'{"n": 1}', "1", 1_700_000_000.5, "key", "170141183460469231731687303715884105728", 2), "no 1"),
    DeadLetter(SHARD, UserRecord(b"\xff\x00", "2", 1_700_000_001.0, "key"), "bytes"),
    DeadLetter(SHARD, UserRecord(b"", "3", 1_700_000_002.0, None), ""),
    # The key of a change of DynamoDB, or of a sub-record of an aggregate, may be longer than that of a Kinesis record.
    DeadLetter(SHARD, UserRecord(b"", "4", 1_700_000_003.0, "k" * 3_000), "a long key"),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "sql"])
async def test_a_letter_is_read_as_it_was_written(tmp_path, kind):
    place = (
        {"sql.uri": f"sqlite:///{tmp_path}/letters.db"} if kind == "sql" else {f"{kind}.path": f"{tmp_path}/letters"}
    )
    given = {f"flink.deadletter.{key}": value for key, value in {"sink": kind, **place}.items()}
    properties = rp.Properties({"flink.job.name": "shop", "flink.deserializer.error": "DEAD_LETTER", **given})
    sink = build_dead_letter_sink(load_registry(), properties)
    await sink.open(SinkContext(0, 1, ("orders",)))
    for letter in LETTERS:
        await sink.write(letter.batch())
    await sink.flush(Checkpoint({}))
    await sink.close()

    letters = stored_letters_of(properties)
    read = [letter async for chunk in letters.chunks(is_replay=False) for letter in chunk]
    await letters.close()

    assert [(letter.shard, letter.record, letter.reason) for letter in read] == [
        (letter.shard, letter.record, letter.reason) for letter in LETTERS
    ]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
async def test_the_folder_of_a_shard_whose_id_ends_as_a_file_does_is_no_file(tmp_path, kind):
    given = {"flink.deadletter.sink": kind, f"flink.deadletter.{kind}.path": f"{tmp_path}/letters"}
    properties = rp.Properties({"flink.job.name": "shop", "flink.deserializer.error": "DEAD_LETTER", **given})
    sink = build_dead_letter_sink(load_registry(), properties)
    await sink.open(SinkContext(("orders",)))
    letter = DeadLetter(Shard("orders", f"log.{kind}"), UserRecord(b"{}", "1", 1_700_000_000.5, "key"), "bad")
    await sink.write(letter.batch())
    await sink.flush(Checkpoint({}))
    await sink.close()

    letters = stored_letters_of(properties)
    assert [each.shard.shard_id async for chunk in letters.chunks(is_replay=False) for each in chunk] == [f"log.{kind}"]
    await letters.close()


ARRIVAL = datetime(2026, 11, 26, 6, tzinfo=UTC)
WRONG = {
    "stream": "../orders",
    "shard_id": "",
    "sequence_number": "1" * 300,
    "sub_sequence_number": -5,
    "value": '{"error": 5}',
}


def a_row(number, **changed):
    return {
        "stream": "orders",
        "shard_id": "shardId-0",
        "sequence_number": str(number),
        "sub_sequence_number": -1,
        "partition_key": "k",
        "explicit_hash_key": None,
        "approximate_arrival_timestamp": ARRIVAL,
        "event_time": ARRIVAL,
        "data": b"x",
        "value": '{"error": "bad"}',
        **changed,
    }


def camel(name):
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def write_jsonl(folder, rows):
    lines = []
    for row in rows:
        if isinstance(row, bytes):
            lines.append(row)
            continue
        reason = json.loads(row["value"]).get("error") if isinstance(row["value"], str) else row["value"]
        fields = {camel(name): value for name, value in row.items() if name not in ("data", "event_time")}
        fields["value"] = {"error": reason, "payload": row["data"].decode(), "base64": row.get("base64", False)}
        lines.append(json.dumps(fields, default=lambda time: time.isoformat()).encode())
    (folder / "1.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))


def write_parquet(folder, rows, schema=None):
    parquet.write_table(
        pa.Table.from_pylist([{camel(name): value for name, value in row.items()} for row in rows], schema),
        folder / "1.parquet",
    )


def write_sql(folder, rows):
    url = f"sqlite:///{folder}/letters.db"
    engine = create_engine(url)
    with engine.begin() as connection:
        create_table(connection, new_table("records", {column.name for column in record_columns()}))
    engine.dispose()
    with closing(sqlite3.connect(folder / "letters.db")) as connection, connection:
        for row in rows:
            given = {name: str(value)[:19] if isinstance(value, datetime) else value for name, value in row.items()}
            names, marks = ", ".join(given), ", ".join("?" * len(given))
            connection.execute(f"INSERT INTO records ({names}) VALUES ({marks})", list(given.values()))


WRITE = {"jsonl": write_jsonl, "parquet": write_parquet, "sql": write_sql}


def letters_in(folder, kind):
    place = {"flink.deadletter.sql.uri": f"sqlite:///{folder}/letters.db", "flink.deadletter.sql.table": "records"}
    place = place if kind == "sql" else {f"flink.deadletter.{kind}.path": str(folder)}
    return stored_letters_of(rp.Properties({"flink.deadletter.sink": kind, **place}))


async def listed(folder, kind):
    letters = letters_in(folder, kind)
    found = [letter.number async for chunk in letters.chunks(is_replay=False) for letter in chunk]
    await letters.close()
    return found, letters.unreadable


async def drop_all(folder, kind):
    letters = letters_in(folder, kind)
    async for _ in replay_letters(letters, DropTarget()):
        pass
    await letters.close()


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("kind", WRITE)
async def test_a_field_that_does_not_fit_costs_its_letter(tmp_path, caplog, kind, wrong):
    WRITE[kind](tmp_path, [a_row(1), a_row(2, **{wrong: WRONG[wrong]}), a_row(3)])

    assert await listed(tmp_path, kind) == (["1", "3"], 1)
    (message,) = [
        record.getMessage()
        for record in caplog.records
        if "cannot be read, so it is not replayed" in record.getMessage()
    ]
    named = {"jsonl": "line 2 of", "parquet": "row 2 of", "sql": "the row ("}
    assert named[kind] in message
    assert "if it belongs to another program, move it away" in message
    await drop_all(tmp_path, kind)
    assert await listed(tmp_path, kind) == ([], 1)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[" * 100_000,
        b"\xff",
        b"null",
        b'{"stream": "orders"}',
        json.dumps(a_row(2, value=5), default=str).encode(),
    ],
)
async def test_a_line_that_is_no_letter_costs_itself(tmp_path, line):
    write_jsonl(tmp_path, [a_row(1), line, a_row(3)])
    assert await listed(tmp_path, "jsonl") == (["1", "3"], 1)


async def test_base64_that_is_none_costs_its_line(tmp_path):
    write_jsonl(tmp_path, [a_row(1), a_row(2, data=b"%%", base64=True), a_row(3)])
    assert await listed(tmp_path, "jsonl") == (["1", "3"], 1)


@pytest.mark.parametrize(
    "changed",
    [
        {"approximate_arrival_timestamp": "soon"},
        {"approximate_arrival_timestamp": None},
        {"approximate_arrival_timestamp": "0001-01-01 00:00:00"},
        {"approximate_arrival_timestamp": 5},
        {"data": "eA=="},
        {"value": "{"},
        {"value": "[" * 100_000},
    ],
    ids=["time", "no time", "year 1", "number", "text", "half JSON", "nested"],
)
async def test_what_sqlite_lets_into_a_column_costs_its_row(tmp_path, changed):
    types = {"approximate_arrival_timestamp": "DATETIME", "data": "BLOB", "value": "JSON"}
    columns = ", ".join(f"{name} {types.get(name, '')}" for name in a_row(0))
    with closing(sqlite3.connect(tmp_path / "letters.db")) as connection, connection:
        connection.execute(f"CREATE TABLE records ({columns})")
        for row in (a_row(1), a_row(2, **changed), a_row(3)):
            given = [str(each)[:19] if isinstance(each, datetime) else each for each in row.values()]
            connection.execute(f"INSERT INTO records VALUES ({', '.join('?' * len(given))})", given)

    assert await listed(tmp_path, "sql") == (["1", "3"], 1)


async def test_a_time_beyond_the_calendar_costs_its_row_of_parquet(tmp_path):
    rows = [a_row(number) for number in (1, 2, 3)]
    table = pa.Table.from_pylist([{camel(name): value for name, value in row.items()} for row in rows])
    times = pa.array([1_764_000_000_000, 400_000_000_000_000, 1_764_000_000_000], pa.timestamp("ms", "UTC"))
    index = table.column_names.index("approximateArrivalTimestamp")
    parquet.write_table(table.set_column(index, "approximateArrivalTimestamp", times), tmp_path / "1.parquet")

    assert await listed(tmp_path, "parquet") == (["1", "3"], 1)


async def test_a_file_without_the_columns_costs_its_rows(tmp_path):
    parquet.write_table(pa.table({"a": [1, 2]}), tmp_path / "0.parquet")
    write_parquet(tmp_path, [a_row(1)])
    assert await listed(tmp_path, "parquet") == (["1"], 2)


async def test_a_file_that_is_no_parquet_is_named(tmp_path):
    (tmp_path / "1.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(rp.StateError, match=r"1\.parquet cannot be read: .*move it away"):
        await listed(tmp_path, "parquet")


async def test_only_the_first_twenty_have_a_line_of_their_own(tmp_path, caplog):
    write_jsonl(tmp_path, [b"[]"] * 50)
    assert await listed(tmp_path, "jsonl") == ([], 50)
    assert (
        len([record for record in caplog.records if "cannot be read, so it is not replayed" in record.getMessage()])
        == 20
    )


async def test_a_time_without_an_offset_is_in_utc(tmp_path):
    write_jsonl(tmp_path, [a_row(1, approximate_arrival_timestamp=ARRIVAL.replace(tzinfo=None))])
    letters = letters_in(tmp_path, "jsonl")
    (chunk,) = [chunk async for chunk in letters.chunks(is_replay=False)]
    assert chunk[0].record.arrival == ARRIVAL.timestamp()


async def test_two_replays_in_one_folder_keep_their_own_letters(tmp_path):
    """What was left of one file took the place of the other."""
    for name, numbers in (("a", (1, 2)), ("b", (3, 4))):
        write_jsonl(tmp_path, [a_row(number) for number in numbers])
        (tmp_path / "1.jsonl").rename(tmp_path / f"{name}.jsonl")
    first, second = letters_in(tmp_path, "jsonl"), letters_in(tmp_path, "jsonl")
    of_first, of_second = first.chunks(is_replay=True), second.chunks(is_replay=True)
    (one, _) = await anext(of_first)
    await anext(of_second)
    (three, _) = await anext(of_second)
    write = first._write

    def write_beside_the_other(anew, left):
        write(anew, left)
        second._left -= {three.place}
        second._keep_left()

    first._write = write_beside_the_other
    await first.finish([one], [])

    assert (await listed(tmp_path, "jsonl"))[0] == ["2", "4"]


async def test_a_replay_goes_on_where_another_one_has_ended_a_file(tmp_path):
    for name in ("a", "b"):
        write_jsonl(tmp_path, [a_row(1)])
        (tmp_path / "1.jsonl").rename(tmp_path / f"{name}.jsonl")
    first, second = letters_in(tmp_path, "jsonl"), letters_in(tmp_path, "jsonl")
    of_first, of_second = first.chunks(is_replay=True), second.chunks(is_replay=True)
    await anext(of_first)
    for _ in range(2):
        chunk = await anext(of_second)
        await second.finish(chunk, [])

    await first.finish(chunk, [])

    assert [chunk async for chunk in of_first] == []


async def test_a_replay_on_a_full_disk_leaves_no_half_file(tmp_path):
    write_jsonl(tmp_path, [a_row(1), a_row(2)])
    letters = letters_in(tmp_path, "jsonl")
    chunks = letters.chunks(is_replay=True)
    (first, _) = await anext(chunks)
    write = letters._write

    def fill(rewritten, left):
        write(rewritten, left)
        raise OSError(errno.ENOSPC, "No space left on device")

    letters._write = fill
    with pytest.raises(OSError, match="No space"):
        await letters.finish([first], [])

    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["1.jsonl"]


class FailingTarget:
    """Keeps every letter."""

    def __init__(self):
        self.count = 0

    async def replay(self, letters):
        self.count += len(letters)
        return dict.fromkeys((letter.key for letter in letters), "no")


@pytest.mark.parametrize("ahead_seconds", [-3600, 3600])
async def test_letters_in_a_stream_are_replayed_once_whatever_this_machine_takes_for_the_time(ahead_seconds, tmp_path):
    class ServiceClock:
        def now_ms(self):
            return SystemClock().now_ms() + ahead_seconds * 1000

    target = FailingTarget()
    async with LocalKinesis(streams={"dead": 1}, clock=ServiceClock()) as endpoint:
        for payload in (b"1", b"2", b"3"):
            endpoint.stream("dead").put(payload, "k")
        of_sink = {"flink.sink.kinesis.stream": "dead", "flink.state.uri": str(tmp_path / "state")}
        letters = StreamLetters(rp.Properties({**endpoint.properties(), **of_sink}))
        async for _ in replay_letters(letters, target):
            pass

    assert target.count == 3


async def stored(properties, letters):
    sink = build_dead_letter_sink(load_registry(), properties)
    await sink.open(SinkContext(("orders",)))
    for letter in letters:
        await sink.write(letter.batch())
    await sink.flush(Checkpoint({}))
    await sink.close()


def numbered(*numbers, shard=SHARD):
    return [DeadLetter(shard, UserRecord(b"{", f"{number:03}", 1.7e9, "key"), "bad") for number in numbers]


class BackToAJobThatRuns:
    """The job gets each letter again as a later record, which becomes a dead letter too before the next chunk is read."""

    def __init__(self, properties):
        self.properties, self.replayed = properties, []

    async def replay(self, letters):
        self.replayed += [int(letter.number) for letter in letters]
        assert len(self.replayed) < 50, "the replay does not end"
        for shard in {letter.shard.key: letter.shard for letter in letters}.values():
            later = [int(letter.number) + 100 for letter in letters if letter.shard.key == shard.key]
            await stored(self.properties, numbered(*later, shard=shard))
        return {}


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "sql"])
async def test_letters_that_the_job_writes_during_a_replay_are_left_to_the_next_one(tmp_path, kind, monkeypatch):
    monkeypatch.setattr("recordpublisher.plugins.dead_letters.letters_in_files.CHUNK", 2)
    monkeypatch.setattr("recordpublisher.plugins.dead_letters.letters_in_table.CHUNK", 2)
    place = (
        {"sql.uri": f"sqlite:///{tmp_path}/letters.db"} if kind == "sql" else {f"{kind}.path": f"{tmp_path}/letters"}
    )
    given = {f"flink.deadletter.{key}": value for key, value in {"sink": kind, **place}.items()}
    properties = rp.Properties({"flink.job.name": "shop", "flink.deserializer.error": "DEAD_LETTER", **given})
    other = Shard("orders", "shardId-000000000002")
    await stored(properties, [*numbered(1, 2, 3), *numbered(1, 2, 3, shard=other)])

    letters, target = stored_letters_of(properties), BackToAJobThatRuns(properties)
    try:
        async for _ in replay_letters(letters, target):
            pass
        assert sorted(target.replayed) == [1, 1, 2, 2, 3, 3]
        left = [int(letter.number) async for chunk in letters.chunks(is_replay=False) for letter in chunk]
        assert sorted(left) == [101, 101, 102, 102, 103, 103]
    finally:
        await letters.close()
