"""A job whose list of streams changes while it runs, and streams of which some do not exist."""

import asyncio

from recordpublisher.fetcher.shard_fetcher import build_fetcher
from recordpublisher.fetcher.shards.discovery import StreamList
from recordpublisher.publishers.errors import StreamNotFoundError
from recordpublisher.testing.virtual_time import run_virtual

from fakes.scripted_source import RecordingSink, ScriptedSource, fetcher_dependencies

LOOK = 5.0


class Listed:
    """The names of a list, as the test changes them."""

    def __init__(self, *names):
        self.names = names

    async def look(self):
        return self.names


class StreamsSource(ScriptedSource):
    """Streams of which some do not exist."""

    def __init__(self):
        super().__init__()
        self.missing = set()
        self.released = []

    async def list_shards(self, stream):
        if stream in self.missing:
            raise StreamNotFoundError(stream)
        return await super().list_shards(stream)

    async def release(self, stream):
        self.released.append(stream)


def job(source, listed, story, sink=None, properties=None, **parts):
    """Run a job while `story(fetcher)` changes the list; returns the fetcher after its end."""

    async def run():
        streams = StreamList(listed.names, listed.look, LOOK)
        dependencies = fetcher_dependencies(source, sink or RecordingSink(), properties, streams=streams, **parts)
        fetcher = build_fetcher(dependencies)
        await fetcher.open()
        running = asyncio.create_task(fetcher.run())
        try:
            await story(fetcher)
        finally:
            fetcher.stop()
            await running
            await fetcher.close()
        return fetcher

    return run_virtual(run())


def two_streams(*times):
    source = StreamsSource()
    source.add("a", 1, 2, stream="s")
    source.add("b", *times, stream="t")
    return source
