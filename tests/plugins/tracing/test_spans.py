"""Spans around handlers and writes: what they say, and which trace they belong to."""

import base64
import json
import logging
import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

import recordpublisher as rp
from recordpublisher.cli.output import JsonLines, TextLines
from recordpublisher.fetcher.sink import untraced
from recordpublisher.plugins.tracing.trace_context import traced_calls
from recordpublisher.publishers.clock import SystemClock

from fakes.memory_streams import PROPERTIES, install

TRACES = ["4bf92f3577b34da6a3ce929d0e0e4736", "0af7651916cd43dd8448eb211c80319c"]
PARENT = "00f067aa0ba902b7"
WITH_CONTEXT = [json.dumps({"traceparent": f"00-{each}-{PARENT}-01"}).encode() for each in TRACES]
FIELD = {"flink.tracing.context.field": "traceparent"}


def trace_id(span):
    return trace.format_trace_id(span.context.trace_id)


def linked(span):
    return [(trace.format_trace_id(link.context.trace_id), dict(link.attributes)) for link in span.links]


@pytest.fixture
def job(monkeypatch):
    """Runs a job over these payloads."""

    async def run(payloads, sink, **properties):
        install(monkeypatch, {"a": list(payloads)}, closed=True)
        async with rp.DataFetcher(["orders"], {**PROPERTIES, **properties}, sink=sink) as fetcher:
            await fetcher.run()

    return run


async def test_a_call_of_the_handler_has_a_span_that_names_the_record(spans, job):
    async def handle(record):
        pass

    await job([b"1"], rp.MapSink(handle), **{"flink.job.name": "shop"})

    (span,) = spans.get_finished_spans()
    assert (span.name, span.kind, span.status.status_code) == ("process orders", SpanKind.CONSUMER, StatusCode.UNSET)
    lag = span.attributes["messaging.aws_kinesis.lag_ms"]
    assert isinstance(lag, int)
    assert dict(span.attributes) == {
        "messaging.system": "aws_kinesis",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": "shop",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "a",
        "messaging.message.id": "0",
        "messaging.aws_kinesis.lag_ms": lag,
    }
    assert span.instrumentation_scope.schema_url == "https://opentelemetry.io/schemas/1.44.0"


async def test_the_span_of_one_record_is_a_child_of_the_context_in_its_payload(spans, job):
    async def handle(record):
        pass

    await job(WITH_CONTEXT, rp.MapSink(handle), **FIELD)

    found = sorted(spans.get_finished_spans(), key=lambda span: span.attributes["messaging.message.id"])
    assert [trace_id(span) for span in found] == TRACES
    assert {trace.format_span_id(span.parent.span_id) for span in found} == {PARENT}


async def test_a_write_has_one_span_with_a_link_for_each_record(spans, job):
    await job([*WITH_CONTEXT, b"no json"], rp.MemorySink(), **FIELD)

    (span,) = spans.get_finished_spans()
    assert span.attributes["messaging.batch.message_count"] == 3
    assert span.attributes["messaging.aws_kinesis.first_sequence_number"] == "0"
    assert span.attributes["messaging.aws_kinesis.last_sequence_number"] == "2"
    assert linked(span) == [
        (TRACES[0], {"messaging.message.id": "0"}),
        (TRACES[1], {"messaging.message.id": "1"}),
    ]
    assert span.parent is None


async def test_a_span_for_each_record_of_a_write_stands_in_the_trace_of_its_record(spans, job):
    await job(WITH_CONTEXT, rp.MemorySink(), **FIELD, **{"flink.tracing.spans": "RECORD"})

    *records, batch = spans.get_finished_spans()
    assert [trace_id(span) for span in records] == TRACES
    assert [linked(span) for span in records] == [[(trace_id(batch), {})]] * 2


async def test_a_list_of_records_for_the_handler_has_one_span(spans, job):
    async def handle(records):
        pass

    await job(WITH_CONTEXT, rp.MapSink(handle, batch_size=2), **FIELD)

    (span,) = spans.get_finished_spans()
    assert [each for each, _ in linked(span)] == TRACES


