"""A soak run over real sockets and the real SDK, fifty times as fast. `python -m soak.over_sockets SEED...` repeats seeds."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace

from recordpublisher.local import Delays, FaultKind, LocalKinesis
from recordpublisher.publishers.kinesis.sdk.transport import SdkTransport
from recordpublisher.publishers.properties.properties import Properties

from .plan import Plan, plan_of
from .soak_run import SoakRun
from servers.fast_time import LONGEST_SECONDS, SPEED, FastClock, run_fast

TOLERANCE_SECONDS = LONGEST_SECONDS * SPEED
"""The error of measured times on a machine that stalls."""


def soak(seed: int) -> Counter[FaultKind]:
    """Run a seed; returns the applied faults by kind. Raises: what failed."""
    return run_fast(_soak(_shortened(plan_of(seed))))


def _shortened(plan: Plan) -> Plan:
    """The same plan, short enough for real time."""
    stalls = tuple((at, min(length, 90.0)) for at, length in plan.stalls)
    return replace(plan, seconds=min(plan.seconds, 30.0), interval_ms=1_000, stalls=stalls)


async def _soak(plan: Plan) -> Counter[FaultKind]:
    clock = FastClock()
    async with LocalKinesis(clock=clock, delays=Delays(consumer=plan.consumer_delay_ms)) as endpoint:
        properties = Properties({**endpoint.properties(), "aws.request.timeout": 60_000})
        return await SoakRun(plan, endpoint.account, clock, lambda: SdkTransport(properties), TOLERANCE_SECONDS).run()


if __name__ == "__main__":
    for text in sys.argv[1:]:
        print(text, dict(soak(int(text))))
