"""`rp.read_arrow` and `rp.read_polars`: a bounded part of streams, read while it is taken."""

from __future__ import annotations

import importlib
import json
import sys
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NotRequired, TypedDict

import duckdb
import msgspec
import polars as pl
import pyarrow as pa
import pytest
from protobuf_order import Order as Message

import recordpublisher as rp
from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.columns.record_columns import RECORD_SCHEMA
from recordpublisher.plugins.runtime import data_frames

from fakes.memory_streams import ARRIVAL, PROPERTIES, install

TOMORROW = (datetime.now(UTC) + timedelta(days=1)).isoformat()


class Order(msgspec.Struct):
    order: int
    item: str = "tea"


@pytest.fixture
def orders(monkeypatch):
    install(monkeypatch, {"a": [b'{"order": %d}' % number for number in range(10)]})


@pytest.fixture(autouse=True)
def _no_threads_are_left():
    before = set(threading.enumerate())
    yield
    after = {thread for thread in threading.enumerate() if thread.name.startswith(("rp.", "asyncio"))}
    assert after <= before


def small_batches(monkeypatch, rows=3):
    monkeypatch.setattr(data_frames, "ROWS_PER_BATCH", rows)


def test_a_payload_without_a_type_is_data_with_the_columns_of_spark(orders):
    reader = rp.read_arrow("orders", PROPERTIES)

    assert isinstance(reader, pa.RecordBatchReader)
    assert reader.schema == RECORD_SCHEMA
    assert reader.read_all()["data"].to_pylist() == [b'{"order": %d}' % number for number in range(10)]


def test_fields_of_a_type_are_columns(orders):
    shown = rp.read_arrow("orders", PROPERTIES, deserializer=Order).read_all()

    assert shown.schema.names[:3] == ["order", "item", "stream"]
    assert shown["order"].to_pylist() == [*range(10)]


def test_fields_of_protobuf_messages_are_columns(monkeypatch):
    install(monkeypatch, {"a": [Message(id=number, kind=1).SerializeToString() for number in (1, 2)]})
    frame = rp.read_polars("orders", PROPERTIES, deserializer=rp.Protobuf(Message))

    assert frame.select("id", "kind", "at").rows() == [(1, "OLD", None), (2, "OLD", None)]


@pytest.mark.parametrize("deserializer", ["json", lambda record: {"order": int(record.data[10:-1])}])
def test_what_a_function_or_json_makes_is_text_beside_the_payload(orders, deserializer):
    shown = rp.read_arrow("orders", PROPERTIES, deserializer=deserializer).read_all()

    assert shown.schema.names == [*RECORD_SCHEMA.names, "value"]
    assert [json.loads(text) for text in shown["value"].to_pylist()] == [{"order": number} for number in range(10)]
    assert shown["data"][0].as_py() == b'{"order": 0}'


def test_texts_are_a_column(orders):
    shown = rp.read_arrow("orders", PROPERTIES, deserializer="text").read_all()
    assert shown["value"].to_pylist()[:2] == ['{"order": 0}', '{"order": 1}']


def test_a_value_without_a_form_in_json_is_a_bad_record_of_the_policy(orders, caplog):
    def made(record):
        return object() if record.data == b'{"order": 1}' else 1

    with pytest.raises(rp.DeserializationError, match=r"record 1 of orders/a .*object"):
        rp.read_arrow("orders", PROPERTIES, deserializer=made).read_all()
    shown = rp.read_arrow("orders", PROPERTIES, deserializer=made, deserializer_error="SKIP").read_all()
    assert shown.num_rows == 9
    assert "skipped record 1 of orders/a" in caplog.text


class Written(TypedDict):
    zone: NotRequired[str]
    order: int
    area: NotRequired[str]


@dataclass
class Kept:
    zone: str = field(default="x", kw_only=True)
    order: int
    area: str = ""


@pytest.mark.parametrize("kind", [Written, Kept])
def test_columns_stand_as_the_fields_are_written(orders, kind):
    assert rp.read_arrow("orders", PROPERTIES, deserializer=kind).schema.names[:3] == ["zone", "order", "area"]


