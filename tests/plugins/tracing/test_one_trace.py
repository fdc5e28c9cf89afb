"""One trace from `put` to the row in the database: producer, stream, job."""

import json
import sqlite3
from contextlib import closing

import psycopg
import pytest
from opentelemetry import trace

import recordpublisher as rp
from recordpublisher.local import serve_in_thread

from servers.postgresql import serve_postgresql

FIELD = {"flink.tracing.context.field": "traceparent"}


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database(request, tmp_path):
    """The URI, and a function that reads the values of all rows."""
    if request.param == "sqlite":
        path = tmp_path / "shop.db"

        def values():
            with closing(sqlite3.connect(path)) as connection:
                return [row[0] for row in connection.execute("select data from records")]

        yield f"sqlite:///{path}", values
        return
    with serve_postgresql() as uri:

        def rows():
            with psycopg.connect(uri) as connection:
                return [row[0] for row in connection.execute("select data from records")]

        yield uri, rows


async def test_the_row_the_write_and_the_put_have_one_trace_id(spans, database):
    uri, rows = database
    with serve_in_thread(streams={"orders": 1}) as served:
        given = {**served.properties(), **FIELD}
        with trace.get_tracer("shop").start_as_current_span("put") as put:
            async with rp.KinesisSink("orders", given) as sink:
                await sink.put(b'{"price": 5}', "k")
        sql = {"flink.job.name": "load", "flink.sink.sql.uri": uri, "flink.stream.initpos": "TRIM_HORIZON"}
        async with rp.DataFetcher("orders", {**given, **sql}, sink="sql") as fetcher:
            await fetcher.run_bounded(stop_at_tip=True)

    expected = trace.format_trace_id(put.context.trace_id)
    (written,) = [span for span in spans.get_finished_spans() if span.name == "process orders"]
    (row,) = rows()
    assert written.context.trace_id == put.context.trace_id
    assert written.parent.span_id == put.context.span_id
    assert json.loads(row)["traceparent"].split("-")[1] == expected
