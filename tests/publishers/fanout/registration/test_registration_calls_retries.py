"""Each call of a registration is retried by its own properties only (F8)."""

import pytest

from recordpublisher.publishers.errors import RetriesExhaustedError
from recordpublisher.publishers.fanout.config import FanOutConfig
from recordpublisher.publishers.fanout.registration.registration_calls import RegistrationCalls
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.fanout_service import EFO, STREAM_ARN, ScriptedPorts, network

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
