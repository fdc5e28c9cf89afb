"""Watermark strategies of a whole job: by property, by a user's function, by a plugin (W1, W12)."""

import pytest

import recordpublisher as rp
from recordpublisher.consumer.watermark_strategies import BoundedOutOfOrderness
from recordpublisher.plugins.host.plugin_loading import load_registry

from fakes.memory_streams import ARRIVAL, PROPERTIES, Streams, install

KEY = "flink.watermark.strategy"
BOUND = {"flink.watermark.outoforderness.millis": 10}
ARRIVED = round(ARRIVAL * 1000)


@pytest.fixture(autouse=True)
def _orders(monkeypatch):
    install(monkeypatch, {"a": [b"100", b"50"]}, closed=True)


async def watermark_of(properties, **options):
    options = {"timestamp_assigner": lambda record: int(record.data), **options}
    async with rp.DataFetcher("orders", {**PROPERTIES, **properties}, sink=rp.MemorySink(), **options) as fetcher:
        await fetcher.run()
        return fetcher.metrics()["shards"]["orders/a"]["watermark"]


@pytest.mark.parametrize(
    ("name", "expected"), [("BOUNDED", 90), ("monotonous", 100), ("ARRIVAL", ARRIVED - 10)], ids=str
)
async def test_the_bundled_strategies_are_chosen_by_property(name, expected):
    assert await watermark_of({**BOUND, KEY: name}) == expected


async def test_a_users_function_decides_the_watermark():
    assert await watermark_of(BOUND, watermark_assigner=lambda record: int(record.data) - 30) == 70


async def test_an_invalid_watermark_of_a_users_function_stops_no_shard():  # W12
    assert await watermark_of({}, watermark_assigner=lambda record: 10**14) == ARRIVED


async def test_an_error_of_a_users_function_is_a_bad_record():  # S7
    with pytest.raises(rp.DeserializationError, match="ZeroDivisionError"):
        await watermark_of({}, watermark_assigner=lambda record: 1 // 0)


async def test_a_plugins_strategy_is_chosen_by_its_name():
    class Cautious(BoundedOutOfOrderness):
        def advance(self, event_times):
            return [watermark - 1 for watermark in super().advance(event_times)]

    class Plugin:
        @rp.hookimpl
        def recordpublisher_register_watermark_strategies(self, registry):
            registry.add("CAUTIOUS", Cautious)

    registry = load_registry([Streams(), Plugin()])

    assert await watermark_of({**BOUND, KEY: "cautious"}, registry=registry) == 89


async def test_an_unknown_strategy_is_an_error_that_lists_the_known_ones():  # C2
    with pytest.raises(rp.ConfigurationError, match="ARRIVAL, BOUNDED, MONOTONOUS"):
        await watermark_of({KEY: "BEST"})


async def test_a_lag_below_the_lookahead_is_an_error():  # W12, C2
    with pytest.raises(rp.ConfigurationError, match=r"more than flink\.watermark\.lookahead\.millis, which is 500"):
        await watermark_of({"flink.watermark.lookahead.millis": 500, "flink.watermark.alignment.max.lag": "500ms"})
