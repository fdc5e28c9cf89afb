"""Tags of a registered consumer, through the real SDK."""

import asyncio

from recordpublisher.local import LocalKinesis
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.fanout.config import FanOutConfig
from recordpublisher.publishers.fanout.registration.registration_calls import RegistrationCalls
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.properties.properties import Properties


def test_a_consumer_is_registered_with_its_tags():
    async def main():
        async with LocalKinesis(streams={"orders": 1}) as endpoint:
            tags = {"flink.stream.efo.consumername": "app", "flink.stream.efo.tags": "team=blue"}
            properties = Properties({**endpoint.properties(), **tags})
            client = KinesisClient(properties)
            calls = RegistrationCalls(client, FanOutConfig.of(properties), SystemClock())
            await calls.ensure_active(await calls.stream_arn("orders"), "app", lambda: True)
            await client.close()
            consumer = endpoint.stream("orders").consumers.find(name="app")
            assert consumer.tags.describe() == [{"Key": "team", "Value": "blue"}]

    asyncio.run(main())
