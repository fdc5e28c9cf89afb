"""Where the driver listens for its fetchers."""

from __future__ import annotations

import socket

import pytest
from spool_model import MemoryObjects, opened

from recordpublisher.plugins.sinks.spark.spool.switchboard import Switchboard, checked_port
from recordpublisher.plugins.spark.options import SparkOptions
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.table import TRACKER_ADDRESS

OPTIONS = SparkOptions.parse({"stream": "s", "metadataLocation": "/spool", "mode": "continuous"})


@pytest.mark.parametrize("bind", ["192.0.2.1", "no-such-host.invalid"])
async def test_c2_an_address_that_is_not_the_drivers_names_the_setting(bind):
    board = Switchboard("driver", bind, lambda: None)
    try:
        with pytest.raises(ConfigurationError, match=rf"spark.driver.bindAddress.*{bind}.*valid: an address of"):
            await board.open(OPTIONS, await opened(MemoryObjects(), 1))
    finally:
        await board.close()


def two_free_ports():
    """One that was free with the next one; asked for below the range that the system draws from."""
    for port in range(20_000, 30_000, 2):
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
    raise AssertionError("no free ports")


async def test_a_port_that_is_named_is_the_lifelines_and_the_next_one_the_trackers():
    port = two_free_ports()
    board = Switchboard("127.0.0.1", "127.0.0.1", lambda: None, port)
    try:
        job = await board.open(OPTIONS, await opened(MemoryObjects(), 1))
        assert job.port == port
        assert job.options.properties.value(TRACKER_ADDRESS) == f"127.0.0.1:{port + 1}"
    finally:
        await board.close()


@pytest.mark.parametrize("taken", [0, 1])
async def test_c2_a_port_that_is_taken_is_named(taken):
    port = two_free_ports()
    with socket.create_server(("127.0.0.1", port + taken)):
        board = Switchboard("127.0.0.1", "127.0.0.1", lambda: None, port)
        try:
            with pytest.raises(ConfigurationError, match=rf"'port' has the value {port + taken}.*in use.*valid"):
                await board.open(OPTIONS, await opened(MemoryObjects(), 1))
        finally:
            await board.close()


@pytest.mark.parametrize("wrong", [-1, 65_535, "7070", True, 1.5])
def test_c2_what_is_no_port(wrong):
    with pytest.raises(ConfigurationError, match=r"'port' has the value .*valid: a number from 1 to 65534"):
        checked_port(wrong)
