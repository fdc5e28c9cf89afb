"""A sink that is built for dead letters fails with the keys that its user has set."""

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.pipeline.dead_letter_handler import DeadLetterHandler
from recordpublisher.fetcher.sink import SinkContext
from recordpublisher.publishers.properties.groups.job import OnBadRecord

from fakes.batches import batch


class MisconfiguredSink(rp.Sink):
    """It fails in one of its calls."""

    def __init__(self, call):
        self._call = call

    def _fail_in(self, call):
        if call == self._call:
            reason = "flink.sink.sql.columns is AUTO"
            raise rp.ConfigurationError("flink.sink.sql.uri", "x", "a database, or flink.sink.sql.table", reason=reason)

    async def open(self, context):
        self._fail_in("open")

    async def write(self, batch):
        self._fail_in("write")

    async def flush(self, checkpoint=None):
        self._fail_in("flush")


@pytest.mark.parametrize("call", ["open", "write", "flush"])
async def test_the_keys_are_those_of_the_dead_letter_sink(call):
    handler = DeadLetterHandler(lambda shard, counter: None, OnBadRecord.DEAD_LETTER, MisconfiguredSink(call))

    async def use():
        await handler.open(SinkContext())
        await handler.handle_rejected(batch(b"a"), "why")

    with pytest.raises(rp.ConfigurationError) as raised:
        await use()

    assert raised.value.key == "flink.deadletter.sql.uri"
    assert "flink.sink." not in str(raised.value)
