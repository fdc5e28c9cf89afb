"""W6: which subtasks of a process share an in-process tracker."""

import gc

import pytest

from recordpublisher.fetcher.global_watermark import WatermarkTracker
from recordpublisher.plugins.manager import load_registry
from recordpublisher.plugins.shared_trackers import tracker_of
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties import Properties

REGISTRY = load_registry()
GROUP = {"flink.watermark.group": "g"}


def tracker(parallelism=2, streams=("s",), **properties):
    return tracker_of(REGISTRY, Properties(properties), streams, parallelism)


def test_a_job_of_one_subtask_is_private():
    assert tracker(1) is not tracker(1)


def test_subtasks_of_one_job_share():
    first = tracker()
    assert tracker() is first


@pytest.mark.parametrize("other", [{"streams": ("t",)}, {"parallelism": 3}, {"flink.watermark.sync.interval": 5}])
def test_other_jobs_do_not(other):
    first = tracker()
    assert tracker(**other) is not first


def test_a_group_joins_jobs():
    first = tracker(1, **GROUP)
    assert tracker(1, ("t",), **GROUP) is first


def test_a_tracker_lives_as_long_as_its_job():
    first = id(tracker(7))
    gc.collect()
    second = tracker(7)

    assert second.missing() == list(range(7))
    assert first is not None


def test_tcp_needs_an_address():  # C2
    class Tcp(WatermarkTracker):
        def __init__(self, properties): ...
        def report(self, report): ...
        def current(self): ...

    class Trackers:
        def get(self, name, key):
            return Tcp

    class Registry:
        trackers = Trackers()

    with pytest.raises(ConfigurationError, match=r"flink.watermark.tracker.address"):
        tracker_of(Registry(), Properties({"flink.watermark.tracker": "tcp"}), ("s",), 2)


def test_an_unknown_tracker_is_named():
    with pytest.raises(ConfigurationError, match="IN_PROCESS"):
        tracker(**{"flink.watermark.tracker": "nowhere"})
