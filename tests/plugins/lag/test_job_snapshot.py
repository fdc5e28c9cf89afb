"""What is the same in all views of a job."""

import pytest

from recordpublisher.plugins.lag.job_snapshot import idle_interval_ms
from recordpublisher.publishers.properties.properties import Properties


@pytest.mark.parametrize(
    ("idle", "alarm", "shown_after"), [(5_000, 60_000, 5_000), (-1, 60_000, 60_000), (-1, -1, 300_000)]
)
def test_a_shard_is_shown_as_idle_by_the_idle_interval_or_without_one_by_the_alarm_interval(idle, alarm, shown_after):
    properties = Properties({"flink.shard.idle.interval": idle, "flink.alarm.interval": alarm})

    assert idle_interval_ms(properties) == shown_after
