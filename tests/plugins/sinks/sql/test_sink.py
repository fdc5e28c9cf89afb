"""The sql sink on SQLite: rows and positions in one transaction, fencing, bad rows and interruptions."""

import asyncio
import sqlite3
import threading
from contextlib import closing
from datetime import UTC, datetime

import msgspec
import pytest

import recordpublisher as rp
from recordpublisher.plugins.sinks.sql import SqlSink
from recordpublisher.plugins.stores.sql_store import SqlStore

from fakes.batches import batch
from fakes.commits.committing_sink import Start, snapshot_at, started

STATE = snapshot_at(2)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "job.db"


def sink_on(path, **more):
    return SqlSink(rp.Properties({"flink.job.name": "job", "flink.sink.sql.uri": f"sqlite:///{path}", **more}))


def query(path, statement):
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute(statement).fetchall()
        database.commit()
        return rows


def with_values(*values):
    return batch(*(b"%d" % number for number in range(len(values)))).with_columns(values=list(values))


async def test_rows_are_committed_with_the_positions_and_never_before(path):  # S6
    job = await started(sink_on(path))
    await job.sink.write(batch(b"a", b"b"))
    assert query(path, "select count(*) from records") == [(0,)]

    await job.checkpoint(STATE)
    await job.sink.write(batch(b"never committed"))
    await job.sink.close()

    shown = query(path, "select stream, shard_id, sequence_number, sub_sequence_number, data, value from records")
    assert shown == [("orders", "shardId-0", "1", -1, b"a", None), ("orders", "shardId-0", "2", -1, b"b", None)]
    assert await Start(sink_on(path)).open() == [STATE]


async def test_a_schema_that_is_missing_is_named_without_a_statement(path):
    with pytest.raises(rp.ConfigurationError) as raised:
        await sink_on(path, **{"flink.sink.sql.table": "shop.orders"}).open(rp.SinkContext())

    assert str(raised.value).startswith(
        "property 'flink.sink.sql.table' is 'shop.orders': there is no schema 'shop'; there are main. Valid:"
    )


async def test_another_table_under_the_same_job_name_is_refused_and_replaces_nobody(path):
    first = await started(sink_on(path, **{"flink.sink.sql.table": "a"}))
    await first.checkpoint(STATE)

    with pytest.raises(rp.ConfigurationError, match=r"belong to rows in table a, .*another flink.job.name"):
        await started(sink_on(path, **{"flink.sink.sql.table": "b"}))

    await first.checkpoint(STATE)
    await first.sink.close()
    assert await Start(sink_on(path, **{"flink.sink.sql.table": "a"})).open() == [STATE]
    other_job = sink_on(path, **{"flink.sink.sql.table": "b", "flink.job.name": "other"})
    assert await Start(other_job, job="other").open() == []


async def test_a_start_that_was_replaced_commits_nothing(path):  # S6
    sleeper = await started(sink_on(path))
    await sleeper.sink.write(batch(b"old"))
    successor = await started(sink_on(path))

    with pytest.raises(rp.FencedError, match=r"group/positions/.* was written by another process"):
        await sleeper.checkpoint(STATE)

    assert query(path, "select count(*) from records") == [(0,)]
    await sleeper.sink.close()
    await successor.sink.close()


async def test_jobs_share_a_database_by_their_names(path):
    one = await started(sink_on(path))
    await one.checkpoint(STATE)

    assert await Start(sink_on(path, **{"flink.job.name": "other"}), job="other").open() == []
    await one.checkpoint(STATE)


@pytest.mark.parametrize("table", ["recordpublisher_positions", "recordpublisher_workers"])
async def test_positions_of_an_earlier_version_are_refused_with_the_way_to_take_them_along(path, table):
    query(path, f"create table {table} (job text, snapshot text)")
    query(path, f"insert into {table} values ('other', '{{}}'), ('job', null)")
    await sink_on(path).open(rp.SinkContext())
    query(path, f"insert into {table} values ('job', '{{}}')")
    with pytest.raises(
        rp.StateError, match=rf"table {table} has positions of job 'job' .* positions import JOB --from"
    ):
        await sink_on(path).open(rp.SinkContext())


