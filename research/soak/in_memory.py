"""A soak run in memory, on virtual time. `python -m soak.in_memory SEED...` repeats seeds with `PYTHONPATH=research:tests`."""

from __future__ import annotations

import sys
from collections import Counter

from recordpublisher.local import Account, Delays, FaultKind, MemoryTransport, Quotas
from recordpublisher.local.dispatcher import RequestDispatcher
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from .plan import Plan, plan_of
from .soak_run import SoakRun

READ_LIMITS = Quotas(reads=5, read_bytes=2 << 20, subscribes=1)


def soak(seed: int) -> Counter[FaultKind]:
    """Run a seed; returns the applied faults by kind. Raises: what failed."""
    return run_virtual(_soak(plan_of(seed)))


async def _soak(plan: Plan) -> Counter[FaultKind]:
    clock = VirtualClock()
    account = Account(clock, "us-east-1", Delays(consumer=plan.consumer_delay_ms), READ_LIMITS)
    dispatcher = RequestDispatcher(account)
    return await SoakRun(plan, account, clock, lambda: MemoryTransport(account, dispatcher=dispatcher), 1e-3).run()


if __name__ == "__main__":
    for text in sys.argv[1:]:
        print(text, dict(soak(int(text))))
