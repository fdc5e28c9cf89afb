"""ReadTasks: what a reader logs names its shard."""

import json
import logging

from recordpublisher.cli.logs import JsonLines
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
