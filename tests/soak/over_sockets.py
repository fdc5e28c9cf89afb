"""A soak run over real sockets and the real SDK, fifty times as fast. `python -m soak.over_sockets SEED...` repeats seeds."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace

from recordpublisher.local import Delays, FaultKind, LocalKinesis
from recordpublisher.publishers.kinesis.sdk_transport import SdkTransport
from recordpublisher.publishers.properties.properties import Properties

from .plan import Plan, plan_of
from .run import Run
from servers.fast_time import LONGEST_SECONDS, SPEED, FastClock, run_fast

TOLERANCE_SECONDS = LONGEST_SECONDS * SPEED
"""What a machine that stands still between two looks at the clock may add."""


def soak(seed: int) -> Counter[FaultKind]:
    """Play a seed; answers the faults that struck. Raises: what went wrong."""
    return run_fast(_soak(_shortened(plan_of(seed))))


def _shortened(plan: Plan) -> Plan:
    """The same plan in real time that a person can wait for."""
    stalls = tuple((at, min(length, 90.0)) for at, length in plan.stalls)
    return replace(plan, seconds=min(plan.seconds, 30.0), interval_ms=1_000, stalls=stalls)


async def _soak(plan: Plan) -> Counter[FaultKind]:
    clock = FastClock()
    async with LocalKinesis(clock=clock, delays=Delays(consumer=plan.consumer_delay_ms)) as endpoint:
        properties = Properties({**endpoint.properties(), "aws.request.timeout": 60_000})
        return await Run(plan, endpoint.account, clock, lambda: SdkTransport(properties), TOLERANCE_SECONDS).play()


if __name__ == "__main__":
    for text in sys.argv[1:]:
        print(text, dict(soak(int(text))))