@pytest.mark.parametrize("settings", [{"start": TOMORROW}, {"properties": {"flink.stream.initpos": TOMORROW}}])
def test_a_start_in_the_future_is_refused_before_any_call(orders, settings):
    given = {"properties": {}, **settings}
    with pytest.raises(rp.ConfigurationError, match="a time that has passed: it is 20"):
        rp.read_arrow("orders", PROPERTIES | given.pop("properties"), **given)


@pytest.mark.parametrize("read", [rp.read_arrow, rp.read_polars])
@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (
            {"end": TOMORROW},
            "'end' is .*: it lies in the future: this machine's clock is at 20.*. Valid: NOW",
        ),
        (
            {"start": "2026-01-02T00:00:00Z", "end": "2026-01-01T00:00:00Z"},
            "the read would end before it starts. Valid: a time that is not before the start",
        ),
        (
            {"stream_initpos": "2026-01-02T00:00:00Z", "end": "2026-01-01T00:00:00Z"},
            "the read would end before it starts",
        ),
    ],
)
def test_an_end_in_the_future_or_before_the_start_is_refused_as_in_spark(orders, read, bounds, words):
    with pytest.raises(rp.ConfigurationError, match=words):
        read("orders", {"flink.stream.recordpublisher": "MEMORY"}, **bounds)


def test_records_behind_the_start_may_have_earlier_event_times(orders):
    def hour_before(record):
        return record.arrival_millis - 3_600_000

    start = datetime.fromtimestamp(ARRIVAL - 60, UTC)
    read = numbers(start=start, end=start - timedelta(minutes=1), timestamp_assigner=hour_before)
    assert read == [*range(10)]


@pytest.mark.parametrize("start", ["earliest", "1000d", timedelta(days=10_000), "1970-01-02T00:00:00Z"])
def test_a_start_is_named_as_in_every_other_read(orders, start):
    assert numbers(start=start) == [*range(10)]


@pytest.mark.parametrize("start", ["latest", "0s"])
def test_a_read_up_to_the_tip_does_not_start_there(orders, start):
    with pytest.raises(rp.ConfigurationError, match="the read ends at the tip"):
        numbers(start=start)


def test_the_type_of_the_property_counts_too(orders):
    properties = PROPERTIES | {"flink.deserializer": f"{__name__}:Order"}
    assert "order" in rp.read_arrow("orders", properties).schema.names


def test_a_value_that_its_column_does_not_take_is_a_bad_record_of_the_policy(monkeypatch, caplog):
    install(monkeypatch, {"a": [b'{"order": 1}', b'{"order": 9223372036854775808}', b'{"order": 3}']})
    with pytest.raises(rp.DeserializationError, match="order"):
        rp.read_arrow("orders", PROPERTIES, deserializer=Order).read_all()
    frame = rp.read_polars("orders", PROPERTIES, deserializer=Order, deserializer_error="SKIP")
    assert frame["order"].to_list() == [1, 3]
    assert (
        "skipped record 1 of orders/a: ValueError: field 'order' of Order does not fit the Arrow type int64"
        in caplog.text
    )


def test_a_field_without_a_column_is_refused_at_once(orders):
    with pytest.raises(rp.ConfigurationError, match=r"\$\.value\[\] is Any"):
        rp.read_arrow("orders", PROPERTIES, deserializer=list[Any])


def test_batches_come_while_the_stream_is_read(orders, monkeypatch):
    small_batches(monkeypatch)
    reader = rp.read_arrow("orders", PROPERTIES)

    assert [batch.num_rows for batch in reader] == [3, 3, 3, 1]


def test_batches_are_limited_in_bytes_too(orders, monkeypatch):
    monkeypatch.setattr(data_frames, "BYTES_PER_BATCH", 1)
    assert [batch.num_rows for batch in rp.read_arrow("orders", PROPERTIES)] == [3, 3, 3, 1]


