"""A bad record under each policy: only its own handling differs, positions and watermarks do not (S7)."""

import json
import logging
import sqlite3
from contextlib import closing

import pytest

import recordpublisher as rp
from recordpublisher.plugins.dead_letters.replay import stored_letters_of
from recordpublisher.plugins.sinks.files.jsonl_sink import JsonlSink

from fakes.memory_streams import PROPERTIES, install

GOOD, POISON = [b'{"at": 5}', b'{"at": 7}', b'{"at": 9}'], b"\xff no json"
STREAM = [GOOD[0], POISON, b"{", GOOD[1], b'{"no": "time"}', GOOD[2], POISON]
GIVEN = {**PROPERTIES, "flink.deserializer": "json", "flink.watermark.timestamp.field": "at", "flink.job.name": "job"}


@pytest.fixture(autouse=True)
def _orders(monkeypatch):
    install(monkeypatch, {"a": list(STREAM)}, closed=True)


async def run(policy, sink=None, **more):
    sink = sink or rp.MemorySink()
    properties = {**GIVEN, "flink.deserializer.error": policy, **more}
    async with rp.DataFetcher(["orders"], properties, sink=sink) as fetcher:
        await fetcher.run()
        return sink, fetcher.snapshot()["shards"]["orders/a"], fetcher.metrics()["shards"]["orders/a"]


def letters_in(folder):
    return [json.loads(line) for path in sorted(folder.rglob("*.jsonl")) for line in path.read_text().splitlines()]


async def test_fail_ends_the_job_and_names_the_record():
    with pytest.raises(rp.DeserializationError, match="record 1 of orders/a") as raised:
        await run("FAIL")
    assert raised.value.sequence_number == "1"


async def test_skip_and_dead_letter_differ_in_nothing_but_the_letters(tmp_path):
    letters = {"flink.deadletter.sink": "jsonl", "flink.deadletter.jsonl.path": str(tmp_path)}
    skipped, skipped_state, skipped_metrics = await run("SKIP")
    kept, kept_state, kept_metrics = await run("DEAD_LETTER", **letters)

    assert [record.value["at"] for record in kept.records] == [5, 7, 9]
    assert kept.records == skipped.records
    assert kept_state | {"tipMs": 0} == skipped_state | {"tipMs": 0}
    assert (kept_state["watermark"], kept_state["position"]) == (9, "6")
    assert (skipped_metrics["skippedRecords"], skipped_metrics["deadLetters"]) == (4, 0)
    assert (kept_metrics["skippedRecords"], kept_metrics["deadLetters"]) == (0, 4)


@pytest.mark.parametrize("policy", ["SKIP", "DEAD_LETTER"])
async def test_records_are_read_once_whoever_refuses_them(tmp_path, policy):
    """Of seven, the deserializer refuses four and the table one."""
    sql = {"flink.sink.sql.uri": f"sqlite:///{tmp_path}/job.db", "flink.sink.sql.table": "orders", "flink.sink": "sql"}
    with closing(sqlite3.connect(tmp_path / "job.db")) as database:
        database.execute("create table orders (at int not null check (at <> 7))")
    letters = {"flink.deadletter.sink": "jsonl", "flink.deadletter.jsonl.path": str(tmp_path)}
    given = {**GIVEN, "flink.deserializer.error": policy, **sql, **(letters if policy == "DEAD_LETTER" else {})}
    async with rp.DataFetcher(["orders"], given) as fetcher:
        await fetcher.run()
        done = fetcher.progress()
    assert (done.records, done.skipped + done.dead_letters) == (7, 5)


async def test_a_dead_letter_has_the_record_its_origin_and_the_reason(tmp_path):
    await run("DEAD_LETTER", **{"flink.deadletter.sink": "jsonl", "flink.deadletter.jsonl.path": str(tmp_path)})

    letters = letters_in(tmp_path)
    assert [letter["sequenceNumber"] for letter in letters] == ["1", "2", "4", "6"]
    assert [letter["value"]["payload"] for letter in letters[1:3]] == ["{", '{"no": "time"}']
    assert letters[0]["value"]["base64"] is True
    assert "record 2 of orders/a" in letters[1]["value"]["error"]


