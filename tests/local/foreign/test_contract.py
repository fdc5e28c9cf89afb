"""The contract of publishers on another server: polling on npm kinesis-local, one shard that a split has closed."""

import time
from contextlib import asynccontextmanager

import pytest

from recordpublisher import Properties
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.polling import PollingRecordPublisherFactory
from recordpublisher.testing import PublisherCase, PublisherContract

from servers.fast_time import FastClock, run_fast
from servers.kinesis_conversation import FIRST, open_conversation

pytestmark = [pytest.mark.servers, pytest.mark.timeout(90)]

TEXTS = [f"record {number}" for number in range(8)]


class TestPollingOnKinesisLocal(PublisherContract):
    deadline = 2_500.0  # 50 real seconds

    @pytest.fixture(autouse=True)
    def _stream(self, kinesis_local):
        with open_conversation(kinesis_local, 1) as conversation:
            for text in TEXTS:
                conversation.put(text)
            conversation.reshard("split_shard", ShardToSplit=FIRST, NewStartingHashKey=str(1 << 127))
            self.stream, self.url = conversation.stream, kinesis_local.meta.endpoint_url
            time.sleep(
                1.1
            )  # what the contract waits for passes too fast here: LATEST is pinned to whole seconds of this server's clock
            yield

    @asynccontextmanager
    async def open_case(self):
        properties = Properties(
            {
                "aws.endpoint": self.url,
                "aws.credentials.provider.basic.accesskeyid": "local",
                "aws.credentials.provider.basic.secretkey": "local",
                "aws.request.timeout": 3_600_000,  # time runs fast here
                "flink.shard.getrecords.maxrecordcount": 3,
            }
        )
        async with KinesisClient(properties) as client:
            shard = (await client.list_shards(self.stream))[0]
        factory = PollingRecordPublisherFactory(properties, clock=FastClock())
        try:
            yield PublisherCase(factory, shard, [text.encode() for text in TEXTS])
        finally:
            await factory.close()

    def execute(self, work):
        run_fast(work)
