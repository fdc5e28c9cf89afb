"""RegistrationCalls: one consumer is registered and deregistered while other processes do the same (F8)."""

import asyncio

import pytest

from recordpublisher.local import LocalKinesis
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import (
    ConsumerError,
    FatalKinesisError,
    ImpossibleStateError,
    ResourceInUseError,
    RetriesExhaustedError,
    StreamNotFoundError,
)
from recordpublisher.publishers.fanout.config import FanOutConfig
from recordpublisher.publishers.fanout.registration import RegistrationCalls
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.kinesis.ports import ConsumerDescription
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.fanout_service import EFO, STREAM_ARN, ScriptedPorts, network, throttled


def registration(ports, **properties):
    config = FanOutConfig.of(Properties({**EFO, **properties}))
    return RegistrationCalls(ports, config, VirtualClock(), lambda: 1.0)


async def active(ports, may_register=lambda: True, **properties):
    return await registration(ports, **properties).ensure_active(STREAM_ARN, "app", may_register)


def test_a_new_consumer_is_registered():
    ports = ScriptedPorts()
    assert run_virtual(active(ports)) == f"{STREAM_ARN}/consumer/app:1"
    assert ports.consumers.calls == ["describe", "register"]


def test_an_active_consumer_is_used_at_once():
    ports = ScriptedPorts()

    async def main():
        arn = ports.consumers.add("app")
        assert await active(ports) == arn
        assert VirtualClock().monotonic() == 0

    run_virtual(main())
    assert ports.consumers.calls == ["describe"]


def test_it_waits_with_backoff_until_the_consumer_is_active():
    ports = ScriptedPorts()
    ports.consumers.creating_seconds = 10

    async def main():
        await active(ports)
        assert VirtualClock().monotonic() == 2 + 3 + 4.5 + 5  # base 2 s, times 1.5, at most 5 s

    run_virtual(main())
    assert ports.consumers.calls == ["describe", "register", *["describe"] * 4]


def test_a_consumer_that_never_becomes_active_is_an_error_after_the_time_out():
    ports = ScriptedPorts()
    ports.consumers.creating_seconds = 1_000
    with pytest.raises(ConsumerError, match=r"Timeout waiting for stream consumer to become active: app on .*CREATING"):
        run_virtual(active(ports, **{"flink.stream.registerstreamconsumer.timeout": 10}))


def test_a_consumer_that_is_deleting_is_waited_for_and_registered_again():
    ports = ScriptedPorts()

    async def main():
        old = ports.consumers.add("app", gone_in=30)
        assert await active(ports) != old

    run_virtual(main())
    assert ports.consumers.count("register") == 1


def test_the_wait_for_a_deleting_consumer_does_not_shorten_the_wait_for_the_new_one():
    ports = ScriptedPorts()
    ports.consumers.creating_seconds = 50

    async def main():
        ports.consumers.add("app", gone_in=50)
        await active(ports)
        assert VirtualClock().monotonic() > 100

    run_virtual(main())


def test_many_workers_at_once_register_one_consumer():
    ports = ScriptedPorts()
    ports.consumers.creating_seconds = 10

    async def main():
        return await asyncio.gather(*[active(ports) for _ in range(50)])

    assert set(run_virtual(main())) == {f"{STREAM_ARN}/consumer/app:1"}


def test_contradicting_responses_end_in_the_time_out():
    """In use on register, not found on describe: the loop must not run for ever."""
    ports = ScriptedPorts()
    ports.consumers.errors["register"] = [ResourceInUseError("RegisterStreamConsumer", "R", "")] * 1_000
    with pytest.raises(ConsumerError, match="not there after 60 s"):
        run_virtual(active(ports))


def test_the_maximum_of_consumers_is_an_error_with_a_hint():
    ports = ScriptedPorts()
    ports.consumers.maximum = 0
    with pytest.raises(
        ConsumerError, match=f"'app'.*{STREAM_ARN} has its maximum of consumers.*deregister an unused one"
    ):
        run_virtual(active(ports))


def test_throttled_calls_are_retried():
    ports = ScriptedPorts()
    ports.consumers.errors = {call: [throttled()] * 3 for call in ("describe", "register")}
    run_virtual(active(ports))
    assert (ports.consumers.count("describe"), ports.consumers.count("register")) == (4, 4)


def test_retries_are_limited():
    ports = ScriptedPorts()
    ports.consumers.errors["describe"] = [throttled()] * 10
    with pytest.raises(RetriesExhaustedError):
        run_virtual(active(ports, **{"flink.stream.describestreamconsumer.maxretries": 2}))
    assert ports.consumers.count("describe") == 3


def test_access_denied_is_not_retried():
    ports = ScriptedPorts()
    ports.consumers.errors["register"] = [FatalKinesisError("RegisterStreamConsumer", "AccessDeniedException", "")]
    with pytest.raises(FatalKinesisError):
        run_virtual(active(ports))


def test_a_stopping_worker_never_registers():
    ports = ScriptedPorts()
    with pytest.raises(ConsumerError, match="stopping"):
        run_virtual(active(ports, may_register=lambda: False))
    assert ports.consumers.count("register") == 0


