import pytest

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.polling import PollingConfig
from recordpublisher.publishers.properties.properties import Properties


def test_c1_the_defaults_are_the_connectors():
    config = PollingConfig.of(Properties({}))
    assert (config.max_records, config.interval_seconds, config.adaptive) == (10_000, 0.2, False)
    assert (config.get_records.base_ms, config.get_records.max_outage_ms) == (300, 900_000)


def test_c1_every_value_can_be_set():
    config = PollingConfig.of(
        Properties(
            {
                "flink.shard.getrecords.maxrecordcount": "7",
                "flink.shard.getrecords.intervalmillis": "1500",
                "flink.shard.adaptivereads": "TRUE",
                "flink.shard.getiterator.maxretries": "9",
            }
        )
    )
    assert (config.max_records, config.interval_seconds, config.adaptive) == (7, 1.5, True)
    assert config.get_iterator.max_retries == 9


def test_the_interval_at_the_tip_is_the_interval_unless_a_longer_one_is_set():
    def seconds(**intervals):
        keys = {"every": "flink.shard.getrecords.intervalmillis", "tip": "flink.shard.getrecords.tip.intervalmillis"}
        config = PollingConfig.of(Properties({keys[name]: value for name, value in intervals.items()}))
        return config.tip_interval_seconds

    assert (seconds(), seconds(every=700), seconds(tip="2s"), seconds(every=3000, tip=500)) == (0.2, 0.7, 2.0, 3.0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("flink.shard.getrecords.tip.intervalmillis", "199"),
        ("flink.shard.getrecords.tip.intervalmillis", "5001"),
        ("flink.shard.getrecords.maxrecordcount", "0"),
        ("flink.shard.getrecords.maxrecordcount", "10001"),
        ("flink.shard.getrecords.intervalmillis", "-1"),
        ("flink.shard.getrecords.intervalmillis", "300000"),
        ("flink.shard.adaptivereads", "maybe"),
        ("flink.shard.getrecords.backoff.base", "2000"),
    ],
)
def test_c2_an_invalid_value_is_an_error_with_its_key(key, value):
    with pytest.raises(ConfigurationError) as raised:
        PollingConfig.of(Properties({key: value}))
    assert raised.value.key == key
