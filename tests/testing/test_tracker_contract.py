"""The trackers in one process and over TCP pass the contract, and each kind of broken tracker fails one of its tests (W6)."""

from contextlib import asynccontextmanager

import pytest

from recordpublisher.fetcher.coordination.in_process_tracker import InProcessTracker
from recordpublisher.fetcher.coordination.watermark_tracker import SubtaskStatus
from recordpublisher.plugins.trackers.tcp.client import TcpTracker
from recordpublisher.plugins.trackers.tcp.server import TrackerServer
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.testing import TrackerCase, TrackerContract, VirtualClock, run_virtual

TOKEN = "open sesame"


class TestTcp(TrackerContract):
    @asynccontextmanager
    async def open_case(self):
        async with TrackerServer(TOKEN) as server:
            properties = Properties(
                watermark_tracker_address=server.address,
                watermark_tracker_token=TOKEN,
                watermark_group="contract",
                watermark_sync_interval=50,
                watermark_tracker_timeout=60_000,
            )
            yield TrackerCase(lambda: TcpTracker(properties))


class InOneProcess(TrackerContract):
    tracker = InProcessTracker

    @asynccontextmanager
    async def open_case(self):
        shared = self.tracker(parallelism=2, clock=VirtualClock(), timeout_ms=3_600_000)
        yield TrackerCase(lambda: shared)

    def execute(self, work):
        run_virtual(work)


class TestInProcess(InOneProcess):
    """On virtual time."""


class TakesHighest(InProcessTracker):
    """Returns the highest watermark."""

    def current(self):
        return max((report.watermark for report in self._last_reports.values()), default=None)


class CountsIdle(InProcessTracker):
    """Waits for idle subtasks."""

    def report(self, report):
        return None if report.status is SubtaskStatus.IDLE else super().report(report)


class WaitsForLeavers(InProcessTracker):
    """Waits for subtasks that left."""

    def report(self, report):
        return None if report.status is SubtaskStatus.LEFT else super().report(report)


class Falls(InProcessTracker):
    """Returns the lowest of the last reports."""

    def current(self):
        return min((report.watermark for report in self._last_reports.values()), default=None)


class ForgetsStart(InProcessTracker):
    """Begins a generation without a watermark."""

    def start_at(self, watermark):
        super().start_at(None)


class ForgetsShards(InProcessTracker):
    """Drops announcements."""

    def announce_finished(self, shards):
        pass


@pytest.mark.parametrize(
    ("broken", "test"),
    [
        (TakesHighest, "test_the_global_watermark_is_the_lowest_of_the_active_subtasks"),
        (CountsIdle, "test_an_idle_subtask_does_not_count"),
        (WaitsForLeavers, "test_a_subtask_that_left_does_not_count"),
        (Falls, "test_the_global_watermark_never_falls"),
        (ForgetsStart, "test_a_generation_starts_at_the_restored_watermark"),
        (ForgetsShards, "test_a_finished_shard_is_known_to_every_subtask"),
    ],
)
def test_a_broken_tracker_is_found(broken, test):
    contract = InOneProcess()
    contract.tracker = broken

    with pytest.raises((AssertionError, TimeoutError)):
        getattr(contract, test)()