def test_f11_an_unknown_status_is_an_impossible_state():
    ports = ScriptedPorts()
    ports.consumers.find = lambda name: ConsumerDescription(name, "arn", "SLEEPING")
    with pytest.raises(ImpossibleStateError, match="SLEEPING"):
        run_virtual(active(ports))


def test_an_unknown_stream_is_an_error():
    with pytest.raises(StreamNotFoundError, match="oders"):
        run_virtual(registration(ScriptedPorts()).stream_arn("oders"))


@pytest.mark.parametrize("code", ["AccessDeniedException", "AccessDenied"])
def test_a_denied_stream_arn_says_which_action_is_needed_and_how_to_do_without(code):
    ports = ScriptedPorts()
    ports.consumers.errors = {"stream": [FatalKinesisError("DescribeStreamSummary", code, "user x is not authorized")]}
    with pytest.raises(FatalKinesisError, match=r"allow kinesis:DescribeStreamSummary .* by its ARN.*user x") as raised:
        run_virtual(registration(ports).stream_arn("orders"))
    assert (raised.value.api, raised.value.code) == ("DescribeStreamSummary", code)


def test_another_error_of_the_same_call_says_nothing_about_actions():
    ports = ScriptedPorts()
    ports.consumers.errors = {"stream": [FatalKinesisError("DescribeStreamSummary", "ValidationException", "no name")]}
    with pytest.raises(FatalKinesisError, match=r"ValidationException: no name$"):
        run_virtual(registration(ports).stream_arn("orders"))


@pytest.mark.parametrize("state", ["absent", "deleting"])
def test_a_missing_or_deleting_consumer_is_not_deregistered(state):
    ports = ScriptedPorts()

    async def main():
        if state == "deleting":
            ports.consumers.add("app", gone_in=30)
        await registration(ports).deregister(STREAM_ARN, "app")

    run_virtual(main())
    assert ports.consumers.calls == ["describe"]


def test_an_active_consumer_is_deregistered():
    ports = ScriptedPorts()

    async def main():
        ports.consumers.add("app")
        await registration(ports).deregister(STREAM_ARN, "app")
        assert ports.consumers.names == []

    run_virtual(main())


def test_a_consumer_that_another_process_has_just_deregistered_is_no_error():
    ports = ScriptedPorts()
    ports.consumers.errors["deregister"] = [
        ResourceInUseError("DeregisterStreamConsumer", "ResourceInUseException", "")
    ]

    async def main():
        ports.consumers.add("app")
        await registration(ports).deregister(STREAM_ARN, "app")

    run_virtual(main())
    assert ports.consumers.calls == ["describe", "deregister"]


# Each call of a registration is retried by its own properties only (F8).


KEYS = {
    "stream": "flink.stream.describe",
    "describe": "flink.stream.describestreamconsumer",
    "register": "flink.stream.registerstreamconsumer",
    "deregister": "flink.stream.deregisterstreamconsumer",
}


async def use(call, own_retries):
    """Let `call` fail twice; no other call is retried. Returns how often it was made."""
    ports = ScriptedPorts()
    retries = {f"{key}.maxretries": own_retries if name == call else 0 for name, key in KEYS.items()}
    registration = RegistrationCalls(
        ports, FanOutConfig.of(Properties({**EFO, **retries})), VirtualClock(), lambda: 1.0
    )
    if call == "deregister":
        ports.consumers.add("app")
    ports.consumers.errors = {call: [network(), network()]}
    match call:
        case "stream":
            await registration.stream_arn("orders")
        case "deregister":
            await registration.deregister(STREAM_ARN, "app")
        case _:
            await registration.ensure_active(STREAM_ARN, "app", lambda: True)
    return ports.consumers.count(call)


@pytest.mark.parametrize("call", KEYS)
def test_a_call_is_retried_as_often_as_its_own_property_allows(call):
    assert run_virtual(use(call, 2)) >= 3


@pytest.mark.parametrize("call", KEYS)
def test_a_call_is_not_retried_more_often(call):
    with pytest.raises(RetriesExhaustedError):
        run_virtual(use(call, 1))


@pytest.mark.parametrize("call", KEYS)
def test_the_waits_of_a_call_are_bounded_by_its_own_maximum(call):
    async def seconds():
        await use(call, 2)
        return VirtualClock().monotonic()

    policy = FanOutConfig.of(Properties(EFO)).retries
    longest = {
        "stream": policy.describe_stream,
        "describe": policy.describe_consumer,
        "register": policy.register,
        "deregister": policy.deregister,
    }[call]
    assert run_virtual(seconds()) <= 2 * longest.max_ms / 1000


# Tags of a registered consumer, through the real SDK.


def test_a_consumer_is_registered_with_its_tags():
    async def main():
        async with LocalKinesis(streams={"orders": 1}) as endpoint:
            tags = {"flink.stream.efo.consumername": "app", "flink.stream.efo.tags": "team=blue"}
            properties = Properties({**endpoint.properties(), **tags})
            client = KinesisClient(properties)
            calls = RegistrationCalls(client, FanOutConfig.of(properties), SystemClock())
            await calls.ensure_active(await calls.stream_arn("orders"), "app", lambda: True)
            await client.close()
            consumer = endpoint.stream("orders").consumers.find(name="app")
            assert consumer.tags.describe() == [{"Key": "team", "Value": "blue"}]

    asyncio.run(main())
