"""Subtasks that report to a tracker on a real socket, and strangers who speak raw bytes to it."""

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import ClassVar

import msgspec

from recordpublisher.fetcher.coordination.heartbeat_messages import Answer, Statement
from recordpublisher.fetcher.coordination.watermark_tracker import SubtaskReport, SubtaskStatus
from recordpublisher.plugins.trackers.tcp.client import TcpTracker
from recordpublisher.plugins.trackers.tcp.protocol import Challenge, Farewell, FrameReader, proof_of
from recordpublisher.publishers.properties.properties import Properties

TOKEN = "open sesame"
DECODER = msgspec.msgpack.Decoder(Challenge | Answer | Farewell)


class Job:
    """Subtasks of one job, in this process."""

    def __init__(self, address, parallelism, **properties):
        self.parallelism = parallelism
        self.properties = {
            "flink.watermark.tracker.address": address,
            "flink.watermark.tracker.token": TOKEN,
            "flink.watermark.sync.interval": 50,
            "flink.watermark.group": "g",
            **properties,
        }
        self.trackers = []

    async def start(self, subtask, clock=None):
        tracker = TcpTracker(Properties(self.properties), clock)
        await tracker.open(subtask, self.parallelism)
        self.trackers.append(tracker)
        return tracker

    async def start_all(self):
        return [await self.start(subtask) for subtask in range(self.parallelism)]


@asynccontextmanager
async def a_job(address, parallelism, **properties):
    job = Job(address, parallelism, **properties)
    try:
        yield job
    finally:
        for tracker in job.trackers:
            await tracker.close()


def says(tracker, watermark, status=SubtaskStatus.ACTIVE):
    return tracker.report(SubtaskReport(tracker.place.subtask, status, watermark))


async def until(condition, *reporting, seconds=60):
    """Wait for a condition, while subtasks say where they stand: pairs of tracker and watermark."""
    async with asyncio.timeout(seconds):
        while not condition():
            for tracker, watermark in reporting:
                says(tracker, watermark)
            await asyncio.sleep(0.005)


class Stranger:
    """A raw connection; knows the format and, if it wants to, the token."""

    came: ClassVar[list["Stranger"]] = []

    def __init__(self, reader, writer):
        self.came.append(self)
        self.reader, self.writer, self.frames = reader, writer, FrameReader(2**20)

    @classmethod
    async def comes(cls, server, **more):
        return cls(*await asyncio.open_connection(server.host, server.port, **more))

    @classmethod
    async def with_token(cls, server, **more):
        stranger = await cls.comes(server, **more)
        stranger.frame(proof_of(TOKEN, await stranger.next()))
        return stranger

    def frame(self, message):
        body = msgspec.msgpack.encode(message)
        self.writer.write(len(body).to_bytes(4, "big") + body)

    def state(self, subtask, watermark, counter=1, **more):
        said = {"group": "g", "parallelism": 2, "generation": 0, "status": "ACTIVE", **more}
        self.frame(Statement(subtask=subtask, counter=counter, watermark=watermark, **said))

    async def next(self):
        while (frame := self.frames.next_frame()) is None:
            data = await self.reader.read(65_536)
            if not data:
                raise EOFError
            self.frames.feed(data)
        return DECODER.decode(frame)

    async def is_hung_up_on(self, seconds=60):
        async with asyncio.timeout(seconds):
            try:
                while await self.reader.read(65_536):
                    pass
            except ConnectionError:
                pass
        return True

    def goes(self):
        self.writer.transport.abort()

    @classmethod
    def all_go(cls):
        while cls.came:
            cls.came.pop().goes()


def a_free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
