"""W6: which subtasks of a process share an in-process tracker."""

import gc

import pytest

from recordpublisher.plugins.host.build_from_properties import build_tracker
from recordpublisher.plugins.host.manager import load_registry
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties

REGISTRY = load_registry()
GROUP = {"flink.watermark.group": "g"}


def tracker(parallelism=2, streams=("s",), **properties):
    return build_tracker(REGISTRY, Properties(properties), streams, parallelism)


def test_a_job_of_one_subtask_has_a_tracker_of_its_own():
    assert tracker(1) is not tracker(1)


def test_subtasks_of_one_job_share_a_tracker():
    first = tracker()
    assert tracker() is first


@pytest.mark.parametrize("other", [{"streams": ("t",)}, {"parallelism": 3}, {"flink.watermark.sync.interval": 5}])
def test_another_job_has_another_tracker(other):
    first = tracker()
    assert tracker(**other) is not first


def test_jobs_with_the_same_group_name_share_a_tracker():
    first = tracker(1, **GROUP)
    assert tracker(1, ("t",), **GROUP) is first


def test_a_tracker_lives_as_long_as_its_job():
    first = id(tracker(7))
    gc.collect()
    second = tracker(7)

    assert second.missing_subtasks() == list(range(7))
    assert first is not None


@pytest.mark.parametrize(
    "given", [{}, {"flink.watermark.tracker.address": "nowhere"}, {"flink.watermark.tracker.address": "a:0"}]
)
def test_tcp_needs_an_address(given):  # C2
    with pytest.raises(ConfigurationError, match=r"flink.watermark.tracker.address"):
        tracker(**{"flink.watermark.tracker": "tcp", **given})


def test_tcp_needs_a_token():  # C2, C4
    with pytest.raises(ConfigurationError, match=r"flink.watermark.tracker.token"):
        tracker(**{"flink.watermark.tracker": "tcp", "flink.watermark.tracker.address": "localhost:1"})


def test_an_unknown_tracker_is_named():
    with pytest.raises(ConfigurationError, match="IN_PROCESS"):
        tracker(**{"flink.watermark.tracker": "nowhere"})
