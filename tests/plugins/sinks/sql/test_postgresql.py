"""The sql sink on a real PostgreSQL: types, lost connections, and a predecessor that holds locks."""

import asyncio
import decimal
import random
import re
import string
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

import psycopg
import pytest
from sqlalchemy import text

import recordpublisher as rp
from recordpublisher.plugins.databases import Database
from recordpublisher.plugins.sinks.sql import SqlSink, target_table

from fakes.batches import batch
from fakes.commits.committing_sink import snapshot_at, started

pytestmark = pytest.mark.slow
STATE = snapshot_at(2)


@pytest.fixture
def uri(postgresql, request):
    """A database of the test's own."""
    name = f"test_{abs(hash(request.node.name))}"
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute(f"create database {name}")
    yield postgresql.replace("/postgres?", f"/{name}?")
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute(f"drop database {name} with (force)")


@pytest.fixture
async def made(uri):
    """Makes sinks of one job, as independent processes would."""
    sinks = []

    def make(**more):
        given = {"flink.job.name": "job", "flink.sink.sql.uri": uri, **more}
        sinks.append(SqlSink(rp.Properties(given)))
        return sinks[-1]

    yield make
    for sink in sinks:
        await sink.close()


def query(uri, statement):
    with psycopg.connect(uri) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else None


def with_values(*values):
    return batch(*(b"%d" % number for number in range(len(values)))).with_columns(values=list(values))


async def committed(sink, *batches):
    for one in batches:
        await sink.write(one)
    await sink.flush()


async def test_a_missing_table_is_created_for_records(uri, made):
    sink = made()
    await sink.open(rp.SinkContext())
    await committed(sink, batch(b"a"))

    arrival = datetime(2023, 11, 14, 22, 13, 20, 500_000, UTC)
    shown = query(uri, "select shard_id, sequence_number, approximate_arrival_timestamp, event_time, data from records")
    assert shown == [("shardId-0", "1", arrival, 1_700_000_000_500, b"a")]


async def test_a_table_that_another_worker_creates_at_the_same_time_is_used(uri, made):
    sink, other = made(), await psycopg.AsyncConnection.connect(uri)
    async with other:
        await other.execute("select pg_advisory_xact_lock(hashtext('records'))")
        await other.execute("create table records (data bytea)")
        opening = asyncio.create_task(sink.open(rp.SinkContext()))
        await asyncio.sleep(1)  # It has looked for the table, which nobody sees before the commit.
    await opening
    await committed(sink, batch(b"a"))
    assert query(uri, "select data from records") == [(b"a",)]


async def test_a_missing_right_is_told_without_the_statement(uri, made):
    query(uri, "create role reader login")
    try:
        with pytest.raises(rp.ConfigurationError, match="permission denied for schema public") as raised:
            await made(**{"flink.sink.sql.uri": uri.replace("tester@", "reader@")}).open(rp.SinkContext())
    finally:
        query(uri, "drop role reader")
    assert "CREATE TABLE" not in str(raised.value)


async def test_a_user_whose_login_changes_while_the_job_runs_is_let_in_when_it_is_right_again(uri):
    """A DBA changes the password first, and where jobs read it (PGPASSFILE) a moment later. Here the name is gone for a second."""
    query(uri, "create role shop login")
    database = Database(uri.replace("tester@", "shop@"), "uri", rp.Properties(max_outage="30s"))
    try:
        await database.transaction(lambda connection: None)
        await database.close()  # As after the end of its session: the next transaction connects again.
        query(uri, "alter role shop rename to hidden")
        with pytest.raises(rp.ConfigurationError, match="does not exist"):  # who has never been let in
            await Database(uri.replace("tester@", "shop@"), "uri", rp.Properties()).transaction(lambda connection: None)
        waiting = asyncio.create_task(database.transaction(lambda connection: connection.scalar(text("SELECT 7"))))
        await asyncio.sleep(1)
        assert not waiting.done()
        query(uri, "alter role hidden rename to shop")
        assert await waiting == 7
    finally:
        await database.close()
        query(uri, "drop role if exists hidden")
        query(uri, "drop role if exists shop")


