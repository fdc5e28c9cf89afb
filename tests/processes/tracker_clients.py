"""Subtasks that report to a tracker on a real socket, and clients that send it raw bytes."""

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import ClassVar

import msgspec

from recordpublisher.fetcher.coordination.heartbeat_messages import HeartbeatRequest, HeartbeatResponse
from recordpublisher.fetcher.coordination.watermark_tracker import SubtaskReport, SubtaskStatus
from recordpublisher.plugins.trackers.tcp.client import TcpTracker
from recordpublisher.plugins.trackers.tcp.protocol import (
    Challenge,
    MessageReader,
    RejectFrame,
    ServerProof,
    is_proven,
    sign_challenge,
)
from recordpublisher.publishers.properties.properties import Properties

TOKEN = "open sesame"
DECODER = msgspec.msgpack.Decoder(Challenge | ServerProof | HeartbeatResponse | RejectFrame)


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
async def running_job(address, parallelism, **properties):
    job = Job(address, parallelism, **properties)
    try:
        yield job
    finally:
        for tracker in job.trackers:
            await tracker.close()


def report(tracker, watermark, status=SubtaskStatus.ACTIVE):
    return tracker.report(SubtaskReport(tracker.config.subtask, status, watermark))


async def wait_until(condition, *reporting, seconds=60):
    """Wait for a condition, while subtasks report: pairs of tracker and watermark."""
    async with asyncio.timeout(seconds):
        while not condition():
            for tracker, watermark in reporting:
                report(tracker, watermark)
            await asyncio.sleep(0.005)


class RawClient:
    """A raw connection; it knows the format and, on request, the token."""

    instances: ClassVar[list["RawClient"]] = []

    def __init__(self, reader, writer):
        self.instances.append(self)
        self.reader, self.writer, self.frames = reader, writer, MessageReader(2**20)

    @classmethod
    async def connect(cls, server, **more):
        return cls(*await asyncio.open_connection(server.host, server.port, **more))

    @classmethod
    async def authenticated(cls, server, **more):
        client = await cls.connect(server, **more)
        await client.authenticate()
        return client

    async def authenticate(self):
        challenge = await self.next()
        response = sign_challenge(TOKEN, challenge)
        self.send_frame(response)
        assert is_proven(await self.next(), TOKEN, challenge, response)

    def send_frame(self, message):
        body = msgspec.msgpack.encode(message)
        self.writer.write(len(body).to_bytes(4, "big") + body)

    def send_heartbeat(self, subtask, watermark, number=1, **more):
        fields = {"group": "g", "parallelism": 2, "generation": 0, "status": "ACTIVE", **more}
        self.send_frame(HeartbeatRequest(subtask=subtask, request_number=number, watermark=watermark, **fields))

    async def next(self):
        while (frame := self.frames.next_frame()) is None:
            data = await self.reader.read(65_536)
            if not data:
                raise EOFError
            self.frames.feed(data)
        return DECODER.decode(frame)

    async def is_disconnected(self, seconds=60):
        async with asyncio.timeout(seconds):
            try:
                while await self.reader.read(65_536):
                    pass
            except ConnectionError:
                pass
        return True

    def abort(self):
        self.writer.transport.abort()

    @classmethod
    def abort_all(cls):
        while cls.instances:
            cls.instances.pop().abort()


def a_free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
