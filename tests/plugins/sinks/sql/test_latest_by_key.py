"""The newest row of each key, on SQLite and PostgreSQL: order, deletes, replays, two streams, and tables that do not fit."""

from __future__ import annotations

import random
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

import pytest
from sqlalchemy import create_engine, text

import recordpublisher as rp
from recordpublisher.local import LocalKinesis
from recordpublisher.plugins.sinks.sql import SqlSink
from recordpublisher.plugins.sinks.sql.latest_by_key import LatestByKey
from recordpublisher.plugins.sinks.sql.target_table import TargetTable
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard

from processes.command_line import ROOT

STATE = {"version": 2, "generation": 1, "shards": {}}
OWN = "create table records (id bigint primary key, note text default 'none', op text)"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def uri(request, tmp_path):
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/job.db"
        return
    server = request.getfixturevalue("postgresql")
    query(server, "drop schema public cascade; create schema public")
    yield server


def query(uri, statement):
    engine = create_engine(uri.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        result = connection.execute(text(statement))
        rows = [tuple(row) for row in result] if result.returns_rows else []
    engine.dispose()
    return rows


def of_shard(*numbered, shard="shardId-0", stream="orders"):
    """A batch with (number, value) or (number, sub-sequence number, value)."""
    parts = [one if len(one) == 3 else (one[0], 0, one[1]) for one in numbered]
    records = [
        UserRecord(b"", str(number), 1_700_000_000.5, "key", sub_sequence_number=sub) for number, sub, _ in parts
    ]
    made = RecordBatch(
        Shard(stream, shard),
        records,
        millis_behind_latest=0,
        read_position=None,
        raw_count=len(records),
        raw_bytes=0,
    )
    return made.with_columns(values=[value for *_, value in parts])


class Job:
    """One start of a job whose sink keeps the newest row of `id`."""

    def __init__(self, uri, name="job", key="id", delete="op=D", of=None, **settings):
        given = {"flink.job.name": name, "flink.sink.sql.uri": uri, "flink.sink.sql.key": key}
        self.sink = SqlSink(rp.Properties(given | ({"flink.sink.sql.delete": delete} if delete else {}), **settings))
        self.rejected = []
        self.of = of

    async def __aenter__(self):
        async def reject(record, reason):
            self.rejected.append((record.sequence_numbers[0], reason))

        await self.sink.open(rp.SinkContext(reject=reject, value_type=self.of))
        return self

    async def __aexit__(self, *_):
        await self.sink.close()

    async def commit(self, *batches):
        for one in batches:
            await self.sink.write(one)
        await self.sink.flush(rp.Checkpoint(STATE))


async def written(uri, *batches, **settings):
    """What the table has after each batch was committed alone, and the rejected records."""
    async with Job(uri, **settings) as job:
        for one in batches:
            await job.commit(one)
    return query(uri, "select id, note from records order by id"), job.rejected


def row(key, note, **more):
    return {"id": key, "note": note, **more}


def deleted(key):
    return {"id": key, "op": "D"}


async def test_the_last_of_several_records_of_a_batch_is_the_row(uri):
    query(uri, OWN)
    rows, _ = await written(uri, of_shard((1, row(1, "a")), (2, row(2, "b")), (3, row(1, "c"))))
    assert rows == [(1, "c"), (2, "b")]


async def test_numbers_are_compared_as_numbers(uri):
    query(uri, OWN)
    rows, _ = await written(uri, of_shard((10, row(1, "new"))), of_shard((9, row(1, "old")), shard="shardId-1"))
    assert rows == [(1, "new")]


async def test_parts_of_an_aggregate_are_compared_by_their_own_number(uri):
    query(uri, OWN)
    rows, _ = await written(uri, of_shard((1, 10, row(1, "new"))), of_shard((1, 9, row(1, "old"))))
    assert rows == [(1, "new")]


async def test_a_deleted_row_does_not_come_back_by_an_older_record_of_another_shard(uri):
    query(uri, OWN)
    older = of_shard((1, row(1, "old")), shard="shardId-1")
    rows, _ = await written(uri, of_shard((2, deleted(1))), older)
    assert rows == []


async def test_a_newer_record_brings_a_deleted_row_back(uri):
    query(uri, OWN)
    rows, _ = await written(uri, of_shard((1, row(1, "a"))), of_shard((2, deleted(1))), of_shard((3, row(1, "b"))))
    assert rows == [(1, "b")]


async def test_a_replay_changes_nothing_at_any_of_its_commits(uri):
    query(uri, OWN)
    history = [
        of_shard((1, row(1, "a"))),
        of_shard((2, row(1, "b"))),
        of_shard((3, row(2, "c"))),
        of_shard((4, deleted(2))),
    ]
    first, _ = await written(uri, *history)
    for one in history:
        assert (await written(uri, one, name="another"))[0] == first == [(1, "b")]


async def test_a_replay_fills_a_table_that_was_emptied(uri):
    query(uri, OWN)
    history = [of_shard((1, row(1, "a")), (2, row(1, "b")), (3, row(2, "c")), (4, deleted(2)))]
    await written(uri, *history)
    query(uri, "delete from records")
    assert (await written(uri, *history))[0] == [(1, "b")]


async def test_a_field_that_the_newest_record_lacks_has_its_default_again(uri):
    query(uri, OWN)
    rows, _ = await written(uri, of_shard((1, row(1, "a"))), of_shard((2, {"id": 1})))
    assert rows == [(1, "none")]


async def test_a_boolean_field_deletes(uri):
    query(uri, OWN)
    gone, bad = {"id": 1, "gone": True}, {"id": 2, "gone": "yes"}
    kept = {"id": 3, "note": "c", "gone": False}
    batches = of_shard((1, row(1, "a")), (2, row(2, "b")), (3, gone), (4, bad), (5, kept))
    rows, rejected = await written(uri, batches, delete="gone")
    assert rows == [(2, "b"), (3, "c")]
    assert rejected == [("4", "TypeError: field 'gone' says whether a row is deleted, and 'yes' is not a boolean")]


async def test_a_delete_needs_no_other_field_that_fits(uri):
    query(uri, "create table records (id bigint primary key, note text not null, n int)")
    rows, rejected = await written(uri, of_shard((1, row(1, "a"))), of_shard((2, {"id": "1", "op": "D", "n": "x"})))
    assert (rows, rejected) == ([], [])


async def test_a_record_without_a_key_is_a_bad_record(uri):
    query(uri, OWN)
    batches = of_shard((1, {"note": "a"}), (2, {"id": None, "op": "D"}), (3, row(1, "a")), (4, [1]))
    rows, rejected = await written(uri, batches)
    assert rows == [(1, "a")]
    assert rejected == [(number, "field 'id' of the key is missing or null") for number in ("1", "2", "4")]


async def test_the_record_before_a_rejected_one_is_the_row(uri):
    query(uri, "create table records (id bigint primary key, note text not null, n int check (n > 0))")
    batches = of_shard((1, row(1, "a", n=1)), (2, row(1, "b", n=-1)))
    rows, rejected = await written(uri, batches)
    assert rows == [(1, "a")]
    assert [number for number, _ in rejected] == ["2"]


async def test_a_key_of_two_streams_is_refused(uri):
    query(uri, OWN)
    rows, rejected = await written(uri, of_shard((1, row(1, "a"))), of_shard((2, row(1, "b")), stream="others"))
    assert rows == [(1, "a")]
    assert "the stream 'orders' has a record with the same key" in rejected[0][1]
    assert "add 'stream'" in rejected[0][1]


async def test_a_key_of_two_streams_in_one_commit_is_refused(uri):
    query(uri, OWN)
    async with Job(uri) as job:
        await job.commit(of_shard((1, row(1, "a"))), of_shard((2, row(1, "b")), stream="others"))
    assert len(job.rejected) == len(query(uri, "select * from records")) == 1


async def test_the_stream_may_be_a_part_of_the_key(uri):
    query(uri, "create table records (id int, stream varchar(128), note text, primary key (id, stream))")
    batches = of_shard((2, row(1, "a"))), of_shard((1, row(1, "b")), stream="others")
    assert (await written(uri, *batches, key="stream, id"))[0] == [(1, "a"), (1, "b")]


async def test_changes_of_dynamodb_are_kept_by_their_key(uri):
    query(uri, "create table records (partition_key text primary key, value text, sequence_number text)")
    put, gone = {"eventName": "INSERT"}, {"eventName": "REMOVE"}
    settings = {"key": "partition_key", "delete": "eventName=REMOVE"}
    async with Job(uri, **settings) as job:
        await job.commit(of_shard((1, put)))
        assert query(uri, "select partition_key, sequence_number from records") == [("key", "1")]
        await job.commit(of_shard((2, gone)))
    assert query(uri, "select * from records") == []


async def test_with_evolve_a_later_field_gets_its_column(uri, caplog):
    caplog.set_level("INFO", "recordpublisher.columns")
    query(uri, "create table records (id bigint primary key, note text)")
    rows = of_shard((1, row(1, "a"))), of_shard((2, row(1, "b", more=5))), of_shard((3, row(2, "c")))
    async with Job(uri, **{"sink_sql_columns": "EVOLVE", "delete": None}) as job:
        for one in rows:
            await job.commit(one)
    assert query(uri, "select id, note, more from records order by id") == [(1, "b", 5), (2, "c", None)]
    [told] = caplog.messages
    assert told.startswith("new or wider column of table records: ALTER TABLE records ADD COLUMN more ")


@dataclass
class Order:
    id: int
    note: str
    at: datetime | None = None


@pytest.mark.parametrize(
    ("delete", "words"),
    [
        ("nota=D", r"'nota=D': the records have no field 'nota'; did you mean 'note'\?.*id, note, at"),
        ("gone", r"'gone'\. Valid"),
    ],
)
async def test_a_field_that_deletes_and_that_no_record_can_have_is_refused(uri, delete, words):
    job = Job(uri, of=Order, delete=delete)
    with pytest.raises(rp.ConfigurationError, match=rf"flink\.sink\.sql\.delete.*{words}"):
        await job.__aenter__()
    await job.sink.close()


async def test_a_missing_table_is_created_with_the_key(uri):
    async with Job(uri, of=Order, delete=None) as job:
        await job.commit(of_shard((1, Order(1, "a")), (2, Order(1, "b"))))
    async with Job(uri, of=Order, delete=None) as job:
        await job.commit(of_shard((3, Order(2, "c"))))
    assert query(uri, "select id, note, at, sequence_number from records order by id") == [
        (1, "b", None, "2"),
        (2, "c", None, "3"),
    ]


async def test_numbers_that_the_database_gave_to_a_row_stay(uri):
    number = "serial" if uri.startswith("postgresql") else "integer"
    query(uri, f"create table records (n {number} primary key, id text unique, note text)")
    await written(uri, of_shard((1, row("x", "a"))), of_shard((2, row("y", "b"))))
    before = query(uri, "select n, id from records order by id")
    rows, _ = await written(uri, of_shard((3, row("x", "c"))))
    assert rows == [("x", "c"), ("y", "b")]
    assert query(uri, "select n, id from records order by id") == before


async def test_a_row_takes_the_place_that_another_one_frees_in_a_unique_index(uri):
    query(uri, "create table records (id bigint primary key, note text unique)")
    freed = of_shard((3, row(2, "c")), (4, row(1, "b")), (5, row(2, "d")))  # the row of 2 is written after that of 1
    rows, rejected = await written(uri, of_shard((2, row(2, "b"))), freed)
    assert (rows, rejected) == ([(1, "b"), (2, "d")], [])


async def test_jobs_that_name_a_table_or_a_key_in_another_way_know_of_each_other(uri):
    query(uri, "create table records (id bigint, part text, note text, primary key (id, part))")
    other = "main.Records" if uri.startswith("sqlite") else "public.records"
    new, old = (of_shard((number, row(1, number, part="a"))) for number in (5, 2))
    async with Job(uri, key="id,part") as one, Job(uri, "other", key="part,id", sink_sql_table=other) as two:
        await one.commit(new)
        await two.commit(old)
    assert query(uri, "select note from records") == [("5",)]


async def test_a_partition_key_in_a_column_of_numbers_is_the_key_as_a_number(uri):
    query(uri, "create table records (partition_key bigint primary key, note text)")
    async with Job(uri, key="partition_key") as job:
        for number, key, note in ((5, "12", "new"), (3, "012", "old"), (6, "x", "bad")):
            one = of_shard((number, {"note": note}))
            one.records[0].partition_key = key
            await job.commit(one)
    assert query(uri, "select partition_key, note from records") == [(12, "new")]
    assert job.rejected == [("6", "column 'partition_key' (bigint) cannot take 'x'")]


KEYS_THAT_DO_NOT_FIT = {
    "a time for a date": ("date", datetime(2024, 1, 1, 5), "has a time of day"),
    "a number for bytes": ("blob(16)", 5, "is neither text nor bytes"),
}


@pytest.mark.parametrize("case", KEYS_THAT_DO_NOT_FIT)
async def test_a_key_that_its_column_would_change_is_a_bad_record(tmp_path, case):
    of_column, key, reason = KEYS_THAT_DO_NOT_FIT[case]
    uri = f"sqlite:///{tmp_path}/job.db"
    query(uri, f"create table records (id {of_column} primary key, note text)")
    rows, [(_, told)] = await written(uri, of_shard((1, row(key, "a"))))
    assert rows == []
    assert reason in told


REFUSED = {
    "no index": ("create table records (id bigint, note text)", "no unique index .* CREATE UNIQUE INDEX"),
    "an index of more": (
        "create table records (id bigint, note text, unique (id, note))",
        "no unique index of table records has exactly these columns",
    ),
    "a partial index": (
        "create table records (id bigint, note text); create unique index u on records (id) where note is null",
        "no unique index",
    ),
    "no column": ("create table records (note text)", "has no column 'id'"),
    "a type that rounds": ("create table records (id float primary key)", "column 'id' is of type"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_table_that_does_not_fit_is_refused_at_the_start_and_by_the_check(uri, case):
    for statement in REFUSED[case][0].split(";"):
        query(uri, statement)
    job = Job(uri)
    with pytest.raises(rp.ConfigurationError, match=REFUSED[case][1]):
        await job.sink.open(rp.SinkContext())
    with pytest.raises(rp.ConfigurationError, match=REFUSED[case][1]):
        await job.sink.check_values(rp.SinkContext())
    await job.sink.close()


async def test_a_key_whose_column_takes_different_texts_for_the_same_is_refused(uri):
    collation = "nocase"
    if uri.startswith("postgresql"):
        collation = "insensitive"
        query(uri, f"create collation {collation} (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    query(uri, f"create table records (id text collate {collation} primary key, note text)")
    job = Job(uri)
    with pytest.raises(rp.ConfigurationError, match="the collation of column 'id'"):
        await job.sink.open(rp.SinkContext())
    await job.sink.close()


@pytest.mark.slow
async def test_a_key_that_is_checked_at_the_end_of_a_transaction_is_refused(postgresql):
    query(postgresql, "drop schema public cascade; create schema public")
    query(postgresql, "create table records (id bigint primary key deferrable, note text)")
    job = Job(postgresql)
    with pytest.raises(rp.ConfigurationError, match="is deferrable"):
        await job.sink.open(rp.SinkContext())
    await job.sink.close()


async def test_a_missing_table_without_the_type_of_the_key_is_refused(uri):
    job = Job(uri)
    with pytest.raises(rp.ConfigurationError, match="the type of 'id', a field of its key, is not known"):
        await job.sink.open(rp.SinkContext())
    await job.sink.close()


INFER = {"deserializer_schema": "INFER"}


async def test_a_missing_table_is_created_with_the_key_whose_type_the_first_records_show(uri):
    async with Job(uri, **INFER) as job:
        assert await job.sink.check_values(rp.SinkContext()) == (
            "records will be created when the first records show the type of its key"
        )
        await job.sink.flush(rp.Checkpoint(STATE))
        await job.commit(of_shard((1, {"note": "x"}), (2, {"id": None})))
        assert job.rejected == [(number, "a field of the key is missing or null") for number in ("1", "2")]
        await job.commit(
            of_shard((3, row(1, "a")), (4, row(2, "b")), (5, {"note": "no key"}), (6, row(1, "c", more=1.5)))
        )
        assert job.rejected[2:] == [("5", "field 'id' of the key is missing or null")]
    async with Job(uri, **INFER) as job:
        await job.commit(of_shard((7, deleted(2)), (8, row(3, "d", later=True))))

    assert query(uri, "select id, note, more from records order by id") == [(1, "c", 1.5), (3, "d", None)]


async def test_the_second_of_two_workers_takes_the_table_that_the_first_one_has_made(uri):
    async with Job(uri, "one", **INFER) as first, Job(uri, "two", **INFER) as second:
        await first.commit(of_shard((1, row(1, "a"))))
        await second.commit(of_shard((2, row(2, "b", more="x")), shard="shardId-1"))

    assert query(uri, "select id, note, more from records order by id") == [(1, "a", None), (2, "b", "x")]


async def test_a_key_that_the_database_would_round_is_refused_when_the_first_records_show_it(uri):
    async with Job(uri, **INFER) as job:
        with pytest.raises(rp.ConfigurationError, match="column 'id' is of type double"):
            await job.commit(of_shard((1, row(1.5, "a"))))


async def test_the_check_of_a_fitting_table_changes_nothing(uri):
    query(uri, OWN)
    job = Job(uri)
    assert await job.sink.check_values(rp.SinkContext()) == "records is there"
    await job.sink.close()
    assert query(uri, "select * from records") == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"flink.sink.sql.delete": "gone"}, "delete' needs flink.sink.sql.key"),
        ({"flink.sink.sql.key": "id,id"}, "different names of fields"),
        ({"flink.sink.sql.key": "id,"}, "different names of fields"),
        ({"flink.sink.sql.key": "id", "flink.sink.sql.delete": "=D"}, "a boolean field, or field=value"),
    ],
)
def test_wrong_properties_are_refused(settings, words):
    given = {"flink.job.name": "job", "flink.sink.sql.uri": "sqlite:///x.db", **settings}
    with pytest.raises(rp.ConfigurationError, match=words):
        SqlSink(rp.Properties(given))


