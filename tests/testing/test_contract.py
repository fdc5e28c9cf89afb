"""The deadline of contracts: it names the line of the plugin that hangs, wherever it hangs."""

import asyncio
import signal
import time
from contextlib import asynccontextmanager, suppress

import pytest

from recordpublisher.testing import Contract, run_virtual
from recordpublisher.testing.contract import on_case


class Plugin:
    """Hangs in one of its methods, as the plugin of an author would."""

    async def open(self):
        pass

    async def work(self):
        pass

    async def close(self):
        pass


class Fine(Contract):
    plugin = Plugin

    @asynccontextmanager
    async def open_case(self):
        plugin = self.plugin()
        await plugin.open()
        yield plugin
        await plugin.close()

    @on_case
    async def test_it_works(self, case):
        """Check that it works.

        It does so at once.
        """
        await case.work()


class OnVirtualTime(Fine):
    def execute(self, work):
        run_virtual(work)


class HangsWhenOpened(Plugin):
    async def open(self):
        await asyncio.sleep(1e9)


class HangsAtWork(Plugin):
    async def work(self):
        await asyncio.sleep(1e9)


class HangsWhenClosed(Plugin):
    async def close(self):
        await asyncio.sleep(1e9)


@pytest.mark.parametrize(
    ("broken", "step", "method"),
    [
        (HangsWhenOpened, "opening the case", "open"),
        (HangsAtWork, "the test", "work"),
        (HangsWhenClosed, "closing the case", "close"),
    ],
)
def test_each_step_has_the_deadline_and_the_line_of_the_plugin_is_named(broken, step, method):
    contract = OnVirtualTime()
    contract.plugin = broken

    with pytest.raises(
        AssertionError, match=rf"{step} has not ended after 10 s: .* at \S+test_contract.py:\d+ \({method}\)"
    ):
        contract.test_it_works()


class SlowInEachStep(Plugin):
    async def open(self):
        await asyncio.sleep(9)

    async def work(self):
        await asyncio.sleep(9)

    async def close(self):
        await asyncio.sleep(9)


def test_the_steps_do_not_share_the_deadline():
    contract = OnVirtualTime()
    contract.plugin = SlowInEachStep

    contract.test_it_works()


class FailsAtWork(Plugin):
    async def work(self):
        raise KeyError("k")


class FailsWhenOpened(Plugin):
    async def open(self):
        raise KeyError("k")


def test_an_error_of_the_plugin_has_the_rule_that_the_test_checks():
    contract = Fine()
    contract.plugin = FailsAtWork

    with pytest.raises(KeyError) as raised:
        contract.test_it_works()

    assert raised.value.__notes__ == ["test_it_works: Check that it works.\n\nIt does so at once."]


def test_an_error_of_the_case_has_no_rule():
    contract = Fine()
    contract.plugin = FailsWhenOpened

    with pytest.raises(KeyError) as raised:
        contract.test_it_works()

    assert not hasattr(raised.value, "__notes__")


class BlocksAtWork(Plugin):
    async def work(self):
        time.sleep(60)  # noqa: ASYNC251 - this is the fault


class BlocksWhenClosed(Plugin):
    async def close(self):
        time.sleep(60)  # noqa: ASYNC251


class SwallowsTheInterruption(Plugin):
    async def work(self):
        try:
            time.sleep(60)  # noqa: ASYNC251
        except AssertionError:
            return


@pytest.mark.parametrize(
    ("broken", "method"), [(BlocksAtWork, "work"), (BlocksWhenClosed, "close"), (SwallowsTheInterruption, "work")]
)
def test_a_blocked_loop_fails_at_the_line_that_blocks(broken, method):
    contract = Fine()
    contract.plugin, contract.deadline = broken, 0.2
    handler, began = signal.getsignal(signal.SIGALRM), time.monotonic()

    with pytest.raises(
        AssertionError, match=rf"blocked the event loop for 0.2 s: .* It is at \S+test_contract.py:\d+ \({method}\)"
    ):
        contract.test_it_works()

    assert time.monotonic() - began < 30
    assert signal.getsignal(signal.SIGALRM) is handler


class HangsInAThread(Plugin):
    async def work(self):
        await asyncio.to_thread(time.sleep, 3)


def test_a_thread_that_does_not_return_does_not_delay_the_end_of_a_test():
    contract, began = Fine(), time.monotonic()
    contract.plugin, contract.deadline = HangsInAThread, 0.2

    with pytest.raises(AssertionError, match=r"the test has not ended after 0.2 s"):
        contract.test_it_works()
    assert time.monotonic() - began < 2.5


class RetriesWhateverItCatches(Plugin):
    async def work(self):
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with suppress(Exception):
                time.sleep(5)  # noqa: ASYNC251 - it blocks on purpose


def test_a_call_that_blocks_again_after_each_error_fails_the_test():
    contract, began = Fine(), time.monotonic()
    contract.plugin, contract.deadline = RetriesWhateverItCatches, 0.2

    with pytest.raises(AssertionError, match="a call has blocked the event loop"):
        contract.test_it_works()
    assert time.monotonic() - began < 10