async def test_json_values_are_converted_to_the_types_of_columns(uri, made):
    query(uri, "create schema shop")
    query(
        uri,
        "create table shop.orders (id bigserial primary key, price numeric, paid boolean, at timestamptz, day date, "
        "who uuid, more jsonb, tags text[], note text default 'none', weight float8, shard_id text)",
    )
    who = uuid.uuid4()
    sink = made(**{"flink.sink.sql.table": "shop.orders"})
    await sink.open(rp.SinkContext())
    value = {"price": 1.1, "paid": True, "at": "2026-11-20T06:00:00Z", "day": "2026-11-20", "who": str(who)}
    await committed(sink, with_values({**value, "more": {"a": [1]}, "tags": ["x", "y"], "weight": 2}, {"note": "some"}))

    at = datetime(2026, 11, 20, 6, tzinfo=UTC)
    rows = query(uri, "select * from shop.orders order by id")
    assert rows == [
        (1, decimal.Decimal("1.1"), True, at, at.date(), who, {"a": [1]}, ["x", "y"], "none", 2.0, "shardId-0"),
        (2, None, None, None, None, None, None, None, "some", None, "shardId-0"),
    ]


BAD = [{"n": 2**40}, {"n": "word"}, {"n": None}, {"n": 1, "t": "nul \0"}, {"n": 7}, {"n": [1]}]


async def test_bad_rows_are_rejected_and_the_others_are_written(uri, made):  # S7
    query(uri, "create table t (n int not null unique, t text)")
    given_away = []

    async def reject(record, reason):
        given_away.append((record.sequence_numbers[0], reason))

    sink = made(**{"flink.sink.sql.table": "t"})
    await sink.open(rp.SinkContext(reject=reject))
    await committed(sink, with_values({"n": 7}, *BAD, {"n": 8}))

    assert query(uri, "select n from t order by n") == [(7,), (8,)]
    assert sorted(number for number, _ in given_away) == list("234567")


