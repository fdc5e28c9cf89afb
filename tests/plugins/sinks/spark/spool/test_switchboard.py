"""Where the driver listens for its fetchers."""

from __future__ import annotations

import pytest
from spool_model import MemoryObjects, opened

from recordpublisher.plugins.sinks.spark.options import SparkOptions
from recordpublisher.plugins.sinks.spark.spool.switchboard import Switchboard
from recordpublisher.publishers.errors import ConfigurationError

OPTIONS = SparkOptions.parse({"stream": "s", "metadataLocation": "/spool", "mode": "continuous"})


@pytest.mark.parametrize("bind", ["192.0.2.1", "no-such-host.invalid"])
async def test_c2_an_address_that_is_not_the_drivers_names_the_setting(bind):
    board = Switchboard("driver", bind, lambda: None)
    try:
        with pytest.raises(ConfigurationError, match=rf"spark.driver.bindAddress.*{bind}.*valid: an address of"):
            await board.open(OPTIONS, await opened(MemoryObjects(), 1))
    finally:
        await board.close()