async def test_repeated_dead_letters_are_one_row_in_a_table_keyed_by_record(tmp_path):
    uri = f"sqlite:///{tmp_path}/letters.db"
    letters = {"flink.deadletter.sink": "sql", "flink.deadletter.sql.uri": uri, "flink.deadletter.sql.table": "letters"}
    for _ in range(2):
        await run("DEAD_LETTER", **letters)

    with closing(sqlite3.connect(tmp_path / "letters.db")) as database:
        rows = database.execute("select sequence_number, data, value from letters order by 1").fetchall()
    assert [(number, data) for number, data, _ in rows] == [
        ("1", POISON),
        ("2", b"{"),
        ("4", b'{"no": "time"}'),
        ("6", POISON),
    ]
    assert "error" in json.loads(rows[0][2])


async def test_a_dead_letter_is_stored_before_the_position_moves_past_it(tmp_path, monkeypatch):
    """A dead-letter sink that fails keeps the checkpoint from being taken."""

    class Kept(rp.MemorySink):
        checkpoints = ()

        async def flush(self, checkpoint=None):
            self.checkpoints += (checkpoint.state["shards"]["orders/a"].get("position"),)

    async def full(letters, batch):
        raise rp.SinkError("the disk is full")

    sink = Kept()
    monkeypatch.setattr(JsonlSink, "write", full)
    with pytest.raises(rp.SinkError, match="the disk is full"):
        await run(
            "DEAD_LETTER", sink, **{"flink.deadletter.sink": "jsonl", "flink.deadletter.jsonl.path": str(tmp_path)}
        )
    assert sink.checkpoints == (None,), "only the one at the start"


async def test_rows_that_the_table_rejects_become_dead_letters(tmp_path):
    with closing(sqlite3.connect(tmp_path / "job.db")) as database:
        database.execute("create table orders (at int not null check (at <> 7))")
    sql = {"flink.sink.sql.uri": f"sqlite:///{tmp_path}/job.db", "flink.sink.sql.table": "orders", "flink.sink": "sql"}
    letters = {"flink.deadletter.sink": "jsonl", "flink.deadletter.jsonl.path": str(tmp_path / "letters")}
    properties = {**GIVEN, "flink.deserializer.error": "DEAD_LETTER", **sql, **letters}
    async with rp.DataFetcher(["orders"], properties) as fetcher:
        await fetcher.run()
        metrics = fetcher.metrics()["shards"]["orders/a"]

    with closing(sqlite3.connect(tmp_path / "job.db")) as database:
        assert database.execute("select at from orders").fetchall() == [(5,), (9,)]
    assert sorted(letter["sequenceNumber"] for letter in letters_in(tmp_path / "letters")) == ["1", "2", "3", "4", "6"]
    assert metrics["deadLetters"] == 5


async def test_rows_that_are_rejected_together_are_stored_together_and_the_first_is_logged(
    monkeypatch, tmp_path, caplog
):
    install(monkeypatch, {"a": [b'{"at": %d}' % at for at in range(1, 41)]}, closed=True)
    with closing(sqlite3.connect(tmp_path / "job.db")) as database:
        database.execute("create table orders (at int not null check (at > 100))")
    sql = {"flink.sink.sql.uri": f"sqlite:///{tmp_path}/job.db", "flink.sink.sql.table": "orders", "flink.sink": "sql"}
    letters = {"flink.deadletter.sink": "jsonl", "flink.deadletter.jsonl.path": str(tmp_path / "letters")}
    async with rp.DataFetcher(
        ["orders"], {**GIVEN, "flink.deserializer.error": "DEAD_LETTER", **sql, **letters}
    ) as job:
        await job.run()

    assert len(letters_in(tmp_path / "letters")) == 40
    assert len(list((tmp_path / "letters").rglob("*.jsonl"))) == 1
    (line,) = [line for line in caplog.messages if "dead letter for" in line]
    assert line.startswith("job job: dead letter for record 0 of orders/a: IntegrityError")