REFUSED = {
    "a boolean as a time": ("ts timestamptz", {"ts": True}),
    "text of a uuid": ("v uuid", {"v": "x"}),
    "a number as a uuid": ("v uuid", {"v": 5}),
    "inet": ("v inet", {"v": 5}),
    "interval": ("v interval", {"v": {"a": 1}}),
    "array": ("v integer[]", {"v": [1, {"k": 1}]}),
    "array of arrays": ("v integer[]", {"v": [[1], [2, 3]]}),
    "no array": ("v text[]", {"v": 5}),
    "range": ("v int4range", {"v": "x"}),
    "bytes": ("v bytea", {"v": [1]}),
    "money": ("v money", {"v": 1e300}),
    "date": ("v date", {"v": 5}),
    "time": ("v time", {"v": 7}),
    "half a surrogate": ("v text", {"v": "\ud800"}),
    "numeric": ("v numeric", {"v": "1e1000000"}),
    "not null, deferred foreign key": ("v int references parents (id) deferrable initially deferred", {"v": 5}),
    "a trigger that raises": ("v int check (v < 9)", {"v": 77}),
    "too large for the index": (
        "v text unique",
        {"v": "".join(random.Random(1).choices(string.ascii_letters, k=50_000))},
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
async def test_whatever_value_a_column_refuses_only_its_row_is_rejected(uri, made, kind):  # S7
    columns, value = REFUSED[kind]
    query(uri, "create table parents (id int primary key)")
    query(uri, f"create table t (n int, {columns})")
    rejected = []

    async def reject(record, reason):
        rejected.append((record.sequence_numbers, bool(reason)))

    sink = made(**{"flink.sink.sql.table": "t"})
    await sink.open(rp.SinkContext(reject=reject))
    await committed(sink, with_values({"n": 1}, {"n": 2, **value}, {"n": 3}))
    assert (query(uri, "select n from t order by n"), rejected) == ([(1,), (3,)], [(["2"], True)])


async def test_a_trigger_that_raises_rejects_the_row(uri, made):
    query(uri, "create table t (n int)")
    query(
        uri,
        "create function refuse() returns trigger language plpgsql as "
        "$$begin if new.n < 0 then raise exception 'no'; end if; return new; end$$; "
        "create trigger refuse before insert on t for each row execute function refuse()",
    )
    rejected = []

    async def reject(record, reason):
        rejected.append(reason)

    sink = made(**{"flink.sink.sql.table": "t"})
    await sink.open(rp.SinkContext(reject=reject))
    await committed(sink, with_values({"n": 1}, {"n": -1}))
    assert query(uri, "select n from t") == [(1,)]
    assert rejected[0].startswith("RaiseException: no")


async def test_columns_that_the_database_generates_are_left_out(uri, made):
    query(
        uri,
        "create table t (id bigint generated always as identity, n text, up text generated always as (upper(n)) stored)",
    )
    sink = made(**{"flink.sink.sql.table": "t"})
    await sink.open(rp.SinkContext())
    await committed(sink, with_values({"id": 70, "n": "a", "up": "x"}))
    assert query(uri, "select * from t") == [(1, "a", "A")]


async def test_rows_that_refer_to_later_rows_of_a_checkpoint_are_written_where_constraints_are_deferred(uri, made):
    query(uri, "create table t (n int primary key, of int references t (n) deferrable initially deferred)")
    sink = made(**{"flink.sink.sql.table": "t"})
    await sink.open(rp.SinkContext())
    await committed(sink, with_values({"n": 1, "of": 2}, {"n": 2, "of": None}))
    assert query(uri, "select n, of from t order by n") == [(1, 2), (2, None)]


async def test_instants_do_not_depend_on_the_zone_of_the_session(uri, made, monkeypatch):
    monkeypatch.setenv("PGTZ", "Europe/Berlin")  # where 02:30 comes twice that day
    query(uri, "create table t (n int, at timestamp, tz timestamptz, many timestamptz[], day time, dayz timetz)")
    given = ["2026-10-25T01:30:00Z", "2026-10-25T03:30:00+02:00", 1792891800000, "2026-10-25T01:30:00"]
    sink = made(**{"flink.sink.sql.table": "t"})
    await sink.open(rp.SinkContext())
    times = [{"n": n, "at": at, "tz": at, "many": [at], "day": "03:30+02:00"} for n, at in enumerate(given)]
    await committed(sink, with_values(*times, {"n": 4, "at": "2026-10-25T00:30:00Z", "day": "01:30", "dayz": "01:30"}))
    instant = datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
    utc = "tz at time zone 'UTC', many[1] at time zone 'UTC'"
    rows = query(uri, f"select at, {utc}, day::text, dayz::text from t order by n")
    assert rows[:4] == [(*[instant.replace(tzinfo=None)] * 3, "01:30:00", None)] * 4
    assert rows[4] == (datetime(2026, 10, 25, 0, 30), None, None, "01:30:00", "01:30:00+00")


async def test_the_day_and_time_of_an_instant_are_those_of_utc(uri, made, monkeypatch):
    """Avro has instants as datetimes, which PostgreSQL converts to a date or time in the zone of the session."""
    monkeypatch.setenv("PGTZ", "Europe/Berlin")
    query(uri, "create table t (day date, at time)")
    sink = made(**{"flink.sink.sql.table": "t"})
    await sink.open(rp.SinkContext())
    instant = datetime(2026, 10, 24, 23, 30, tzinfo=UTC)
    await committed(sink, with_values({"day": instant, "at": instant}))
    assert query(uri, "select day::text, at::text from t") == [("2026-10-24", "23:30:00")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("/test_", "/not_there_"), "does not exist"),
        (("tester@", "nobody_knows@"), "does not exist"),
    ],
)
async def test_what_another_try_cannot_mend_fails_at_once(uri, made, caplog, change, message):
    with pytest.raises(rp.ConfigurationError, match=message):
        await made(**{"flink.sink.sql.uri": uri.replace(*change)}).open(rp.SinkContext())
    assert "have failed for" not in caplog.text


@pytest.mark.parametrize("name", ["t" * 64, "ü" * 32])
async def test_a_name_that_is_too_long_is_named(uri, made, name):
    with pytest.raises(rp.ConfigurationError, match=r"flink\.sink\.sql\.table.*more than 63 bytes"):
        await made(**{"flink.sink.sql.table": name}).open(rp.SinkContext())


