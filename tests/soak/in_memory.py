"""A soak run in memory, on virtual time. `python -m soak.in_memory SEED...` repeats seeds (from the folder `tests`)."""

from __future__ import annotations

import sys
from collections import Counter

from recordpublisher.local import Account, Delays, FaultKind, MemoryTransport, Quotas
from recordpublisher.local.dispatcher import RequestDispatcher
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from .plan import Plan, plan_of
from .run import Run

READ_LIMITS = Quotas(reads=5, read_bytes=2 << 20, subscribes=1)


def soak(seed: int) -> Counter[FaultKind]:
    """Play a seed; answers the faults that struck. Raises: what went wrong."""
    return run_virtual(_soak(plan_of(seed)))


async def _soak(plan: Plan) -> Counter[FaultKind]:
    clock = VirtualClock()
    account = Account(clock, "us-east-1", Delays(consumer=plan.consumer_delay_ms), READ_LIMITS)
    dispatcher = RequestDispatcher(account)
    return await Run(plan, account, clock, lambda: MemoryTransport(account, dispatcher=dispatcher), 1e-3).play()


if __name__ == "__main__":
    for text in sys.argv[1:]:
        print(text, dict(soak(int(text))))