def test_closing_the_reader_early_stops_the_read(orders, monkeypatch):
    small_batches(monkeypatch)
    with rp.read_arrow("orders", PROPERTIES) as reader:
        assert reader.read_next_batch().num_rows == 3
        assert any(thread.name == "rp.read_arrow" for thread in threading.enumerate())

    assert not any(thread.name == "rp.read_arrow" for thread in threading.enumerate())
    assert list(reader) == []


def test_a_reader_that_is_dropped_stops_the_read(orders, monkeypatch):
    small_batches(monkeypatch)
    reader = rp.read_arrow("orders", PROPERTIES)
    next(reader)
    del reader


def test_an_error_of_the_read_is_raised_as_it_is(monkeypatch):
    denied = rp.FatalKinesisError("GetRecords", "AccessDenied", "no")
    install(monkeypatch, {"a": [b"0", b"1", b"2", denied]})
    small_batches(monkeypatch)
    reader = rp.read_arrow("orders", PROPERTIES)

    assert reader.read_next_batch().num_rows == 3
    with pytest.raises(rp.FatalKinesisError, match="AccessDenied"):
        reader.read_next_batch()
    with pytest.raises(rp.FatalKinesisError, match="AccessDenied"):
        rp.read_polars("orders", PROPERTIES)


def test_a_bad_record_is_raised_with_its_number(orders):
    class Other(msgspec.Struct):
        price: int

    with pytest.raises(rp.DeserializationError, match=r"record 0 of orders/a .*price"):
        rp.read_arrow("orders", PROPERTIES, deserializer=Other).read_all()


def test_a_read_stores_no_positions(orders, tmp_path):
    properties = PROPERTIES | {"flink.state.uri": str(tmp_path / "state"), "flink.job.workers": "GROUP"}

    assert rp.read_arrow("orders", properties).read_all().num_rows == 10
    assert list(tmp_path.iterdir()) == []


def snapshot(position=None, ended=False):
    state = {"start": {"type": "TRIM_HORIZON"}, "ended": ended} | ({"position": position} if position else {})
    return {"version": 2, "generation": 1, "subtask": 0, "parallelism": 1, "shards": {"orders/a": state}}


def numbers(**bounds):
    return [
        int(number) for number in rp.read_arrow("orders", PROPERTIES, **bounds).read_all()["sequenceNumber"].to_pylist()
    ]


@pytest.mark.parametrize("settings", [{"state_uri": "folder"}, {"job_workers": "GROUP"}], ids=["store", "group"])
def test_a_call_that_asks_for_positions_of_a_job_is_refused(orders, settings):
    with pytest.raises(rp.ConfigurationError, match="no positions are stored"):
        rp.read_arrow("orders", PROPERTIES, **settings)
    rp.read_arrow("orders", PROPERTIES, **dict.fromkeys(settings)).close()


def test_a_read_goes_from_the_position_of_one_snapshot_to_that_of_another(orders):
    assert numbers(start=snapshot("2"), end=snapshot("6")) == [3, 4, 5, 6]
    assert numbers(end=snapshot("2")) == [0, 1, 2]
    assert numbers(end=snapshot()) == []
    assert numbers(end=snapshot("2", ended=True)) == [*range(10)]


def test_a_read_ends_before_a_time(orders):
    arrival = datetime.fromtimestamp(ARRIVAL, UTC)

    assert numbers(end=arrival) == []
    assert len(numbers(end=arrival + timedelta(milliseconds=1))) == 10
    assert len(numbers(end=(arrival + timedelta(days=1)).isoformat())) == 10
    assert len(numbers(end="now")) == 10


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (
            {"start": "LATEST"},
            "setting 'start' is 'LATEST': the read ends at the tip, so a start there reads nothing. Valid: TRIM_HORIZON",
        ),
        (
            {"start": "yesterday"},
            "setting 'start' is 'yesterday'. Valid: TRIM_HORIZON (or earliest), an age",
        ),
        ({"start": datetime(2026, 1, 1)}, "setting 'start' is datetime.datetime(2026"),
        ({"start": -7}, "setting 'start' is -7. Valid: TRIM_HORIZON (or earliest), an age"),
        ({"end": -7}, "setting 'end' is -7. Valid: NOW, a time"),
    ],
)
def test_a_bound_that_is_none_is_refused_at_once(orders, bounds, words):
    with pytest.raises(rp.ConfigurationError) as raised:
        rp.read_arrow("orders", PROPERTIES, **bounds)
    assert str(raised.value).startswith(words)


