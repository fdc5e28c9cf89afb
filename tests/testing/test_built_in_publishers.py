"""The built-in publishers pass the contract (P1, P2), with the real SDK against the embedded endpoint."""

from contextlib import asynccontextmanager

import pytest

from recordpublisher import Properties, RecordPublisherFactory
from recordpublisher.local import LocalKinesis
from recordpublisher.local.stream import split
from recordpublisher.publishers.fanout import FanOutRecordPublisherFactory
from recordpublisher.publishers.fanout.registration import ConsumerRefCounts
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.polling import PollingRecordPublisherFactory
from recordpublisher.testing import PublisherCase, PublisherContract

from servers.fast_time import FastClock, run_fast
from servers.http2.front import front_of

PAYLOADS = [b"%d" % number * 300_000 for number in range(8)]
"""An event of a subscription holds at most 1 MiB here: three of these."""
PATIENT = {"aws.request.timeout": 3_600_000, "flink.shard.subscribetoshard.timeout": 3_600}  # time runs fast here


class AgainstTheEndpoint(PublisherContract):
    """One shard of a stream, split after the last record. The first of its children is open."""

    deadline = 2_500.0  # 50 real seconds

    def factory(self, properties: Properties) -> RecordPublisherFactory:
        raise NotImplementedError

    @asynccontextmanager
    async def open_case(self):
        async with LocalKinesis(streams={"orders": 1}, clock=FastClock()) as endpoint:
            stream = endpoint.stream("orders")
            for payload in PAYLOADS:
                stream.put(payload, "key")
            split(stream, stream.open_shards[0], 2**127)
            async with self.reached(endpoint) as url:
                properties = Properties({**endpoint.properties(), **PATIENT, "aws.endpoint": url})
                async with KinesisClient(properties) as client:
                    shard, child, _ = await client.list_shards("orders")

                def put(payload: bytes) -> None:
                    stream.put(payload, "key", hash_key=0)

                factory = self.factory(properties)
                try:
                    yield PublisherCase(factory, shard, PAYLOADS, open_shard=child, put=put)
                finally:
                    await factory.close()

    @asynccontextmanager
    async def reached(self, endpoint):
        yield endpoint.url

    def execute(self, work):
        run_fast(work)

    def is_of_source(self, task):
        name = task.get_coro().__qualname__  # the endpoint's: one for each connection, open or being opened
        return name in ("RequestHandler.start", "BaseSelectorEventLoop._accept_connection2")


class TestPolling(AgainstTheEndpoint):
    def factory(self, properties):
        return PollingRecordPublisherFactory(properties.merged({"flink.shard.getrecords.maxrecordcount": 3}))


class TestFanOut(AgainstTheEndpoint):
    def factory(self, properties):
        named = properties.merged({"flink.stream.efo.consumername": "contract"})
        return FanOutRecordPublisherFactory(named, clock=FastClock(), ref_counts=ConsumerRefCounts())


@pytest.mark.slow
class TestFanOutOverHttp2(TestFanOut):
    @asynccontextmanager
    async def reached(self, endpoint):
        async with front_of(endpoint.url) as front:
            yield front.url

    def factory(self, properties):
        return super().factory(properties.merged({"aws.http.protocol.version": "HTTP2"}))

    def is_of_source(self, task):
        return super().is_of_source(task) or task.get_coro().__qualname__.startswith(("worker_serve", "H2Protocol"))