async def test_records_that_a_handler_cannot_handle_are_stored_together_and_logged_once_with_its_traceback(
    monkeypatch, tmp_path, caplog
):
    install(monkeypatch, {"a": [b"%d" % number for number in range(40)]}, closed=True)

    async def handle(record):
        raise KeyError("customer")

    sink = rp.MapSink(handle, retries=0, on_failure="DEAD_LETTER")
    letters = {"flink.deadletter.sink": "jsonl", "flink.deadletter.jsonl.path": str(tmp_path)}
    properties = {**PROPERTIES, "flink.deserializer.error": "DEAD_LETTER", **letters}
    async with rp.DataFetcher(["orders"], properties, sink=sink) as job:
        await job.run()

    assert len(letters_in(tmp_path)) == 40
    assert len(list(tmp_path.rglob("*.jsonl"))) < 20
    (line,) = [line for line in caplog.records if "record 0 of orders/a" in line.getMessage()]
    assert line.getMessage() == "rejected record 0 of orders/a: 1 attempt: KeyError: 'customer'"
    assert line.exc_info[0] is KeyError


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "property 'flink.deadletter.jsonl.path' is required. Valid"),
        (
            {"path": "x"},
            "property 'flink.deadletter.path' is not accepted: there is no such property; did you mean 'flink.deadletter",
        ),
        ({"jsonl.pth": "x"}, "there is no such property; did you mean 'flink.deadletter.jsonl.path'"),
        ({"jsonl.path": "ftp://x"}, "'flink.deadletter.jsonl.path' is 'ftp://x'"),
    ],
)
def test_a_setting_that_is_missing_or_wrong_has_its_own_name(given, message):
    letters = {f"flink.deadletter.{key}": value for key, value in {"sink": "jsonl", **given}.items()}
    with pytest.raises(rp.ConfigurationError, match=message):
        rp.DataFetcher(
            ["orders"], {**GIVEN, "flink.deserializer.error": "DEAD_LETTER", **letters}, sink=rp.MemorySink()
        )


@pytest.mark.parametrize("policy", ["FAIL", "SKIP"])
async def test_a_handler_with_dead_letters_is_refused_by_a_job_that_writes_none(monkeypatch, policy):
    install(monkeypatch, {"a": [b"1"]}, closed=True)
    handled = []
    sink = rp.MapSink(handled.append, on_failure="DEAD_LETTER")
    with pytest.raises(rp.ConfigurationError, match="'on_failure' is 'DEAD_LETTER': the job writes none"):
        async with rp.DataFetcher(["orders"], {**PROPERTIES, "flink.deserializer.error": policy}, sink=sink):
            pass
    assert handled == []


@pytest.mark.parametrize(("policy", "count"), [("SKIP", 5), ("FAIL", None)])
async def test_the_policy_also_applies_to_records_that_the_sink_rejects(tmp_path, monkeypatch, policy, count):
    install(monkeypatch, {"a": list(STREAM) if policy == "SKIP" else list(GOOD)}, closed=True)
    with closing(sqlite3.connect(tmp_path / "job.db")) as database:
        database.execute("create table orders (at int not null check (at <> 7))")
    sql = {"flink.sink.sql.uri": f"sqlite:///{tmp_path}/job.db", "flink.sink.sql.table": "orders", "flink.sink": "sql"}
    fetcher = rp.DataFetcher(["orders"], {**GIVEN, "flink.deserializer.error": policy, **sql})
    async with fetcher:
        if count is None:
            with pytest.raises(rp.SinkError, match="record 1 of orders/a cannot be written"):
                await fetcher.run()
        else:
            await fetcher.run()
            assert fetcher.metrics()["shards"]["orders/a"]["skippedRecords"] == count

    with closing(sqlite3.connect(tmp_path / "job.db")) as database:
        assert database.execute("select at from orders").fetchall() == ([] if count is None else [(5,), (9,)])