async def test_a_row_that_breaks_another_unique_index_than_the_key_is_a_bad_record_and_a_repeated_row_is_not(uri, made):
    rejected = []

    async def reject(record, reason):
        rejected.append((record.sequence_numbers, reason))

    sink = made()
    await sink.open(rp.SinkContext(reject=reject))
    query(uri, "create unique index one_of_each on records (data)")
    for _ in range(2):
        await committed(sink, batch(b"a"))
    assert rejected == []
    await committed(sink, batch(b"a", b"a", b"b"))

    assert query(uri, "select sequence_number, data from records") == [("1", b"a"), ("3", b"b")]
    assert [numbers for numbers, _ in rejected] == [["2"]]
    assert "one_of_each" in rejected[0][1]


async def test_a_lost_connection_is_reopened_and_nothing_is_written_twice(uri, made):  # S6
    query(uri, "create table t (n int)")
    job = await started(made(**{"flink.sink.sql.table": "t"}))
    for number in range(4):
        await job.sink.write(with_values(*[{"n": number}] * 500))
        committing = asyncio.ensure_future(job.checkpoint(STATE))
        await asyncio.sleep(0.01 * number)
        query(
            uri, "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'recordpublisher%'"
        )
        await committing

    assert query(uri, "select n, count(*) from t group by n order by n") == [(number, 500) for number in range(4)]


async def test_a_commit_whose_response_was_lost_is_not_repeated(uri, made, monkeypatch):  # S6
    query(uri, "create table t (n int)")
    job = await started(made(**{"flink.sink.sql.table": "t"}))
    transaction = job.sink._database.transaction

    async def twice(work):
        await transaction(work)
        return await transaction(work)

    monkeypatch.setattr(job.sink._database, "transaction", twice)
    await job.sink.write(with_values({"n": 1}))
    await job.checkpoint(STATE)

    assert query(uri, "select count(*) from t") == [(1,)]


@pytest.mark.parametrize("place", ["before its first lock", "holding the lock of its entry"])
async def test_a_predecessor_suspended_in_its_commit_blocks_nobody(uri, made, place):  # S6
    """The state after SIGSTOP in the middle of a commit."""
    sleeper = await started(made())
    with sleeper.sink._database._engine.connect() as asleep:
        transaction = asleep.begin()
        asleep.exec_driver_sql("SET idle_in_transaction_session_timeout = 0")  # the server never ends it
        if place == "holding the lock of its entry":
            asleep.exec_driver_sql("SELECT * FROM recordpublisher_commits FOR UPDATE")

        async with asyncio.timeout(60):
            successor = await started(made())
            await successor.sink.write(batch(b"new"))
            await successor.checkpoint(STATE)

        with pytest.raises(Exception, match=r"terminat|closed|invalid"):
            asleep.exec_driver_sql("SELECT 1")
        transaction.close()
    with pytest.raises(rp.FencedError):
        await sleeper.checkpoint(STATE)


async def test_transactions_of_another_job_are_left_alone(uri, made):
    other_job = await started(made(**{"flink.job.name": "other"}), job="other")
    with other_job.sink._database._engine.begin() as other:
        await started(made())

        assert other.exec_driver_sql("SELECT 1").scalar() == 1


async def test_an_unreachable_server_is_named_without_the_password(tmp_path, made):  # C3
    given = {
        "flink.sink.sql.uri": f"postgresql://me:hunter2@/db?host={tmp_path}",
        "flink.job.max.outage": "100ms",
    }
    with pytest.raises(
        rp.RetriesExhaustedError,
        match=r"failed . times in a row.*flink.job.max.outage decides.*No such file or directory",
    ) as raised:
        await made(**given).open(rp.SinkContext())
    assert "hunter2" not in str(raised.value)