async def test_fields_go_to_the_columns_of_their_names(path):
    query(
        path,
        "create table orders (id integer primary key, number int, at timestamp, price numeric, event_time int, note text)",
    )
    sink = sink_on(path, **{"flink.sink.sql.table": "orders"})
    await sink.open(rp.SinkContext())
    await sink.write(
        with_values(
            {"number": 7, "at": "2026-11-20T06:00:00+00:00", "price": 1.5, "note": {"a": [1]}, "unknown": True},
            {"number": 8, "at": 0, "event_time": 5, "id": 70},
        )
    )
    await sink.flush()

    assert query(path, "select * from orders") == [
        (1, 7, "2026-11-20 06:00:00.000000", 1.5, 1_700_000_000_500, '{"a": [1]}'),
        (70, 8, "1970-01-01 00:00:00.000000", None, 5, None),
    ]


class Order(msgspec.Struct):
    n: int
    at: datetime


async def test_fields_of_a_typed_value_go_to_columns_too(path):
    query(path, "create table t (n int, at timestamp)")
    sink = sink_on(path, **{"flink.sink.sql.table": "t"})
    await sink.open(rp.SinkContext())
    await sink.write(with_values(Order(7, datetime(2026, 1, 1, tzinfo=UTC))))
    await sink.flush()

    assert query(path, "select * from t") == [(7, "2026-01-01 00:00:00.000000")]


async def test_a_typed_value_is_json_in_the_table_of_records(path):
    sink = sink_on(path)
    await sink.open(rp.SinkContext())
    await sink.write(with_values(Order(7, datetime(2026, 1, 1, tzinfo=UTC))))
    await sink.flush()

    assert query(path, "select value from records") == [('{"n": 7, "at": "2026-01-01T00:00:00Z"}',)]


class Rejecting:
    """A context that takes rejected records."""

    def __init__(self):
        self.records = []
        self.context = rp.SinkContext(reject=self.reject)

    async def reject(self, record, reason):
        self.records.append((record.sequence_numbers, reason))


BAD_VALUES = [["no object"], {"no": "column"}, {"n": "x" * 3}, {"n": 2**70}, {"n": 1, "at": "yesterday"}, {"n": None}]


async def test_bad_rows_are_rejected_with_their_reason_and_the_others_are_written(path):  # S7
    query(path, "create table t (n int not null check (typeof(n) = 'integer'), at timestamp)")
    sink, rejecting = sink_on(path, **{"flink.sink.sql.table": "t"}), Rejecting()
    await sink.open(rejecting.context)
    await sink.write(with_values({"n": 100}, *BAD_VALUES, {"n": 200}))
    await sink.flush()

    assert query(path, "select n from t") == [(100,), (200,)]
    assert sorted(number for (number,), _ in rejecting.records) == list("234567")
    assert all(reason for _, reason in rejecting.records)


async def test_a_value_too_deep_for_json_text_is_rejected_with_its_reason(path):  # S7
    deep, rejected = [], []
    for _ in range(200_000):
        deep = [deep]

    async def reject(record, reason):
        rejected.append((record.sequence_numbers, reason[:14]))

    sink = sink_on(path)
    await sink.open(rp.SinkContext(reject=reject))
    await sink.write(with_values({"n": 1}, deep, {"n": 2}))
    await sink.flush()
    await sink.close()

    assert query(path, "select value from records") == [('{"n": 1}',), ('{"n": 2}',)]
    assert rejected == [(["2"], "RecursionError")]


async def test_without_a_policy_a_bad_row_fails_and_nothing_is_written(path):  # S7
    query(path, "create table t (n int not null)")
    sink = sink_on(path, **{"flink.sink.sql.table": "t"})
    await sink.open(rp.SinkContext())
    await sink.write(with_values({"n": 1}, {"n": None}))

    with pytest.raises(rp.SinkError, match=r"record 2 of orders/shardId-0 cannot be written: .*NOT NULL"):
        await sink.flush()

    assert query(path, "select count(*) from t") == [(0,)]


async def test_a_column_that_goes_under_the_job_ends_it_and_costs_no_record(path):
    query(path, "create table t (n int, v int)")
    sink, rejecting = sink_on(path, **{"flink.sink.sql.table": "t"}), Rejecting()
    await sink.open(rejecting.context)
    query(path, "alter table t drop column v")
    await sink.write(with_values({"n": 1, "v": 1}))
    with pytest.raises(rp.SinkError, match=r"table t was changed while the job runs: .*no column named v"):
        await sink.flush()
    assert rejecting.records == []


async def test_a_repeated_record_is_one_row_in_a_table_keyed_by_record(path):
    sink = sink_on(path)
    await sink.open(rp.SinkContext())
    for _ in range(2):
        await sink.write(batch(b"a"))
        await sink.flush()

    assert query(path, "select data from records") == [(b"a",)]


