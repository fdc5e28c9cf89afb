"""Several streams in one job, by name and by ARN, of several regions, over real sockets."""

import asyncio
from collections import Counter

import pytest

import recordpublisher as rp
from recordpublisher.local import LocalKinesis, serve_in_thread

REGIONS = ("eu-west-1", "us-east-1")
KEYS = {"aws.credentials.provider.basic.accesskeyid": "a", "aws.credentials.provider.basic.secretkey": "s"}


@pytest.mark.slow
@pytest.mark.parametrize("publisher", ["POLLING", "EFO"])
def test_streams_by_name_and_by_arn_are_read_together(publisher):
    with serve_in_thread(streams={"orders": 2, "clicks": 1, "taps": 1}) as server:
        endpoint = server.endpoint
        for name, count in (("orders", 6), ("clicks", 3), ("taps", 2)):
            for number in range(count):
                server.call(endpoint.stream(name).put, f"{name} {number}".encode(), str(number))
        given = {
            **endpoint.properties(),
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.stream.efo.consumername": "app",
        }
        streams = ["orders", endpoint.stream("clicks").arn, "taps"]
        records = list(rp.consume(streams, given, publisher=publisher, stop_at_tip=True))
        consumers = [len(endpoint.stream(name).consumers.all()) for name in ("orders", "clicks", "taps")]

    assert Counter(record.stream for record in records) == {"orders": 6, "clicks": 3, "taps": 2}
    assert all(record.data.decode().startswith(record.stream) for record in records)
    # each stream had its own consumer, which is deleted or DELETING
    assert set(consumers) <= {0, 1}


def test_a_stream_of_another_account_is_looked_up_by_its_arn():
    with serve_in_thread(streams={"orders": 1}) as server:
        other = server.endpoint.stream("orders").arn.replace(":000000000000:", ":999999999999:")
        given = {**server.endpoint.properties(), "flink.stream.initpos": "TRIM_HORIZON"}
        with pytest.raises(rp.StreamNotFoundError, match="999999999999"):
            list(rp.consume([other], given, stop_at_tip=True))


async def read_two_regions(names, publisher, expected):
    sink = rp.MemorySink()
    async with LocalKinesis(region=REGIONS[0]) as eu, LocalKinesis(region=REGIONS[1]) as us:
        streams, properties = [], dict(KEYS)
        for region, endpoint, name in zip(REGIONS, (eu, us), names, strict=True):
            stream = endpoint.create_stream("orders", 2)
            for number in range(4):
                stream.put(f"{region} {number}".encode(), f"key-{number}")
            streams.append(f"{name}{stream.arn}")
            properties[f"aws.endpoint.{region}"] = endpoint.url
        properties |= {"flink.stream.initpos": "TRIM_HORIZON", **publisher}
        async with rp.DataFetcher(streams, properties, sink=sink) as fetcher:
            await fetcher.run_bounded(max_records=expected, max_time=60)
            state = fetcher.snapshot()
    return sink, state


@pytest.mark.parametrize(
    "publisher",
    [{}, {"flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "job"}],
    ids=["polling", "fan-out"],
)
async def test_streams_of_one_name_in_two_regions_are_read_under_names_of_their_own(publisher):
    sink, state = await read_two_regions(("eu=", "us="), publisher, 8)

    found = sorted((record.stream, record.data.decode()) for record in sink.records)
    assert found == sorted((region[:2], f"{region} {number}") for region in REGIONS for number in range(4))
    assert {key.partition("/")[0] for key in state["shards"]} == {"eu", "us"}


async def test_two_streams_of_one_name_need_names_of_their_own():
    with pytest.raises(rp.ConfigurationError, match="a name of its own"):
        await read_two_regions(("", ""), {}, 8)


@pytest.mark.parametrize("registration", ["EAGER", "NONE"])
async def test_fan_out_registers_a_stream_with_a_name_of_its_own_lazily_only(registration):
    fan_out = {"flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "job"}
    with pytest.raises(rp.ConfigurationError, match=r"efo\.registration.*LAZY"):
        await read_two_regions(("eu=", "us="), fan_out | {"flink.stream.efo.registration": registration}, 8)


async def wait_until(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the state of several endpoints
            await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("publisher", ["POLLING", "EFO"])
async def test_a_function_of_streams_brings_one_of_another_region_and_lets_it_go(publisher):
    sink = rp.MemorySink()
    async with LocalKinesis(region=REGIONS[0]) as eu, LocalKinesis(region=REGIONS[1]) as us:
        orders, others = eu.create_stream("orders", 1), us.create_stream("orders", 1)
        others.put(b"of us", "key")
        given = ["orders"]
        properties = KEYS | {
            "aws.region": REGIONS[0],
            "flink.stream.recordpublisher": publisher,
            "flink.stream.efo.consumername": "job",
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.shard.discovery.intervalmillis": 20,
            f"aws.endpoint.{REGIONS[0]}": eu.url,
            f"aws.endpoint.{REGIONS[1]}": us.url,
        }
        async with rp.DataFetcher(lambda: given, properties, sink=sink) as fetcher:
            running = asyncio.create_task(fetcher.run())
            orders.put(b"of eu", "key")
            await wait_until(lambda: len(sink.records) == 1)
            given.append(f"us={others.arn}")
            await wait_until(lambda: len(sink.records) == 2)
            given.pop()
            await wait_until(lambda: list(fetcher.metrics()["shards"]) == ["orders/shardId-000000000000"])
            if publisher == "EFO":
                await wait_until(lambda: all(each.gone_from_ms for each in others.consumers.all()))
                assert [each.gone_from_ms for each in orders.consumers.all()] == [None]
            others.put(b"later", "key")
            given.append(f"us={others.arn}")
            await wait_until(lambda: len(sink.records) == 3)
            assert fetcher.streams == ("orders", "us")
            fetcher.stop()
            await running

    assert [(each.stream, each.data) for each in sink.records] == [
        ("orders", b"of eu"),
        ("us", b"of us"),
        ("us", b"later"),
    ]