@pytest.mark.filterwarnings("ignore:Did not recognize type")
@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("v numeric", {"v": "cheap"}, "column 'v' (numeric) cannot take 'cheap'"),
        ("v timestamptz", {"v": "yesterday"}, "column 'v' (timestamp) cannot take 'yesterday'"),
        ("v timestamptz", {"v": "1712123010123"}, "column 'v' (timestamp) cannot take '1712123010123'"),
        ("v date", {"v": "1712123010"}, "column 'v' (date) cannot take '1712123010'"),
        ("v time", {"v": "1712123010"}, "column 'v' (time) cannot take '1712123010'"),
        ("v int", {"v": 99_999_999_999}, "column 'v' (integer) cannot take 99999999999"),
        ("v int", {"v": "1" * 500}, f"column 'v' (integer) cannot take '{'1' * 99}"),
        ("v int", {"v": 12.7}, "column 'v' (integer) cannot take 12.7"),
        ("v int", {"v": True}, "column 'v' (integer) cannot take True"),
        ("v float8", {"v": {"a": 1}}, "column 'v' (double precision) cannot take {'a': 1}"),
        ("v int[]", {"v": [1, 0.5]}, "column 'v' (array) cannot take [1, 0.5]"),
        ("v inet", {"v": "here"}, "column 'v' (inet) cannot take 'here'"),
        ("v text", {"v": "nul \0"}, "column 'v' (text) cannot take 'nul \\x00'"),
        ("v xml", {"v": "<a"}, "InvalidXmlContent: invalid XML content"),
        ("v point", {"v": "here"}, 'InvalidTextRepresentation: invalid input syntax for type point: "here"'),
        (
            "v varchar(3)",
            {"v": "long"},
            "StringDataRightTruncation: value too long for type character varying(3): column 'v'",
        ),
        ("v int not null", [1], 'NotNullViolation: null value in column "v"'),
        ("v int not null", None, 'NotNullViolation: null value in column "v"'),
    ],
)
async def test_a_rejected_row_names_the_column_and_the_value(uri, made, column, value, reason):  # S7
    query(uri, f"create table t (shard_id text, {column})")
    reasons = []

    async def reject(record, reason):
        reasons.append(reason)

    sink = made(**{"flink.sink.sql.table": "t"})
    await sink.open(rp.SinkContext(reject=reject))
    await committed(sink, with_values(value))
    assert [each.startswith(reason) for each in reasons] == [True], reasons
    assert "CONTEXT" not in reasons[0]
    assert query(uri, "select * from t") == []


@dataclass
class Order:
    v: int | None
    w: int = 0


@pytest.mark.parametrize(
    ("value", "words"),
    [([1], "not a JSON object but [1]"), (Order(None), "Order(v=None, w=0)"), ({"w": 1}, "{'w': 1}")],
)
async def test_a_missing_value_is_told_with_what_the_record_has(uri, made, value, words):  # S7
    query(uri, "create table t (shard_id text, v int not null)")
    sink = made(**{"flink.sink.sql.table": "t"})
    await sink.open(rp.SinkContext())
    with pytest.raises(rp.SinkError, match=re.escape(f"; its value is {words}")) as raised:
        await committed(sink, with_values({"v": 1}, value))
    assert 'NotNullViolation: null value in column "v"' in str(raised.value)


@pytest.mark.parametrize("change", ["alter table t drop column v", "alter table t rename v to w", "drop table t"])
async def test_a_table_that_changes_under_the_job_ends_it_with_its_name(uri, made, change):
    query(uri, "create table t (n int, v int)")
    sink = made(**{"flink.sink.sql.table": "t"})
    await sink.open(rp.SinkContext())
    query(uri, change)
    with pytest.raises(
        rp.SinkError, match=r"table t was changed while the job runs: .*Start the job again, which reads"
    ):
        await committed(sink, with_values({"n": 1, "v": 1}))


@pytest.mark.parametrize(
    "change",
    [
        "alter v type boolean using true",
        "add w int not null",
        "drop v, add v int generated always as (1) stored",
        "alter v set not null, alter v add generated always as identity",
    ],
)
async def test_rows_that_only_the_changed_table_refuses_are_not_skipped(uri, made, change):  # S7
    """Each record would be skipped, although the next start reads the columns again and can write it."""
    query(uri, "create table t (n int, v int)")

    async def skip(record, reason):
        pytest.fail(f"skipped: {reason}")

    sink = made(**{"flink.sink.sql.table": "t"})
    await sink.open(rp.SinkContext(reject=skip))
    query(uri, f"alter table t {change}")
    with pytest.raises(
        rp.SinkError, match=r"table t was changed while the job runs: column '[vw]' .*Start the job again"
    ):
        await committed(sink, with_values({"n": 1, "v": 1}))