async def test_a_row_that_breaks_another_unique_index_than_the_key_is_a_bad_record_and_a_repeated_row_is_not(
    path,
):  # S7
    sink, rejecting = sink_on(path), Rejecting()
    await sink.open(rejecting.context)
    query(path, "create unique index one_of_each on records (data)")
    for _ in range(2):
        await sink.write(batch(b"a"))
        await sink.flush()
    assert rejecting.records == []
    await sink.write(batch(b"a", b"a", b"b"))
    await sink.flush()

    assert query(path, "select sequence_number, data from records") == [("1", b"a"), ("3", b"b")]
    assert [numbers for numbers, _ in rejecting.records] == [["2"]]
    assert "UNIQUE" in rejecting.records[0][1]


async def test_fields_do_not_replace_the_records_metadata(path):
    sink = sink_on(path)
    await sink.open(rp.SinkContext())
    await sink.write(with_values({"stream": "forged", "data": "forged", "n": 1}))
    await sink.flush()

    assert query(path, "select stream, data, value from records") == [
        ("orders", b"0", '{"stream": "forged", "data": "forged", "n": 1}')
    ]


async def test_a_full_buffer_requests_a_checkpoint(path):
    asked = []
    sink = sink_on(path, **{"flink.sink.buffer.bytes": 1000})
    await sink.open(rp.SinkContext(request_checkpoint=lambda: asked.append(True)))
    await sink.write(batch(b"small"))
    assert not asked
    await sink.write(batch(b"x" * 1000))
    assert asked


async def test_the_job_waits_while_twice_as_much_waits(path):
    resumed = []
    sink = sink_on(path, **{"flink.sink.buffer.bytes": 1_000})
    await sink.open(rp.SinkContext(resume_writing=lambda: resumed.append(sink.has_room())))
    await sink.write(batch(b"x" * 1_000))
    assert sink.has_room()
    await sink.write(batch(b"y" * 1_000))
    assert not sink.has_room()
    resumed.clear()

    await sink.flush()

    assert (sink.has_room(), resumed) == (True, [True])


async def test_calls_that_are_cancelled_and_overtaken_leave_whole_transactions(path):
    """A connection used through `asyncio.to_thread` breaks here: the thread of the cancelled call overlaps the next call."""
    sink = sink_on(path, **{"flink.sink.sql.table": "rounds"})
    query(path, "create table rounds (n int)")
    for number in range(60):
        job = await started(sink)
        await sink.write(with_values(*[{"n": number}] * 200))
        committing = asyncio.ensure_future(job.checkpoint(snapshot_at(number)))
        await asyncio.sleep(0.002 * (number % 5))
        committing.cancel()
        await asyncio.gather(committing, return_exceptions=True)
    job = await started(sink)
    await sink.write(with_values({"n": 60}))
    await job.checkpoint(snapshot_at(60))
    await sink.close()

    counts = query(path, "select n, count(*) from rounds group by n order by n")
    assert counts[-1] == (60, 1)
    assert {count for _, count in counts[:-1]} <= {200}
    assert await Start(sink_on(path, **{"flink.sink.sql.table": "rounds"})).open() == [snapshot_at(60)]


async def test_a_commit_that_was_interrupted_is_there_once_after_the_next_one(path):
    """Cancelled in its transaction, or in the answer to it: the next checkpoint repeats it, and finds it if it was done."""
    sink = sink_on(path, **{"flink.sink.sql.table": "rounds"})
    query(path, "create table rounds (n int)")
    job = await started(sink)
    for number in range(40):
        await sink.write(with_values({"n": number}))
        committing = asyncio.ensure_future(job.checkpoint(STATE))
        await asyncio.sleep(0.001 * (number % 7))
        committing.cancel()
        await asyncio.gather(committing, return_exceptions=True)
    await job.checkpoint(STATE)
    await sink.close()
    assert query(path, "select n from rounds order by n") == [(number,) for number in range(40)]


async def test_an_unsupported_database_is_an_error_without_the_password(path):
    with pytest.raises(rp.ConfigurationError) as raised:
        sink_on(path, **{"flink.sink.sql.uri": "mysql://me:hunter2@host/db"})
    assert "hunter2" not in str(raised.value)
    assert "flink.sink.sql.uri" in str(raised.value)


