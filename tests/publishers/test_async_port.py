"""A class of a plugin whose methods or attributes cannot be used as those of its port is refused when it is defined."""

import functools
import re

import pytest

import recordpublisher as rp
from recordpublisher.publishers.async_port import AsyncPort


def refused(words, base, **members):
    with pytest.raises(TypeError, match=re.escape(f"Mine.{words}")):
        type("Mine", (base,), members)


def test_a_method_that_is_not_async_is_refused_with_its_class():
    def write(self, batch): ...

    refused("write must be async: write `async def write`", rp.Sink, write=write)


def test_a_method_that_yields_is_refused():
    async def write(self, batch):
        yield batch

    refused("write must be async: write `async def write`, without `yield`", rp.Sink, write=write)


async def answer(self, *given, **named): ...


def steps(self, *given, **named):
    yield given


async def async_steps(self, *given, **named):
    yield given


@pytest.mark.parametrize("function", [answer, steps, async_steps])
@pytest.mark.parametrize(
    ("port", "method"),
    [
        (rp.Sink, "has_room"),
        (rp.Sink, "shard_started"),
        (rp.Sink, "exported_metrics"),
        (rp.Sink, "revoked"),
        (rp.RecordPublisherFactory, "prepare"),
        (rp.RecordPublisherFactory, "order_of"),
        (rp.RecordPublisher, "set_read_budget"),
        (rp.QueueSource, "checks"),
    ],
)
def test_a_method_that_would_not_be_awaited_is_refused(port, method, function):
    refused(f"{method} must be a plain method, because it is not awaited", port, **{method: function})


def test_a_class_method_that_would_not_be_awaited_is_refused():
    refused("check must be a plain method", rp.RecordPublisherFactory, check=classmethod(answer))


def test_a_method_in_place_of_a_class_method_is_refused():
    def check(self, properties, streams): ...

    refused("check must be a class method: write `@classmethod`", rp.RecordPublisherFactory, check=check)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("destination", property(lambda self: "here"), "must be a method, because it is called: remove the decorator"),
        ("destination", "here", "is 'here', and must be a method"),
        ("flush", None, "is None, and must be a method"),
        ("tells_done", lambda self: True, "must be a value, because it is not called"),
        ("tells_done", "no", "is 'no', and must be True or False"),
    ],
)
def test_an_attribute_of_another_kind_is_refused(name, value, words):
    refused(f"{name} {words}", rp.Sink, **{name: value})


@pytest.mark.parametrize("value", [None, "30", True])
def test_a_number_of_another_type_is_refused(value):
    refused(f"visibility_seconds is {value!r}, and must be a number", rp.QueueSource, visibility_seconds=value)


def test_a_method_in_place_of_a_property_is_refused():
    refused("lists_shards must be a value", rp.RecordPublisherFactory, lists_shards=lambda self: False)


@pytest.mark.parametrize(
    ("method", "own", "shown"),
    [
        ("open", "async def open(self)", "async def open(self, context)"),
        ("flush", "async def flush(self)", "async def flush(self, checkpoint=None)"),
        (
            "shard_started",
            "def shard_started(self, shard)",
            "def shard_started(self, shard, start, *, follows_parents)",
        ),
        ("write", "async def write(batch)", "async def write(self, batch)"),
        ("write", "async def write(self, batch, more)", "async def write(self, batch)"),
    ],
)
def test_a_method_with_other_parameters_is_refused_with_the_right_ones(method, own, shown):
    made = {}
    exec(f"{own}: ...", made)
    refused(
        f"{method} does not have the parameters with which it is called: write `{shown}`",
        rp.Sink,
        **{method: made[method]},
    )


def test_other_names_more_defaults_and_decorators_are_accepted():
    def counted(function):
        return functools.wraps(function)(lambda *given: function(*given))  # noqa: PLW0108 - a plain function

    class Sink(rp.Sink):
        tells_done = property(lambda self: True)

        async def open(self, ctx, retries=3): ...

        @counted
        async def write(self, records): ...

        async def flush(self, *given): ...

        def shard_started(self, *given, **named): ...

        exported_metrics = staticmethod(lambda: [])

    class Factory(rp.RecordPublisherFactory):
        lists_shards = True
        keyless = True

        @staticmethod
        def check(properties, streams): ...

    assert Sink().tells_done


def test_a_class_of_the_user_may_replace_the_methods_of_its_own_base():
    class Base(AsyncPort):
        def load(self): ...

    class Mine(Base):
        async def load(self, name): ...

    assert issubclass(Mine, Base)


@pytest.mark.parametrize(
    "port", [rp.Sink, rp.RecordPublisher, rp.RecordPublisherFactory, rp.ConditionalStore, rp.MetricsExporter]
)
def test_the_ports_of_plugins_are_checked(port):
    assert issubclass(port, AsyncPort)
