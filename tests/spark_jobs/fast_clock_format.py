"""format("fast-clock"): the Kinesis source in processes whose wall clock runs many times as fast.

Timers, and the clock that only grows, are the real ones: what stands on them are pauses of seconds.
"""

from __future__ import annotations

import os
import time

from recordpublisher.plugins.spark.data_source import KinesisSource
from recordpublisher.publishers.clock import SystemClock

SPEED, BEGAN = "CLOCK_SPEED", "CLOCK_BEGAN"
"""In the environment: how many times as fast, and since when (epoch seconds)."""


def fast_now_ms(speed: float, began: float) -> int:
    return round((began + (time.time() - began) * speed) * 1000)


def install() -> None:
    """In each process that imports this module: the job's clock is the fast one."""
    speed, began = float(os.environ[SPEED]), float(os.environ[BEGAN])
    SystemClock.now_ms = lambda self: fast_now_ms(speed, began)  # type: ignore[method-assign]


class FastClockSource(KinesisSource):
    """The source itself, with another name."""

    @classmethod
    def name(cls) -> str:
        return "fast-clock"


if SPEED in os.environ:
    install()