def test_a_sink_without_a_name_for_its_positions_is_refused(path):
    with pytest.raises(rp.ConfigurationError, match=r"flink\.job\.name"):
        SqlSink(rp.Properties({"flink.sink.sql.uri": f"sqlite:///{path}"}))


async def test_instants_are_stored_in_utc(path):
    query(path, "create table t (at timestamp)")
    sink = sink_on(path, **{"flink.sink.sql.table": "t"})
    await sink.open(rp.SinkContext())
    given = ["2026-10-25T01:30:00Z", "2026-10-25T03:30:00+02:00", 1792891800000, "2026-10-25T01:30:00"]
    await sink.write(with_values(*({"at": at} for at in given)))
    await sink.flush()
    assert query(path, "select at from t") == [("2026-10-25 01:30:00.000000",)] * 4


async def test_a_generated_column_is_left_out(path):
    query(path, "create table t (n text, up text generated always as (upper(n)) stored)")
    sink = sink_on(path, **{"flink.sink.sql.table": "t"})
    await sink.open(rp.SinkContext())
    await sink.write(with_values({"n": "a", "up": "x"}))
    await sink.flush()
    assert query(path, "select n, up from t") == [("a", "A")]


async def test_a_trigger_that_raises_rejects_its_row(path):
    query(path, "create table t (n int)")
    query(
        path,
        "create trigger refuse before insert on t when new.n < 0 begin select raise(abort, 'no'); end",
    )
    sink, rejecting = sink_on(path, **{"flink.sink.sql.table": "t"}), Rejecting()
    await sink.open(rejecting.context)
    await sink.write(with_values({"n": 1}, {"n": -1}))
    await sink.flush()
    assert query(path, "select n from t") == [(1,)]
    assert rejecting.records == [(["2"], "IntegrityError: no; its value is {'n': -1}")]


async def test_a_file_that_is_no_database_fails_at_once(path, caplog):
    path.write_text("no database" * 100)
    with pytest.raises(rp.ConfigurationError, match="file is not a database"):
        await sink_on(path).open(rp.SinkContext())
    assert "have failed for" not in caplog.text


async def test_a_full_disk_is_told_as_one(path):
    query(path, "create table t (data text)")
    sink = sink_on(path, **{"flink.sink.sql.table": "t", "flink.job.max.outage": "100ms"})
    await sink.open(rp.SinkContext())

    def limit(connection):
        connection.exec_driver_sql("PRAGMA max_page_count = 20")

    await sink._database.transaction(limit)
    await sink.write(with_values({"data": "x" * 1_000_000}))
    with pytest.raises(rp.RetriesExhaustedError, match="database or disk is full"):
        await sink.flush()
    await sink.close()


def test_a_job_name_that_is_too_long_is_refused(path):
    with pytest.raises(rp.ConfigurationError, match="at most 200 characters"):
        sink_on(path, **{"flink.job.name": "j" * 201})


async def test_a_number_with_a_fraction_is_no_integer(path):  # S7
    query(path, "create table t (n int)")
    sink, rejecting = sink_on(path, **{"flink.sink.sql.table": "t"}), Rejecting()
    await sink.open(rejecting.context)
    await sink.write(with_values({"n": 12.7}, {"n": 12.0}, {"n": 2**70}))
    await sink.flush()
    assert query(path, "select n, typeof(n) from t") == [(12, "integer")]
    assert rejecting.records == [
        (["1"], "column 'n' (integer) cannot take 12.7"),
        (["3"], "column 'n' (integer) cannot take 1180591620717411303424"),
    ]


@pytest.mark.parametrize(
    ("column", "refused"),
    [
        ("bigint", ["x", "1_0", "٣", "1.5", "2024-01-02", True, {"a": 1}, [1]]),
        ("double", ["x", "1_0", "٣", "2024-01-02", True, {"a": 1}, [1]]),
        ("numeric", ["x", "1_0", "٣", "2024-01-02", True, {"a": 1}, [1]]),
        ("boolean", ["x", "true", 2, 1.5, {"a": 1}, [1]]),
        ("timestamp", ["x", "12", True, {"a": 1}, [1]]),
        ("date", ["x", 12, True, {"a": 1}, [1]]),
        ("blob", [12, True, {"a": 1}, [1]]),
        ("text", []),
        ("json", []),
    ],
)
async def test_what_postgresql_refuses_in_a_column_sqlite_refuses_too(path, column, refused):  # S7
    taken = ["x", 12, True, {"a": 1}, [1], None] if column in ("text", "json") else [None]
    taken += {"bigint": ["12", 12, 12.0], "double": ["1.5", 12, 1.5], "numeric": ["1.5", 12, 1.5]}.get(column, [])
    query(path, f"create table t (v {column})")
    sink, rejecting = sink_on(path, **{"flink.sink.sql.table": "t"}), Rejecting()
    await sink.open(rejecting.context)
    await sink.write(with_values(*({"v": value} for value in [*refused, *taken])))
    await sink.flush()
    reasons = sorted(reason.partition(" cannot take ")[2] for _, reason in rejecting.records)
    assert (reasons, query(path, "select count(*) from t")) == (sorted(map(repr, refused)), [(len(taken),)])