async def test_a_trigger_that_cannot_run_any_more_costs_no_record(uri, made):  # S7
    """No record is at fault if the function that the trigger calls was dropped."""
    query(uri, "create table t (n int)")
    query(uri, "create function one() returns int language sql as 'select 1'")
    body = "begin new.n = one(); return new; end"
    query(uri, f"create function fill() returns trigger language plpgsql as '{body}'")
    query(uri, "create trigger fills before insert on t for each row execute function fill()")

    async def skip(record, reason):
        pytest.fail(f"skipped: {reason}")

    sink = made(**{"flink.sink.sql.table": "t"})
    await sink.open(rp.SinkContext(reject=skip))
    query(uri, "drop function one")
    with pytest.raises(rp.ConfigurationError, match=r"function one\(\) does not exist"):
        await committed(sink, with_values({"n": 1}))


async def test_a_column_that_another_worker_adds_or_widens_ends_no_job(uri, made):
    query(uri, "create table t (n int, v int)")
    reasons = []

    async def skip(record, reason):
        reasons.append(reason)

    sink = made(**{"flink.sink.sql.table": "t"})
    await sink.open(rp.SinkContext(reject=skip))
    query(uri, "alter table t add w int, alter v type bigint")
    await committed(sink, with_values({"n": 2**40, "v": 1}, {"n": 1, "v": 1}))
    assert len(reasons) == 1
    assert query(uri, "select n, v from t") == [(1, 1)]


async def test_of_many_rejected_rows_some_are_explained_and_all_are_rejected(uri, made, monkeypatch):
    monkeypatch.setattr(target_table, "MOST_EXPLAINED", 2)
    query(uri, "create table t (v int)")
    reasons = []

    async def reject(record, reason):
        reasons.append(reason.partition(" cannot take")[0].partition(":")[0])

    sink = made(**{"flink.sink.sql.table": "t"})
    await sink.open(rp.SinkContext(reject=reject))
    await committed(sink, with_values(*[{"v": 2**40}] * 4))
    assert reasons == ["column 'v' (integer)"] * 2 + ["NumericValueOutOfRange"] * 2


async def test_a_whole_number_written_as_a_float_goes_to_an_integer_column(uri, made):
    query(uri, "create table t (n int)")
    sink = made(**{"flink.sink.sql.table": "t"})
    await sink.open(rp.SinkContext())
    await committed(sink, with_values({"n": 12.0}))
    assert query(uri, "select n from t") == [(12,)]


async def test_a_row_that_is_skipped_leaves_no_warning_of_the_driver(uri, made, caplog):
    query(uri, "create table t (n int not null)")

    async def skip(record, reason):
        pass

    sink = made(**{"flink.sink.sql.table": "t"})
    await sink.open(rp.SinkContext(reject=skip))
    await committed(sink, with_values(*[{"n": 1}, {"n": None}, {"n": 2**40}] * 3))
    assert query(uri, "select n from t") == [(1,)] * 3
    assert "psycopg" not in caplog.text


async def test_a_column_of_a_domain_follows_the_rules_of_the_type_below_it(uri, made):
    query(uri, "create domain price as numeric(9, 2) check (value < 100); create domain zoned as timestamptz")
    query(uri, "create domain moment as zoned; create table records (id int, amount price, at moment)")
    sink, rejected = made(), []

    async def reject(record, reason):
        rejected.append(reason)

    await sink.open(rp.SinkContext(reject=reject))
    query(uri, "alter role current_user set timezone to 'America/New_York'")
    await committed(
        sink,
        with_values({"id": 1, "at": 1_700_000_000_000}, {"id": 2, "amount": "NaN"}, {"id": 3, "amount": 100}),
        with_values({"id": 4, "at": "2026-11-22T06:00:00", "amount": 1.5}),
    )
    rows = query(uri, "select id, amount, at at time zone 'UTC' from records order by id")
    assert rows == [
        (1, None, datetime(2023, 11, 14, 22, 13, 20)),
        (4, decimal.Decimal("1.50"), datetime(2026, 11, 22, 6)),
    ]
    assert rejected[0] == "column 'amount' (numeric) cannot take 'NaN'"
    assert "price_check" in rejected[1]
