"""The callback sink: a function is called with each batch, in a thread or awaited."""

import sys
import threading

import pytest

import recordpublisher as rp
from recordpublisher.plugins.sinks.callback import CallbackSink

from fakes.batches import batch


async def test_a_plain_function_may_block_without_holding_the_loop():
    seen = []
    await CallbackSink(function=lambda one: seen.append((list(one.data), threading.current_thread()))).write(
        batch(b"a")
    )

    assert seen[0][0] == [b"a"]
    assert seen[0][1] is not threading.current_thread()


async def test_a_coroutine_function_is_awaited():
    seen = []

    async def take(one):
        seen.append(list(one.data))

    await CallbackSink(function=take).write(batch(b"a"))
    assert seen == [[b"a"]]


def test_a_function_in_the_place_of_the_properties_is_told_where_it_belongs():
    with pytest.raises(rp.ConfigurationError, match=r"'properties' is '<built-in .*. Valid: CallbackSink\(function="):
        CallbackSink(print)


async def test_an_error_of_the_function_is_raised():
    def fail(one):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await CallbackSink(function=fail).write(batch(b"a"))


async def test_what_a_plain_function_returns_is_awaited():
    seen = []

    async def take(one):
        seen.append(list(one.data))

    await CallbackSink(function=lambda one: take(one)).write(batch(b"a"))  # noqa: PLW0108 - a plain function
    assert seen == [[b"a"]]


@pytest.mark.parametrize("raised", [StopIteration, SystemExit])
async def test_a_plain_function_that_raises_what_would_end_python_ends_the_write(raised):
    def stop(one):
        raise raised(3)

    with pytest.raises(RuntimeError, match=f"raised {raised.__name__}: 3"):
        await CallbackSink(function=stop).write(batch(b"a"))


def test_a_generator_is_refused():
    def take(one):
        yield one

    with pytest.raises(rp.ConfigurationError, match="it is a generator"):
        CallbackSink(function=take)


async def test_the_function_is_found_by_its_name(tmp_path, monkeypatch):
    (tmp_path / "user_functions.py").write_text("seen = []\ndef take(batch):\n    seen.append(len(batch))\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    await CallbackSink(rp.Properties({"flink.sink.callback.function": "user_functions:take"})).write(batch(b"a", b"b"))
    assert sys.modules["user_functions"].seen == [2]


@pytest.mark.parametrize(
    "path", [None, "no_such_module_here:f", "json:no_such_function", "json", "json:__name__", "json:JSONDecoder"]
)
def test_a_missing_function_is_a_configuration_error(path):
    with pytest.raises(rp.ConfigurationError, match=r"flink\.sink\.callback\.function"):
        CallbackSink(rp.Properties({"flink.sink.callback.function": path}))
