"""Many subtasks of one job, each on a connection of its own, reporting once a second; prints how long the responses took.

Arguments: host:port, token, how many, seconds. Raw protocol: what is measured is the tracker.
"""

import asyncio
import json
import resource
import sys
import time

import msgspec

from recordpublisher.fetcher.coordination.heartbeat_messages import HeartbeatRequest, HeartbeatResponse
from recordpublisher.plugins.trackers.tcp.protocol import (
    Challenge,
    MessageReader,
    RejectFrame,
    ServerProof,
    encode_frame,
    sign_challenge,
)

ENCODER = msgspec.msgpack.Encoder()
DECODER = msgspec.msgpack.Decoder(Challenge | ServerProof | HeartbeatResponse | RejectFrame)
HELD = 10
"""One in so many is held and sends which watermark it awaits."""


class Subtask(asyncio.Protocol):
    def __init__(self, number, parallelism, token, took):
        self.number, self.parallelism, self.token, self.took = number, parallelism, token, took
        self.frames, self.sent = MessageReader(2**20), {}
        self.generation, self.request_number, self.value = 0, number + 1, None
        self.notifications = 0

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.frames.feed(data)
        while (frame := self.frames.next_frame()) is not None:
            message = DECODER.decode(frame)
            if isinstance(message, Challenge):
                self.transport.write(encode_frame(ENCODER, sign_challenge(self.token, message)))
            elif isinstance(message, ServerProof):
                pass  # it is measured, not believed
            elif message.request_number:
                self.took.append(time.perf_counter() - self.sent.pop(message.request_number))
                self.generation, self.value = message.generation, message.global_watermark
            else:
                self.notifications += 1

    def report(self, watermark):
        self.request_number += 1
        self.sent[self.request_number] = time.perf_counter()
        awaited = None if self.number % HELD or self.value is None else self.value + 500
        request = HeartbeatRequest(
            "job",
            self.number,
            self.parallelism,
            self.generation,
            self.request_number,
            "ACTIVE",
            watermark,
            None,
            self.value,
            awaited,
        )
        self.transport.write(encode_frame(ENCODER, request))


async def main(address, token, count, seconds):
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    loop, took = asyncio.get_running_loop(), []
    host, _, port = address.rpartition(":")
    subtasks = []
    for number in range(count):
        _, made = await loop.create_connection(
            lambda number=number: Subtask(number, count, token, took), host, int(port)
        )
        subtasks.append(made)
    await asyncio.sleep(1)

    async def reports(subtask, rounds):
        began = loop.time() + subtask.number / count
        for tick in range(rounds):
            await asyncio.sleep(began + tick - loop.time())
            subtask.report(1_700_000_000_000 + 1_000 * tick + subtask.number % 997)

    await asyncio.gather(*(reports(each, 3) for each in subtasks))
    took.clear()
    print("begin", flush=True)
    await asyncio.gather(*(reports(each, seconds) for each in subtasks))
    await asyncio.sleep(0.2)
    took.sort()
    figures = {
        "reports": len(took),
        "p50_ms": took[len(took) // 2] * 1000,
        "p99_ms": took[len(took) * 99 // 100] * 1000,
        "max_ms": took[-1] * 1000,
        "notifications": sum(each.notifications for each in subtasks),
        "unanswered": sum(len(each.sent) for each in subtasks),
    }
    print(json.dumps(figures), flush=True)
    for each in subtasks:
        each.transport.abort()


if __name__ == "__main__":
    address, token, count, seconds = sys.argv[1:]
    asyncio.run(main(address, token, int(count), int(seconds)))