def test_a_start_by_time_reads_what_came_since():
    with serve_in_thread(streams={"orders": 1}) as served:
        served.stream("orders").put({"order": 1})
        hour_ago = datetime.now(UTC) - timedelta(hours=1)

        assert rp.read_arrow("orders", served.properties(), start=hour_ago).read_all().num_rows == 1
        assert rp.read_arrow("orders", served.properties(), start=hour_ago.isoformat()).read_all().num_rows == 1


def test_polars_has_the_same_columns(orders):
    frame = rp.read_polars("orders", PROPERTIES, deserializer=Order)

    assert isinstance(frame, pl.DataFrame)
    assert frame["order"].sum() == 45
    assert frame["eventTime"].dtype == pl.Datetime("us", "UTC")


def test_pandas_takes_the_reader(orders):
    assert rp.read_arrow("orders", PROPERTIES, deserializer=Order).read_pandas()["order"].sum() == 45


def test_duckdb_reads_the_reader_by_the_name_of_its_variable(orders):
    stream = rp.read_arrow("orders", PROPERTIES, deserializer=Order)

    assert duckdb.sql('SELECT item, sum("order") FROM stream GROUP BY item').fetchall() == [("tea", 45)]
    stream.close()


def test_duckdb_tells_an_error_of_the_read(monkeypatch):
    install(monkeypatch, {"a": [rp.FatalKinesisError("GetRecords", "AccessDenied", "no")]})
    stream = rp.read_arrow("orders", PROPERTIES)

    with pytest.raises(Exception, match="AccessDenied"):
        duckdb.sql("SELECT count(*) FROM stream").fetchall()
    stream.close()


def test_columns_are_chosen_by_name_in_their_order(orders):
    assert rp.read_arrow("orders", PROPERTIES, deserializer=Order, columns=["item", "order"]).schema.names == [
        "item",
        "order",
    ]


@pytest.mark.parametrize("columns", [["prize"], "item"])
def test_an_unknown_column_is_refused_at_once(orders, columns):
    with pytest.raises(rp.ConfigurationError, match=r"setting 'columns' is .*Valid: a list of order, item"):
        rp.read_arrow("orders", PROPERTIES, deserializer=Order, columns=columns)


@pytest.mark.parametrize(("records", "is_told"), [(99, False), (100, True)])
def test_a_field_that_no_record_has_is_told_at_the_end(records, is_told, monkeypatch, caplog):
    install(monkeypatch, {"a": [b'{"order": %d}' % number for number in range(records)]})
    read = rp.read_arrow("orders", PROPERTIES, deserializer_schema="order BIGINT, ordr BIGINT").read_all()

    assert read["ordr"].null_count == records
    assert ("fields that were null in all of the first" in caplog.text) == is_told


def test_a_field_that_is_asked_for_without_a_type_or_schema_names_both():
    with pytest.raises(
        rp.ConfigurationError, match="deserializer= or deserializer_schema= makes columns of the fields"
    ):
        rp.read_arrow("orders", PROPERTIES, columns=["order"])


def test_several_streams_in_one_text_are_refused_with_the_list_that_was_meant():
    with pytest.raises(rp.ConfigurationError, match=r"Valid: a list, such as \['events', 'orders'\]"):
        rp.read_arrow("events,orders", PROPERTIES)


@pytest.mark.parametrize(("deserializer", "names"), [(Order, ["order", "item"]), (None, ["data"])])
def test_a_frame_without_metadata(orders, deserializer, names):
    read = rp.read_arrow("orders", PROPERTIES, deserializer=deserializer, metadata=False).read_all()
    assert (read.column_names, len(read)) == (names, 10)


