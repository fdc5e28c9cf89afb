"""A call of a plugin whose code has forgotten an `await` fails, because its work was not done."""

import asyncio
import gc
import re
import warnings

import pytest

from recordpublisher.publishers.errors import PluginError
from recordpublisher.publishers.user_code import PluginCall, notice_unawaited_calls


class Base:
    async def write(self, batch):
        await asyncio.sleep(0)


class Forgets(Base):
    async def write(self, batch):
        super().write(batch)


class Forgets_and_fails(Base):  # noqa: N801 - read in a message
    async def write(self, batch):
        super().write(batch)
        raise OSError("no disk")


@pytest.fixture(autouse=True)
def shown():
    """Show warnings instead of raising them, and notice them as a job does."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        notice_unawaited_calls()
        yield found


async def write(plugin):
    with PluginCall(plugin, "write", "orders/a"):
        await plugin.write(None)


@pytest.mark.parametrize("start", [1, 2])
async def test_a_forgotten_await_ends_the_call_with_its_line_at_each_start(start):
    with pytest.raises(PluginError) as caught:
        await write(Forgets())
    assert re.fullmatch(
        r"`Forgets.write` for orders/a has not awaited a call, so its work was not done: coroutine 'Base.write' was never awaited "
        r"\(\S+test_unawaited_calls.py:\d+\); write `await`",
        str(caught.value),
    )


async def test_python_still_shows_the_warning(shown):
    with pytest.raises(PluginError):
        await write(Forgets())
    assert [str(each.message) for each in shown] == ["coroutine 'Base.write' was never awaited"]


async def test_an_error_of_the_call_itself_is_kept():
    with pytest.raises(OSError, match="no disk"):
        await write(Forgets_and_fails())


async def test_a_later_call_of_the_same_object_is_not_blamed():
    call, plugin = PluginCall(Forgets(), "write"), Forgets()
    with pytest.raises(PluginError), call:
        await plugin.write(None)
    with call:
        await asyncio.sleep(0)


async def test_code_of_others_is_not_blamed_on_the_plugin():
    namespace = {}
    exec(compile("async def work(): ...\ndef forget(): work()", "/elsewhere/library.py", "exec"), namespace)
    with PluginCall(Base(), "write"):
        namespace["forget"]()
        gc.collect()


async def test_another_task_is_not_blamed_on_the_call():
    async def forget():
        Base().write(None)

    with PluginCall(Base(), "write"):
        await asyncio.create_task(forget())