def model_of(records):
    """The newest row of each key, of the records that were written so far: what a dictionary says."""
    newest = {}
    for *_, value in sorted(records, key=lambda record: record[:2]):
        newest[value["id"]] = value
    return sorted((key, value["note"]) for key, value in newest.items() if value.get("op") != "D")


@pytest.mark.parametrize("seed", range(4))
async def test_any_order_of_shards_commits_and_replays_is_as_a_dictionary_says(uri, seed):
    """Random shards whose records arrive in the order of each, with replays of any that were committed, by several starts."""
    draw = random.Random(seed)
    query(uri, OWN)
    shards = [[] for _ in range(3)]
    for number in range(1, 120):
        key, sub = draw.choice([1, 2, 3, 10**18]), draw.randrange(12)
        value = deleted(key) if draw.random() < 0.3 else row(key, f"{number}")
        draw.choice(shards).append((number * 7, sub, value))
    done, at = [], [0, 0, 0]
    while any(at[index] < len(shards[index]) for index in range(3)):
        async with Job(uri) as job:
            for _ in range(draw.randrange(1, 4)):
                batches = []
                for _ in range(draw.randrange(1, 4)):
                    index = draw.randrange(3)
                    begin = (
                        draw.randrange(at[index] + 1) if draw.random() < 0.3 else at[index]
                    )  # a replay, or what follows
                    some = shards[index][begin : max(at[index], begin) + draw.randrange(1, 12)]
                    at[index] = max(at[index], begin + len(some))
                    batches.append(of_shard(*some, shard=f"shardId-{index}"))
                    done += some
                await job.commit(*batches)
                assert query(uri, "select id, note from records order by id") == model_of(done)
    assert not job.rejected