def test_a_frame_of_json_has_the_fields_of_its_objects(monkeypatch):
    install(monkeypatch, {"a": [b'{"order": 1}', b'{"order": 2, "item": {"name": "tea"}}']})

    read = rp.read_pandas("orders", PROPERTIES, deserializer="json", metadata=False)

    assert read.to_dict("list") == {"order": [1, 2], "item": [None, {"name": "tea"}]}


@pytest.mark.parametrize(
    "payloads", [[b"1"], [b"null"], [b'{"order": 1}', b"null"], [b'{"order": 1}', b'{"order": "two"}'], []]
)
def test_a_frame_of_other_json_has_texts(monkeypatch, payloads):
    install(monkeypatch, {"a": payloads})

    read = rp.read_polars("orders", PROPERTIES, deserializer="json", columns=["value"])

    assert [json.loads(value) for value in read["value"]] == [json.loads(payload) for payload in payloads]


@pytest.mark.parametrize(
    "event_times", [TOMORROW, datetime.now(UTC), (0,), (3, 2)], ids=["a duration", "a time", "one", "turned round"]
)
def test_event_times_that_are_no_pair_in_their_order_are_refused_at_once(orders, event_times):
    with pytest.raises(rp.ConfigurationError, match="setting 'event_times' is"):
        rp.read_arrow("orders", PROPERTIES, event_times=event_times)


@pytest.mark.parametrize(("levels", "columns"), [(63, ["order"]), (900, ["data", "value"])])
def test_json_that_is_nested_deep_is_text(monkeypatch, levels, columns):
    install(monkeypatch, {"a": [b'{"order": %b%b}' % (b"[" * levels, b"]" * levels)]})

    assert rp.read_polars("orders", PROPERTIES, deserializer="json", metadata=False).columns == columns


def test_a_frame_of_json_without_records_has_the_chosen_columns(monkeypatch):
    install(monkeypatch, {"a": []})

    read = rp.read_polars("orders", PROPERTIES, deserializer="json", columns=["order", "sequenceNumber"])

    assert (read.columns, read.height) == (["order", "sequenceNumber"], 0)


@pytest.mark.parametrize(
    ("event_times", "orders_within"),
    [((3, 6), [3, 4, 5]), ((None, 2), [0, 1]), ((8, None), [8, 9]), ((None, None), [*range(10)])],
)
def test_a_frame_has_the_records_of_some_event_times(orders, event_times, orders_within):
    def time(record):
        return record.value.order * 1000

    read = rp.read_arrow(
        "orders", PROPERTIES, deserializer=Order, timestamp_assigner=time, event_times=event_times, columns=["order"]
    )
    assert read.read_all()["order"].to_pylist() == orders_within


@pytest.mark.parametrize("event_times", [(None, 4), (0, None), (None, None)])
def test_an_open_side_of_the_event_times_leaves_out_no_record_of_any_year(orders, event_times):
    """The first orders are before 1970, the last one is in the last millisecond that a record may have."""

    def time(record):
        return [-62_135_596_800_000, -2_000, 0, 253_402_300_799_999][min(record.value.order, 3)]

    read = rp.read_arrow(
        "orders", PROPERTIES, deserializer=Order, timestamp_assigner=time, event_times=event_times, columns=["order"]
    )
    left_out = {(None, 4): range(3, 10), (0, None): range(2), (None, None): ()}[event_times]
    assert read.read_all()["order"].to_pylist() == [order for order in range(10) if order not in left_out]


def test_columns_may_be_named_by_a_generator(orders):
    read = rp.read_arrow("orders", PROPERTIES, columns=(name for name in ["shardId", "sequenceNumber"]))

    assert read.schema.names == ["shardId", "sequenceNumber"]


def test_without_the_extra_each_function_is_named_with_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, data_frames.__name__)
    with pytest.raises(ImportError) as raised:
        importlib.import_module(data_frames.__name__)
    for_arrow, for_pandas, for_polars = str(raised.value).split("; ")
    assert for_arrow.startswith("rp.read_arrow needs the extra 'arrow': pip install ")
    assert "[arrow]" in for_arrow
    assert for_pandas == "rp.read_pandas needs pandas too: pip install pandas"
    assert "[polars]" in for_polars