def test_dead_letters_need_a_sink():  # C2
    with pytest.raises(
        rp.ConfigurationError, match=r"flink\.deadletter\.sink.*flink\.deserializer\.error=DEAD_LETTER needs it"
    ):
        rp.DataFetcher(["orders"], {**GIVEN, "flink.deserializer.error": "DEAD_LETTER"}, sink=rp.MemorySink())


@pytest.mark.parametrize("time", ["1e300", "253402300800000", "9300000000000000", "-9223372036854775808"])
async def test_w12_an_event_time_outside_the_years_1_to_9999_is_skipped(monkeypatch, time):
    install(monkeypatch, {"a": [GOOD[0], b'{"at": %s}' % time.encode(), GOOD[1]]}, closed=True)
    sink, state, metrics = await run("SKIP")
    assert [record.value["at"] for record in sink.records] == [5, 7]
    assert (metrics["skippedRecords"], state["watermark"]) == (1, 7)


async def test_w12_the_same_years_are_valid_for_a_watermark_function():
    sink = rp.MemorySink()
    given = {**PROPERTIES, "flink.deserializer.error": "SKIP"}
    fetcher = rp.DataFetcher(
        ["orders"], given, sink=sink, watermark_assigner=lambda record: 10**300 * (record.data == b"{")
    )
    async with fetcher:
        await fetcher.run()
        assert fetcher.metrics()["shards"]["orders/a"]["skippedRecords"] == 1
    assert len(sink.records) == len(STREAM) - 1


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "sql"])
async def test_a_reason_with_a_character_that_no_file_can_hold_neither_ends_the_job_nor_hides_the_letter(
    kind, tmp_path, monkeypatch
):
    """Python's `json` makes half of a surrogate pair of the payload's escape, and the handler names it."""
    # Reports of parallel tests cannot hold such a character either, and the log has the traceback of the handler's error.
    monkeypatch.setattr(logging.getLogger("recordpublisher"), "propagate", False)
    install(monkeypatch, {"a": [b'{"name": "a\\udc80"}', b'{"name": "b"}']}, closed=True)

    def handle(record):
        raise ValueError(f"unknown customer {json.loads(record.data)['name']}")

    place = {f"flink.deadletter.{kind}.path": str(tmp_path)}
    if kind == "sql":
        place = {
            "flink.deadletter.sql.uri": f"sqlite:///{tmp_path}/letters.db",
            "flink.deadletter.sql.table": "letters",
        }
    given = {**PROPERTIES, "flink.job.name": "job", "flink.deadletter.sink": kind, **place}
    sink = rp.MapSink(handle, on_failure="DEAD_LETTER", retries=0)
    async with rp.DataFetcher(["orders"], {**given, "flink.deserializer.error": "DEAD_LETTER"}, sink=sink) as fetcher:
        await fetcher.run()

    letters = stored_letters_of(rp.Properties(given))
    reasons = [letter.reason async for chunk in letters.chunks(is_replay=False) for letter in chunk]
    await letters.close()
    assert [reason.rpartition(" ")[2] for reason in reasons] == ["a\\udc80", "b"]


async def test_nor_does_a_reason_that_a_sink_gives(tmp_path):
    class Refusing(rp.Sink):
        async def open(self, context):
            self.reject = context.reject

        async def write(self, batch):
            for index in range(len(batch)):
                await self.reject(batch.slice(index, index + 1), "no \udc80")

    given = {"flink.deadletter.sink": "jsonl", "flink.deadletter.jsonl.path": str(tmp_path)}
    await run("DEAD_LETTER", Refusing(), **given)
    assert "no \\udc80" in [letter["value"]["error"] for letter in letters_in(tmp_path)]