@pytest.mark.slow
@pytest.mark.parametrize("first", ["old", "new"])
def test_of_two_workers_that_commit_one_key_the_second_decides_by_what_the_first_commits(postgresql, first):
    """The second waits for the first transaction, whichever of them has the newer record."""
    query(postgresql, "drop schema public cascade; create schema public")
    query(postgresql, OWN)
    engine = create_engine(postgresql.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        table = TargetTable(connection, "records", latest=LatestByKey(("id",), "op", "D"))
    batches = {"old": of_shard((1, row(1, "old"))), "new": of_shard((2, deleted(1)), shard="shardId-1")}
    second = batches["new" if first == "old" else "old"]

    def commit(batch):
        with engine.begin() as connection:
            table.insert(connection, list(table.rows.rows(batch)))

    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
    with ThreadPoolExecutor() as threads:
        with engine.begin() as connection:
            table.insert(connection, list(table.rows.rows(batches[first])))
            other = threads.submit(commit, second)
            while not query(postgresql, waiting)[0][0]:
                assert not other.done()
        other.result()
    engine.dispose()
    assert query(postgresql, "select * from records") == []


@pytest.mark.slow
async def test_the_job_of_the_page_keeps_the_newest_row_through_a_split_and_when_it_reads_all_again(postgresql):
    page = (ROOT / "docs/how-to/write-to-a-database.md").read_text().partition("## Keep the newest row of a key")[2]
    (table, properties), *_ = re.findall(r"```sql\n(.*?)```\n\n```properties\n(.*?)```", page, re.DOTALL)
    query(postgresql, "drop schema if exists shop cascade; drop schema public cascade; create schema public")
    query(postgresql, "create schema shop")
    query(postgresql, table)
    given = dict(line.split(" = ") for line in properties.splitlines())
    given |= {"flink.sink.sql.uri": postgresql, "flink.stream.initpos": "TRIM_HORIZON"}
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        stream = endpoint.stream("orders")
        stream.put(b'{"id": 1, "status": "paid", "total": 1.5}', "1")
        stream.put(b'{"id": 2, "status": "paid", "total": 2}', "2")
        stream.split("shardId-000000000000")
        stream.put(b'{"id": 1, "status": "sent", "total": 1.5}', "1")
        stream.put(b'{"id": 2, "op": "D"}', "2")
        for job in ("orders", "orders", "orders again"):
            async with rp.DataFetcher("orders", {**endpoint.properties(), **given, "flink.job.name": job}) as fetcher:
                await fetcher.run_bounded(stop_at_tip=True)
            assert query(postgresql, "select * from shop.orders") == [(1, "sent", Decimal("1.50"))]
    query(postgresql, "drop schema shop cascade")


@pytest.mark.parametrize("change", ["drop index only_one", "alter table records rename column id to other"])
@pytest.mark.parametrize("value", [row(1, "new"), deleted(1)], ids=["upsert", "delete"])
async def test_a_key_that_goes_under_the_job_ends_it_and_costs_no_record(uri, change, value):  # S7
    """Each record would be rejected, and skipped with SKIP, although the next start names what is missing."""
    query(uri, "create table records (id bigint, note text, op text)")
    query(uri, "create unique index only_one on records (id)")
    async with Job(uri) as job:
        await job.commit(of_shard((1, row(1, "a"))))
        query(uri, change)
        if change.startswith("alter") or value == row(1, "new"):
            with pytest.raises(
                rp.SinkError, match=r"table records was changed while the job runs: .*Start the job again"
            ):
                await job.commit(of_shard((2, value)))
        assert job.rejected == []


@pytest.mark.parametrize("name", ["value", "data", "explicit_hash_key", "event_time", "partition_key"])
async def test_a_field_that_a_record_lacks_is_null_even_if_metadata_has_its_name(uri, name):
    batches = [of_shard((1, {"id": 1, name: "a"}), (2, {"id": 2, name: "b"})), of_shard((3, {"id": 1}))]
    for one in batches:  # the second start finds the table
        async with Job(uri, delete="", sink_sql_columns="EVOLVE") as job:
            await job.commit(one)
            assert not job.rejected
    assert query(uri, f"select id, {name} from records order by id") == [(1, None), (2, "b")]


async def test_a_column_value_in_a_table_of_the_user_has_the_whole_document(uri):
    metadata = "stream text, shard_id text, sequence_number text, sub_sequence_number int, partition_key text"
    rest = "approximate_arrival_timestamp text, event_time bigint, value text"
    query(uri, f"create table records (id bigint primary key, {metadata}, {rest})")
    async with Job(uri, delete="") as job:
        await job.commit(of_shard((1, {"id": 1})))
    assert query(uri, "select id, value from records") == [(1, '{"id": 1}')]
