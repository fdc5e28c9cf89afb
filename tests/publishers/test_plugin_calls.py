"""A call of a plugin's method that hangs, fails or raises what is not an error is named with the method and its line."""

import asyncio
import gc
import re
from contextlib import suppress

import pytest

from recordpublisher.publishers.base import RecordPublisherFactory, shards_listed_by
from recordpublisher.publishers.errors import PluginError, RetriesExhaustedError, TransientError
from recordpublisher.publishers.retry import RetryPolicy, call_with_retries
from recordpublisher.publishers.shards import Shard
from recordpublisher.publishers.user_code import LEFT_BEHIND, PluginCall, close_or_leave, slow_calls
from recordpublisher.testing.virtual_time import run_virtual


class MyBase(BaseException):
    pass


class Plugin:
    async def hang(self):
        await asyncio.sleep(1e9)

    async def close(self):
        await self.hang()


async def wait_in_our_code():
    """Wait in a function of this package."""
    policy = RetryPolicy(1, 60_000, 60_000, 1.0)

    async def fail():
        raise TransientError("busy")

    with suppress(RetriesExhaustedError):
        await call_with_retries(fail, policy, min_pause=lambda error: 60.0)


async def call(plugin, seconds, count=1):
    async def one():
        with PluginCall(plugin, "hang", "orders"):
            await plugin.hang()

    calls = [asyncio.create_task(one()) for _ in range(count)]
    await asyncio.sleep(seconds)
    slow = slow_calls(plugin)
    for each in calls:
        each.cancel()
    await asyncio.wait(calls)
    return slow, slow_calls(plugin)


def test_a_call_that_does_not_return_is_logged_with_its_line_after_pauses_that_double(caplog):
    run_virtual(call(Plugin(), 75))
    assert [re.sub(r"\S+(test_\w+\.py):\d+", r"\1", line) for line in caplog.messages] == [
        f"`Plugin.hang` for orders has not returned for {seconds} s: it waits at test_plugin_calls.py (hang)"
        for seconds in (10, 20, 40)
    ]


def test_many_calls_of_one_method_that_do_not_return_are_logged_as_one(caplog):
    run_virtual(call(Plugin(), 15, count=50))
    assert len(caplog.messages) == 1


def test_a_call_is_slow_until_it_has_ended():
    slow, after = run_virtual(call(Plugin(), 15))
    assert (len(slow), after) == (1, [])


def test_a_call_that_waits_in_code_of_this_library_logs_nothing(caplog):
    async def main():
        with PluginCall(Plugin(), "open"):
            await asyncio.sleep(15)

    run_virtual(main())
    assert caplog.messages == []


def test_a_plugin_that_waits_in_a_call_of_this_library_logs_nothing(caplog):
    class Wraps(Plugin):
        async def hang(self):
            await wait_in_our_code()

    run_virtual(call(Wraps(), 15))
    assert caplog.messages == []


def test_a_call_that_is_used_again_is_timed_anew(caplog):
    async def main():
        plugin = Plugin()
        used = PluginCall(plugin, "hang")
        for seconds in (6, 6, 12):
            with used, suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await plugin.hang()

    run_virtual(main())
    assert [line.partition(":")[0] for line in caplog.messages] == ["`Plugin.hang` has not returned for 10 s"]


async def fail(error):
    with PluginCall(Plugin(), "open"):
        raise error


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (asyncio.CancelledError(), "`Plugin.open` raised CancelledError, but nothing has cancelled its task"),
        (
            MyBase("boom"),
            r"`Plugin.open` raised MyBase: boom at \S+test_plugin_calls.py:\d+ \(fail\): raise a subclass",
        ),
        (
            GeneratorExit(),
            r"`Plugin.open` raised GeneratorExit at \S+test_plugin_calls.py:\d+ \(fail\): raise a subclass",
        ),
    ],
)
async def test_an_exception_that_would_end_the_task_without_a_word_is_an_error_of_the_plugin(raised, words):
    with pytest.raises(PluginError, match=words):
        await fail(raised)


@pytest.mark.parametrize("is_raised_again", [False, True])
async def test_a_call_whose_coroutine_is_closed_raises_nothing(is_raised_again):
    async def hang():
        try:
            await asyncio.Event().wait()
        except GeneratorExit:
            if is_raised_again:
                raise

    async def call():
        with PluginCall(Plugin(), "open"):
            await hang()

    running = call()
    running.send(None)
    running.close()
    assert running.cr_frame is None


