"""The endpoint over HTTP/2: asked by this library's own HTTP/2 client, and by boto3 over HTTP/1.1 on the same port."""

import asyncio
import sys

import pytest

import recordpublisher as rp
from recordpublisher.local import LocalKinesis
from recordpublisher.publishers.errors import ConfigurationError


@pytest.mark.parametrize("publisher", ["EFO", "POLLING"])
def test_a_job_reads_over_http2(serve, publisher):
    endpoint, kinesis = serve(streams={"orders": 1}, http2=True)
    for number in range(3):
        kinesis.put_record(StreamName="orders", Data=b"%d" % number, PartitionKey="k")
    efo = {"flink.stream.efo.consumername": "app", "aws.http.protocol.version": "HTTP2"}
    start = {"flink.stream.initpos": "TRIM_HORIZON", "flink.stream.recordpublisher": publisher}
    properties = {**endpoint.endpoint.properties(), **efo, **start}
    assert [record.value for record in rp.consume(["orders"], properties, stop_at_tip=True)] == [b"0", b"1", b"2"]


def test_clients_without_http2_use_the_same_port(serve):
    _, kinesis = serve(streams={"orders": 1}, http2=True)
    assert kinesis.list_streams()["StreamNames"] == ["orders"]
    assert kinesis.put_record(StreamName="orders", Data=b"x", PartitionKey="k")["ShardId"]


def test_a_taken_port_is_an_error(serve):
    endpoint, _ = serve(http2=True)

    async def main():
        with pytest.raises(ConfigurationError, match="a free port"):
            await LocalKinesis(port=endpoint.port, http2=True).start()

    asyncio.run(main())


def test_without_the_extra_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "hypercorn", None)
    with pytest.raises(ConfigurationError, match=r"recordpublisher\[local\]"):
        LocalKinesis(http2=True)