async def test_the_context_may_come_from_a_function_whose_errors_end_nothing(spans, job, tmp_path, monkeypatch):
    (tmp_path / "contexts_of_shop.py").write_text(
        f"def carrier(record):\n    return {{'traceparent': '00-{TRACES[0]}-{PARENT}-01'}} if record.data == b'1' else 1 / 0"
    )
    monkeypatch.syspath_prepend(tmp_path)

    async def handle(record):
        pass

    await job([b"1", b"2"], rp.MapSink(handle), **{"flink.tracing.context.function": "contexts_of_shop:carrier"})

    first, second = sorted(spans.get_finished_spans(), key=lambda span: span.attributes["messaging.message.id"])
    assert trace_id(first) == TRACES[0]
    assert second.parent is None


async def test_spans_of_a_plain_function_are_children_of_its_call(spans, job):
    def handle(record):
        with trace.get_tracer("shop").start_as_current_span("inner"):
            pass

    await job(WITH_CONTEXT[:1], rp.MapSink(handle), **FIELD)

    inner, call = spans.get_finished_spans()
    assert inner.parent.span_id == call.context.span_id


async def test_a_failure_is_in_the_span_and_its_log_line_has_the_ids_of_the_span(spans, job, caplog):
    async def handle(record):
        raise KeyError("price")

    await job(WITH_CONTEXT[:1], rp.MapSink(handle, retries=0, on_failure="SKIP"), **FIELD)

    (span,) = spans.get_finished_spans()
    assert (span.status.status_code, span.attributes["error.type"]) == (StatusCode.ERROR, "KeyError")
    assert [event.name for event in span.events] == ["exception"]
    (line,) = [record for record in caplog.records if "KeyError" in record.getMessage()]
    ids = {"trace_id": TRACES[0], "span_id": trace.format_span_id(span.context.span_id)}
    assert json.loads(JsonLines().format(line)).items() >= ids.items()


async def test_log_lines_of_a_handler_have_the_ids_of_its_span(spans, job):
    shown = []

    async def handle(record):
        line = logging.LogRecord("shop", logging.INFO, "file", 1, "sold", (), None)
        shown.extend([json.loads(JsonLines().format(line)), TextLines().format(line)])

    await job(WITH_CONTEXT[:1], rp.MapSink(handle), **FIELD)

    (span,) = spans.get_finished_spans()
    span_id = trace.format_span_id(span.context.span_id)
    assert (shown[0]["trace_id"], shown[0]["span_id"]) == (TRACES[0], span_id)
    assert shown[1].endswith(f"shop: sold trace_id={TRACES[0]} span_id={span_id}")


def test_a_call_of_the_handler_in_lambda_has_a_span_too(spans):
    kinesis = {"data": base64.b64encode(WITH_CONTEXT[0]).decode(), "sequenceNumber": "7", "partitionKey": "k"}
    record = {
        "eventSource": "aws:kinesis",
        "eventID": "shardId-0:7",
        "eventSourceARN": "arn:aws:kinesis:eu-west-1:123456789012:stream/orders",
        "kinesis": {**kinesis, "approximateArrivalTimestamp": 1.0},
    }
    function = rp.lambda_handler(lambda record: None, FIELD)

    assert function({"Records": [record]}) == {"batchItemFailures": []}
    (span,) = spans.get_finished_spans()
    assert (trace_id(span), span.attributes["messaging.message.id"]) == (TRACES[0], "7")


def test_without_a_provider_calls_are_not_wrapped():
    assert traced_calls(rp.Properties(FIELD), SystemClock()) is untraced


def test_a_job_imports_nothing_of_opentelemetry():
    program = (
        "import sys, recordpublisher as rp; rp.DataFetcher('orders', region='eu-west-1', sink=rp.MapSink(print)); "
        "sys.exit('opentelemetry' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