async def findings(sink):
    return {name: await check() for name, check in sink.checks().items()} | {
        "values": await sink.check_values(rp.SinkContext())
    }


async def test_the_checks_find_a_missing_table_and_create_nothing(path):
    assert await findings(sink_on(path)) == {
        "positions": "reachable, no positions stored yet",
        "values": "records will be created",
    }
    assert not path.exists()
    query(path, "create table records (n int)")
    assert (await findings(sink_on(path)))["values"] == "records is there"


async def test_the_checks_refuse_the_schema_that_a_start_refuses(path):
    query(path, "create table t (n int)")
    with pytest.raises(rp.ConfigurationError, match="there is no schema 'shoop'"):
        await findings(sink_on(path, **{"flink.sink.sql.table": "shoop.orders"}))


async def test_the_checks_refuse_a_file_in_a_folder_that_does_not_exist(path):
    with pytest.raises(rp.ConfigurationError, match=r"flink\.sink\.sql\.uri.*the folder .*/not/there does not exist"):
        await findings(sink_on(path.parent / "not/there/job.db"))


async def test_a_table_that_is_created_is_told(path, caplog):
    caplog.set_level("INFO", "recordpublisher.database")
    for _ in range(2):
        await sink_on(path, **{"flink.sink.sql.table": "ordres"}).open(rp.SinkContext())
    assert [record.getMessage() for record in caplog.records] == ["created table ordres, which was missing"]


async def test_another_job_that_fills_the_table_is_told(path, caplog):
    first = await started(sink_on(path))
    await first.checkpoint(STATE)
    await sink_on(path).open(rp.SinkContext())
    await sink_on(path, **{"flink.job.name": "b", "flink.sink.sql.table": "t"}).open(rp.SinkContext())
    assert caplog.text == ""

    await sink_on(path, **{"flink.job.name": "copy"}).open(rp.SinkContext())
    assert "table records also has rows of job 'job'" in caplog.text


async def test_a_commit_that_is_still_in_the_thread_has_its_rows_when_the_next_life_begins(path, monkeypatch):  # S6, E1
    job = await started(sink_on(path))
    await job.checkpoint(STATE)
    await job.sink.write(batch(b"a"))
    await job.alone._positions._commits.stage()
    in_transaction, goes_on, replace_in = threading.Event(), threading.Event(), SqlStore.replace_in

    def held_up(*arguments):
        in_transaction.set()
        goes_on.wait()
        return replace_in(*arguments)

    monkeypatch.setattr(SqlStore, "replace_in", held_up)
    commit = asyncio.ensure_future(job.alone._positions._commits.commit(lambda number, staged: b"entry", STATE))
    await asyncio.to_thread(in_transaction.wait)
    commit.cancel()
    await asyncio.wait([commit])
    await job.sink.begin("next")
    goes_on.set()
    await job.sink._database.in_thread(lambda: None)

    part = f"group/positions/{job.life}/0"
    assert query(path, f"select value from recordpublisher_commits where name = '{part}'") == [(b"entry",)]
    assert query(path, "select data from records") == [(b"a",)]
    await job.sink.close()


async def test_a_commit_whose_rows_were_dropped_with_its_life_is_refused(path):  # S6, E1
    job = await started(sink_on(path))
    await job.checkpoint(STATE)
    await job.sink.write(batch(b"a"))
    await job.alone._positions._commits.stage()
    await job.sink.begin("next")
    with pytest.raises(rp.FencedError, match="a later run of its worker has begun"):
        await job.alone._positions._commits.commit(lambda number, staged: b"entry", STATE)
    assert query(path, "select count(*) from recordpublisher_commits where value = x'656e747279'") == [(0,)]
    await job.sink.close()
