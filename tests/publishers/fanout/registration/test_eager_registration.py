"""register_eagerly: registration from synchronous code, with the ARNs added to the properties (F8)."""

import asyncio

from recordpublisher.publishers.fanout import register_eagerly
from recordpublisher.publishers.properties.properties import Properties

from fakes.fanout_service import ARN, EFO, STREAM_ARN, ScriptedPorts

EAGER = Properties({**EFO, "flink.stream.efo.registration": "EAGER"})


def test_the_returned_properties_contain_the_consumers_arns():
    ports = ScriptedPorts()
    assert register_eagerly(EAGER, ["orders"], ports=ports)["flink.stream.efo.consumerarn.orders"] == ARN
    assert ports.consumers.calls == ["stream", "describe", "register"]
    assert ports.closed == 0


def test_streams_may_be_arns():
    ports = ScriptedPorts()
    assert register_eagerly(EAGER, [STREAM_ARN], ports=ports)["flink.stream.efo.consumerarn.orders"] == ARN


def test_it_works_inside_a_running_loop():
    async def main():
        return register_eagerly(EAGER, ["orders"], ports=ScriptedPorts())

    assert asyncio.run(main())["flink.stream.efo.consumerarn.orders"] == ARN


def test_a_job_with_the_returned_properties_registers_nothing():
    ports = ScriptedPorts()
    given = register_eagerly(EAGER, ["orders"], ports=ports)
    calls = list(ports.consumers.calls)
    assert register_eagerly(given, ["orders"], ports=ports) == given
    assert ports.consumers.calls == calls


def test_lazy_properties_are_returned_unchanged():
    ports = ScriptedPorts()
    lazy = Properties(EFO)
    assert register_eagerly(lazy, ["orders"], ports=ports) is lazy
    assert ports.consumers.calls == []
