"""Lists a folder as a stream: every file is a closed shard."""

import asyncio
from itertools import islice
from pathlib import Path

import recordpublisher as rp
from recordpublisher.publishers.properties import integer, text

from .lines import LinesPublisher

FOLDER = text("flink.lines.folder", "The folder that holds one folder for each stream.", group="Lines")
BATCH = integer("flink.lines.batch", "Lines in a batch.", 100, 1, unit="records", group="Lines")


class LinesFactory(rp.RecordPublisherFactory):
    """Lists the files of a stream and makes their readers."""

    def __init__(self, properties: rp.Properties) -> None:
        folder = properties.value(FOLDER)
        if folder is None:
            raise rp.ConfigurationError(FOLDER.key, valid=FOLDER.valid)
        self._folder = Path(folder)
        self._batch = properties.value(BATCH)

    async def create(
        self, shard: rp.Shard, starting_position: rp.StartingPosition, metrics: rp.ShardMetrics
    ) -> LinesPublisher:
        file = self._folder / shard.stream / shard.shard_id
        place = await asyncio.to_thread(_place_of, starting_position, file)
        return LinesPublisher(shard, file, place, self._batch, metrics)

    async def discover(self, stream: str) -> list[rp.Shard]:
        folder = self._folder / stream
        if not folder.is_dir():
            raise rp.StreamNotFoundError(stream)
        names = sorted(file.name for file in folder.iterdir())
        return [rp.Shard(stream, name, closed=True) for name in names]


def _place_of(start: rp.StartingPosition, file: Path) -> tuple[int, int]:
    """Return how many lines, and how many bytes, come before a start. Lines arrive when their file is changed.

    A job turns LATEST into a time. Where LATEST itself arrives, as in tests, it comes after every line.
    """
    arrived_later = start.timestamp_ms is not None and file.stat().st_mtime * 1000 >= start.timestamp_ms
    count = None  # all lines of the file
    if start.type is rp.PositionType.AFTER_SEQUENCE_NUMBER:
        count = int(start.sequence_number or 0)
    elif start.type is rp.PositionType.AT_SEQUENCE_NUMBER:  # as `recordpublisher tail --from` gives it
        count = int(start.sequence_number or 1) - 1
    elif start.type is rp.PositionType.TRIM_HORIZON or arrived_later:
        count = 0
    with file.open("rb") as lines:
        sizes = [len(line) for line in islice(lines, count)]
    return len(sizes), sum(sizes)
