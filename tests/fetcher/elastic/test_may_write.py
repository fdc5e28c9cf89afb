"""Whether a process may write now is asked before each record, and looked up once in a millisecond (E4)."""

import asyncio

from recordpublisher.fetcher.leases.write_permission import WritePermission
from recordpublisher.testing import run_virtual
from recordpublisher.testing.virtual_time import VirtualClock

from fakes.leases.elastic_processes import ElasticProcesses


class CountingClock(VirtualClock):
    """Counts how often the time is asked for."""

    asked = 0

    def monotonic(self):
        self.asked += 1
        return super().monotonic()


def test_a_permission_holds_for_a_millisecond_and_not_after_the_process_was_stopped():
    async def story():
        process = await ElasticProcesses(shards=1).join()
        process.store.is_cut = True
        await asyncio.sleep(0.1)
        leased = process.fetcher.leased
        loop, clock = asyncio.get_running_loop(), CountingClock()
        leased.permission = WritePermission(clock, 30)
        before = leased.may_write_now()
        leased.permission.confirm(leased.permission.send_time())
        clock.asked = 0
        given = [leased.may_write_now() for _ in range(100)]
        asked = clock.asked
        loop.suspend(600)
        after = leased.may_write_now()
        leased.permission.confirm(leased.permission.send_time())
        again = leased.may_write_now()
        leased.permission = WritePermission(clock, 30)
        await process.kill()
        return before, all(given), asked, after, again, leased.may_write_now()

    assert run_virtual(story()) == (False, True, 1, False, True, False)
