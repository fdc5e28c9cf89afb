"""Whether a process may write now is asked before each record, and looked up once in a millisecond (E4)."""

import asyncio
from types import SimpleNamespace

from recordpublisher.fetcher.leases.heartbeat import WritePermission
from recordpublisher.fetcher.pipeline.current_worker import CurrentWorker, LeaseGate
from recordpublisher.fetcher.pipeline.process_suspension import SuspensionDetector
from recordpublisher.testing import run_virtual
from recordpublisher.testing.virtual_time import VirtualClock


class CountingClock(VirtualClock):
    """Counts how often the time is asked for."""

    asked = 0

    def monotonic(self):
        self.asked += 1
        return super().monotonic()


def test_a_permission_holds_for_a_millisecond_and_not_after_the_process_was_stopped():
    async def story():
        loop, clock = asyncio.get_running_loop(), CountingClock()
        suspension = SuspensionDetector(VirtualClock(), lambda gap: None)
        current, permission = CurrentWorker(), WritePermission(clock, 30)
        gate = LeaseGate(current, suspension, VirtualClock())
        current.become(SimpleNamespace(permission=permission))
        before = gate.may_write_now()
        permission.confirm(permission.send_time())
        clock.asked = 0
        given = [gate.may_write_now() for _ in range(100)]
        asked = clock.asked
        loop.suspend(600)
        after = gate.may_write_now()
        permission.confirm(permission.send_time())
        again = gate.may_write_now()
        current.become(SimpleNamespace(permission=WritePermission(clock, 30)))
        return before, all(given), asked, after, again, gate.may_write_now()

    assert run_virtual(story()) == (False, True, 1, False, True, False)
