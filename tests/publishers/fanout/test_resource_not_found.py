"""resolve_not_found: which of stream, shard and consumer is gone (F4)."""

import asyncio
from functools import partial

import pytest

from recordpublisher.publishers.errors import DataLossError, ResourceInUseError, StreamNotFoundError
from recordpublisher.publishers.fanout.config import FanOutConfig
from recordpublisher.publishers.fanout.publisher import resolve_not_found
from recordpublisher.publishers.fanout.registration import ConsumerRefCounts, ConsumerRegistrar
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.fanout_service import ARN, EFO, SHARD, ScriptedPorts, network

SHARD_OF_SECOND = Shard("orders", "shardId-000000000001")


def resolved(ports, before=lambda ports: None, shards=1, shard=SHARD):
    """Register the consumer, call `before`, then resolve the error for some shards at once."""
    config = FanOutConfig.of(Properties(EFO))

    async def main():
        registrar = ConsumerRegistrar(ports, config, VirtualClock(), "", ConsumerRefCounts())
        resolve = partial(
            resolve_not_found, arn=ARN, registrar=registrar, listing=ports, policy=config.retries.list_shards
        )
        await registrar.ensure("orders")
        before(ports)
        return await asyncio.gather(*[resolve(shard) for _ in range(shards)])

    return run_virtual(main())


def test_everything_exists():
    assert resolved(ScriptedPorts()) == [False]


def test_a_missing_consumer_is_registered_again():
    assert resolved(ScriptedPorts(), lambda ports: ports.consumers.remove("app")) == [True]


def test_a_deleting_consumer_is_registered_again():
    assert resolved(ScriptedPorts(), lambda ports: ports.consumers.add("app", gone_in=10)) == [True]


def test_a_missing_stream_is_an_error_even_when_its_arn_is_known():
    with pytest.raises(StreamNotFoundError, match="orders"):
        resolved(ScriptedPorts(), lambda ports: ports.streams.clear())


def test_a_missing_shard_is_data_loss():
    with pytest.raises(DataLossError, match=f"{SHARD.key} is gone"):
        resolved(ScriptedPorts(), lambda ports: ports.shards.clear())


def test_a_listing_that_lacks_the_shard_is_no_data_loss_when_the_consumer_is_gone():
    """The service did not find the consumer. That says nothing about the shard, and a listing may lack one that exists."""

    def lose_both(ports):
        ports.consumers.remove("app")
        ports.shards.clear()

    assert resolved(ScriptedPorts(), lose_both) == [True]


def test_a_shard_that_is_newer_than_the_listing_is_waited_for():
    """ChildShards may name a child before every host of the service knows it, also those of ListShards."""
    ports = ScriptedPorts()
    older = Shard("orders", "shardId-000000000000")
    listings = iter([[older], [older], [older, SHARD_OF_SECOND]])

    async def list_shards(stream):
        return next(listings)

    ports.list_shards = list_shards
    assert resolved(ports, shard=SHARD_OF_SECOND) == [False]
    assert next(listings, None) is None


def test_a_failed_listing_is_retried():
    ports = ScriptedPorts()
    ports.consumers.errors["list"] = [network()] * 3
    assert resolved(ports) == [False]
    assert ports.consumers.count("list") == 4


def test_a_stream_that_is_being_deleted_is_listed_again_until_it_is_gone():
    """As with polling: the job then ends because its stream was deleted, and not with an error that no retry can help."""
    ports = ScriptedPorts()
    busy = ResourceInUseError("ListShards", "ResourceInUseException", "Stream orders is DELETING")
    answers = iter([busy, busy, StreamNotFoundError("orders")])

    async def list_shards(stream):
        raise next(answers)

    ports.list_shards = list_shards
    with pytest.raises(StreamNotFoundError, match="orders"):
        resolved(ports)


def test_one_registration_is_enough_for_all_shards_of_a_stream():
    ports = ScriptedPorts()
    assert resolved(ports, lambda ports: ports.consumers.remove("app"), shards=50) == [True] * 50
    assert ports.consumers.count("register") == 2


def test_a_shard_that_comes_later_uses_the_new_registration_without_a_call():
    ports = ScriptedPorts()
    config = FanOutConfig.of(Properties(EFO))

    async def main():
        registrar = ConsumerRegistrar(ports, config, VirtualClock(), "", ConsumerRefCounts())
        resolve = partial(
            resolve_not_found, arn=ARN, registrar=registrar, listing=ports, policy=config.retries.list_shards
        )
        await registrar.ensure("orders")
        ports.consumers.remove("app")
        assert await resolve(SHARD)
        calls = list(ports.consumers.calls)
        assert await resolve(SHARD)
        assert ports.consumers.calls == calls

    run_virtual(main())
