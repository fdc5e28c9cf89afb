"""ReadTasks: what a reader logs names its shard; one that goes back ends the job."""

import json
import logging

import pytest

from recordpublisher.cli.logs import JsonLines
from recordpublisher.fetcher.pipeline.bounds import Bounds
from recordpublisher.publishers.errors import DeserializationError, PluginError
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.testing.virtual_time import EPOCH_MS, run_virtual

from fakes.scripted_source import RecordingSink, ScriptedSource, read

log = logging.getLogger("recordpublisher.test")


class LoggingSource(ScriptedSource):
    """A source whose publishers log a line when they are created."""

    async def create(self, shard, starting_position, metrics):
        log.warning("created")
        return await super().create(shard, starting_position, metrics)


class Lines(logging.Handler):
    """Keeps each line as the command line writes it."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(json.loads(JsonLines().format(record)))


def test_each_line_of_a_reader_has_its_stream_and_shard_and_so_has_the_line_of_its_end(caplog):
    source, handler = LoggingSource(), Lines()
    source.add("0", EPOCH_MS)
    source.split("0", "1", "2")
    logger = logging.getLogger("recordpublisher")
    logger.addHandler(handler)
    try:
        with caplog.at_level(logging.INFO, "recordpublisher"):
            run_virtual(read(source, RecordingSink()))
    finally:
        logger.removeHandler(handler)

    shown = [(line["message"].split(",")[0], line.get("stream"), line.get("shard")) for line in handler.lines]
    assert sorted(row for row in shown if row[0] == "created") == [("created", "s", each) for each in "012"]
    assert ("shard s/0 has ended", "s", "0") in shown


class ForgetfulSource(ScriptedSource):
    """A plugin whose publishers begin at the beginning, whatever their starting position."""

    def __init__(self):
        super().__init__(per_read=5)
        self.orders = 0

    async def create(self, shard, starting_position, metrics):
        return await super().create(shard, StartingPosition.trim_horizon(), metrics)

    def order_of(self, sequence):
        self.orders += 1
        return int(sequence)


def test_a_publisher_that_ignores_where_it_resumes_ends_the_job():  # P1
    source, again = ForgetfulSource(), RecordingSink()
    source.add("0", *range(EPOCH_MS, EPOCH_MS + 20))

    async def job():
        fetcher, _ = await read(source, RecordingSink(), Bounds(max_records=10))
        await read(source, again, restore=(fetcher.snapshot(),))

    with pytest.raises(
        PluginError, match="ScriptedPublisher goes back in s/0: after the position 9 it gave 5 records from 0 on"
    ):
        run_virtual(job())
    assert again.rows == []


class BrokenSource(ScriptedSource):
    """A plugin that loses its connection: when a publisher is created, or while it runs."""

    def __init__(self, at_once):
        super().__init__(per_read=5)
        self.at_once = at_once

    async def create(self, shard, starting_position, metrics):
        made = await super().create(shard, starting_position, metrics)
        if self.at_once:
            raise ConnectionError("broken pipe to source")
        made.run = self.run
        return made

    async def run(self, consumer):
        raise ConnectionError("broken pipe to source")


@pytest.mark.parametrize("at_once", [True, False])
def test_an_error_of_a_publisher_names_it_and_its_shard(at_once):
    source = BrokenSource(at_once)
    source.add("0", EPOCH_MS)
    with pytest.raises(ConnectionError) as raised:
        run_virtual(read(source, RecordingSink()))
    assert raised.value.__notes__ == ["the publisher of BrokenSource for s/0 failed"]


def test_an_error_of_what_takes_its_batches_is_not_the_publishers():
    source = ForgetfulSource()
    source.add("0", "no time")
    with pytest.raises(DeserializationError) as raised:
        run_virtual(read(source, RecordingSink()))
    assert not hasattr(raised.value, "__notes__")


def test_positions_are_compared_for_each_batch_and_not_for_each_record():
    source = ForgetfulSource()
    source.add("0", *range(EPOCH_MS, EPOCH_MS + 1000))
    source.per_read = 500
    run_virtual(read(source, RecordingSink()))
    assert 0 < source.orders <= 8
