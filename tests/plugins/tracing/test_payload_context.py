"""The trace context in payloads: which are read, and which KinesisSink changes."""

import json
import sys
from types import ModuleType

import pytest
from opentelemetry import trace

import recordpublisher as rp
from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.tracing.trace_context import ContextField, carrier_reader, payload_with_context

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
FIELD = ContextField("trace-parent")


def record(data):
    return rp.Record("orders", "a", "1", -1, None, None, data, data, 0, 0)


@pytest.mark.parametrize(
    ("payload", "carrier"),
    [
        ({"trace-parent": PARENT}, {"traceparent": PARENT}),
        (
            {"trace-parent": {"traceparent": PARENT, "tracestate": "a=b", "n": 1}},
            {"traceparent": PARENT, "tracestate": "a=b"},
        ),
        ({"trace-parent": 5}, None),
        ({"in": {"trace-parent": PARENT}}, None),
        ([PARENT], None),
    ],
)
def test_a_field_holds_a_text_or_an_object_of_texts(payload, carrier):
    assert FIELD.read(record(json.dumps(payload).encode())) == carrier


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"{", b'{"a": 1', b"5", b'{"trace-parent": "\xff"}', b'{"a":' + b"[" * 100_000]
)
def test_what_is_no_json_object_has_no_context_and_is_not_changed(data):
    assert FIELD.read(record(data)) is None
    assert FIELD.add(data, PARENT) == data


@pytest.mark.parametrize("data", [b"{}", b" { } ", b'{"a": 1}', b'\n{\t"a": {"trace-parent": 1}, "b": [{}]}'])
def test_an_object_gets_the_field_and_keeps_what_it_has(data):
    added = FIELD.add(data, PARENT)

    assert json.loads(added) == {"trace-parent": PARENT, **json.loads(data)}
    assert FIELD.read(record(added)) == {"traceparent": PARENT}
    assert FIELD.add(added, "another") == added


def test_a_payload_is_put_as_it_is_outside_of_a_trace(spans):
    add = payload_with_context(rp.Properties({"flink.tracing.context.field": "traceparent"}))

    assert add(b"{}") == b"{}"
    with trace.get_tracer("shop").start_as_current_span("put") as span:
        put = json.loads(add(b"{}"))["traceparent"]
    ids = trace.format_trace_id(span.context.trace_id), trace.format_span_id(span.context.span_id)
    assert put.split("-")[1:3] == list(ids)


def test_a_producer_puts_the_context_of_the_calling_thread(spans, monkeypatch):
    provider = trace.get_tracer_provider()
    with serve_in_thread(streams={"orders": 1}) as served:
        given = {**served.properties(), "flink.tracing.context.field": "traceparent"}
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
        producer = rp.Producer("orders", given)
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)  # as a server sets it after it has forked
        with producer, trace.get_tracer("shop").start_as_current_span("put") as span:
            producer.put(b"{}", "k")
        (record,) = rp.consume("orders", given, start="TRIM_HORIZON", stop_at_tip=True)
    assert json.loads(record.data)["traceparent"].split("-")[1] == trace.format_trace_id(span.context.trace_id)


@pytest.mark.parametrize("room", [0, 100])
async def test_a_record_that_the_context_would_make_too_large_is_put_without_it(spans, room):
    data = b'{"order":"' + b"x" * (1024 * 1024 - 13 - room) + b'"}'
    with serve_in_thread(streams={"orders": 1}) as served:
        given = {**served.properties(), "flink.tracing.context.field": "traceparent"}
        async with rp.KinesisSink("orders", given) as sink:
            with trace.get_tracer("shop").start_as_current_span("put"):
                await sink.put(data, "k", wait=True)
        (record,) = [each async for each in rp.consume("orders", given, start="TRIM_HORIZON", stop_at_tip=True)]
    assert (record.data == data, b"traceparent" in record.data) == ((True, False) if room == 0 else (False, True))


def test_payloads_are_not_touched_without_a_provider_or_without_a_field(spans, monkeypatch):
    assert payload_with_context(rp.Properties()) is None
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    assert payload_with_context(rp.Properties({"flink.tracing.context.field": "traceparent"})) is None


def test_a_name_that_json_would_escape_is_refused():
    with pytest.raises(rp.ConfigurationError, match=r"flink\.tracing\.context\.field"):
        ContextField('trace"parent')


def test_a_class_is_no_function_of_a_record():
    with pytest.raises(rp.ConfigurationError, match="give JSONDecoder"):
        carrier_reader(rp.Properties({"flink.tracing.context.function": "json:JSONDecoder"}))


@pytest.mark.parametrize("result", ["00-trace", 5, {"traceparent": 5}, {1: "x"}, [("traceparent", "x")]])
def test_what_a_function_returns_that_is_no_mapping_of_texts_ends_no_job_and_is_told(result, monkeypatch, caplog):
    module = ModuleType("contexts")
    module.of = lambda record: result
    monkeypatch.setitem(sys.modules, "contexts", module)

    assert carrier_reader(rp.Properties({"flink.tracing.context.function": "contexts:of"}))(record(b"x")) is None
    assert "no trace context of record 1 of orders/a: the function returned" in caplog.text


def test_a_payload_that_has_the_field_as_null_stays_as_it_is():
    payload = b'{"traceparent":null,"order":1}'
    assert ContextField("traceparent").add(payload, "00-1-2-01") == payload
