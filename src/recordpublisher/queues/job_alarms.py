"""Raises the alarms of a queue job: for a call of the sink that does not return, and for records that wait to be written."""

from __future__ import annotations

import asyncio
import logging

from recordpublisher.publishers.clock import Clock

from ..fetcher.alarms import ActiveAlarms, Alarm, AlarmKind, AlarmListener
from ..fetcher.monitoring.alarm_monitor import MAX_PAUSE_SECONDS, MIN_PAUSE_SECONDS
from ..fetcher.monitoring.stuck_shards import CHECKS_PER_INTERVAL, UnchangedTimer
from ..fetcher.pipeline.checked_sink_calls import unfinished_of
from ..fetcher.sink import Sink
from .receivers import Receivers

log = logging.getLogger("recordpublisher.alarm")


class QueueAlarms:
    """Raises an alarm if a call of the sink does not return, if a receiver's records wait to be written, or if its calls fail."""

    def __init__(
        self, receivers: Receivers, sink: Sink, clock: Clock, interval_ms: int, listener: AlarmListener | None
    ) -> None:
        self._receivers = receivers
        self._sink = sink
        self._clock = clock
        self._interval_ms = interval_ms
        self._pause = min(max(interval_ms / 1000 / CHECKS_PER_INTERVAL, MIN_PAUSE_SECONDS), MAX_PAUSE_SECONDS)
        self._sink_call = UnchangedTimer(2 * self._pause)
        self._waiting = {each.shard.key: UnchangedTimer(2 * self._pause) for each in receivers}
        self.active = ActiveAlarms(interval_ms, listener)

    async def run(self) -> None:
        """Check for alarms until cancelled. If a check itself fails, log the error and continue."""
        while self._interval_ms >= 0:
            await asyncio.sleep(self._pause)
            try:
                self.active.update([*self._of_sink(), *self._of_receivers()])
            except Exception:
                log.exception("a check for alarms failed; the job continues")

    def _of_sink(self) -> list[Alarm]:
        unfinished = unfinished_of(self._sink)
        if unfinished is None or unfinished.call is None:
            self._sink_call.reset()
            return []
        return self._lasting(self._sink_call, unfinished.call, AlarmKind.HANGING, "sink", unfinished.reason)

    def _of_receivers(self) -> list[Alarm]:
        alarms: list[Alarm] = []
        for receiver in self._receivers:
            timer, key = self._waiting[receiver.shard.key], receiver.shard.key
            failure = None if receiver.receiving_since_ms is None else receiver.metrics.last_failure
            if receiver.waits_since is None and failure is None:
                timer.reset()
                continue
            reason = "its records wait to be written" if failure is None else f"its last call failed: {failure}"
            alarms += self._lasting(timer, (receiver.waits_since, receiver.last_read_ms), AlarmKind.UNREAD, key, reason)
        return alarms

    def _lasting(self, timer: UnchangedTimer, value: object, kind: AlarmKind, subject: str, reason: str) -> list[Alarm]:
        lasting_ms = round(timer.observe(value, self._clock.monotonic()) * 1000)
        return [Alarm(kind, subject, lasting_ms, reason)] if lasting_ms >= self._interval_ms else []