async def test_a_cancellation_of_the_task_passes():
    task = asyncio.create_task(call(Plugin(), 60))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_interrupt_passes_and_is_logged_with_its_line(caplog):
    with pytest.raises(KeyboardInterrupt):
        await fail(KeyboardInterrupt())
    assert re.search(r"`Plugin.open` raised KeyboardInterrupt at \S+:\d+ \(fail\), which ends", caplog.text)


def test_a_close_that_hangs_is_left_after_its_time_with_its_line(caplog):
    async def main():
        await close_or_leave(Plugin(), 2)
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 2
    (line,) = caplog.messages
    assert re.match(r"`Plugin\.close` has not ended after 2 s .*, and waits at \S+:\d+ \(hang\): the job ends", line)


def test_a_close_that_swallows_its_cancellation_is_left_behind():
    class Stubborn(Plugin):
        async def hang(self):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1e9)
            await asyncio.sleep(60)

    async def main():
        before = set(LEFT_BEHIND)
        await close_or_leave(Stubborn(), 2)
        left = LEFT_BEHIND - before
        await asyncio.wait(left)
        LEFT_BEHIND.difference_update(left)
        return len(left)

    assert run_virtual(main()) == 1


def test_a_close_that_fails_names_the_class():
    class Broken(Plugin):
        async def hang(self):
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError) as caught:
        run_virtual(close_or_leave(Broken(), 2))
    assert caught.value.__notes__ == ["`Broken.close` failed"]


class Listing(RecordPublisherFactory):
    def __init__(self, *shards):
        self.shards = shards

    async def create(self, shard, starting_position, metrics):
        raise NotImplementedError

    async def discover(self, stream):
        return self.shards


async def test_shards_that_name_each_other_as_parents_are_refused():
    shards = [Shard("orders", "a", ("b",)), Shard("orders", "b", ("a",)), Shard("orders", "c", ("a", "gone"))]
    with pytest.raises(
        PluginError,
        match=r"Listing\.discover returned shards of orders whose parents form a cycle: (a, b, a|b, a, b)\. ",
    ):
        await shards_listed_by(Listing(*shards), "orders")


@pytest.mark.parametrize(
    ("shard", "words"),
    [
        (Shard("orders", "a/b"), r"a shard of orders with the id 'a/b': an id is a text without `/`"),
        (Shard("orders", ""), r"a shard of orders with the id ''"),
        (Shard("orders", 7), r"a shard of orders with the id 7"),
        (Shard("orders", "a", "b"), r"orders/a with `parents='b'`: write `parents=\('b',\)`"),
    ],
)
async def test_a_shard_whose_names_would_be_misread_is_refused(shard, words):
    with pytest.raises(PluginError, match=rf"Listing\.discover returned {words}"):
        await shards_listed_by(Listing(shard), "orders")


def test_the_default_order_of_other_sequence_numbers_says_what_to_override():
    with pytest.raises(
        ValueError, match="'abc' is not a whole number, so it cannot be ordered: override `order_of` of Listing"
    ):
        Listing().order_of("abc")


async def test_a_close_that_fails_after_it_was_given_up_leaves_no_message_of_asyncio(caplog):
    class FailsAtItsEnd:
        async def close(self):
            try:
                await asyncio.Event().wait()
            finally:
                raise RuntimeError("the connection is lost")

    await close_or_leave(FailsAtItsEnd(), 0.01)
    gc.collect()

    assert [record.name for record in caplog.records if record.levelname == "ERROR"] == ["recordpublisher.run"]
    assert "FailsAtItsEnd.close" in caplog.text


class Stops(RecordPublisherFactory):
    lists_shards = True

    def __init__(self):
        pass

    async def create(self, shard, starting_position, metrics):
        raise NotImplementedError

    async def discover(self, stream):
        raise StopIteration


async def test_a_stop_iteration_is_named_although_python_replaces_it():
    with pytest.raises(RuntimeError) as caught:
        await shards_listed_by(Stops(), "orders")
    frames = caught.value.__traceback__.tb_next
    assert caught.value.with_traceback(frames).__notes__ == ["`Stops.discover` for orders failed"]
