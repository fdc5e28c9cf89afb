"""What the endpoint costs its own process, in microseconds of CPU per record (`make bench` prints it)."""

import os
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

pytestmark = pytest.mark.benchmark

RECORDS = 10_000
ROUNDS = 10
SERVE = """
import asyncio, sys
from recordpublisher.local import Delays, LocalKinesis
async def main():
    async with LocalKinesis(streams={"one": 1, "four": 4}, delays=Delays(consumer=0)) as endpoint:
        print(endpoint.port, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
asyncio.run(main())
"""


class Server:
    """A server process, its CPU seconds, and a bare socket client that does not cost it anything."""

    def __init__(self, process: "subprocess.Popen[str]", port: int) -> None:
        self.process = process
        self.port = port
        self.closing = ExitStack()

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def connect(self) -> socket.socket:
        return self.closing.enter_context(socket.create_connection(("127.0.0.1", self.port)))

    def send(self, connection: socket.socket, operation: str, body: object) -> None:
        raw = msgspec.json.encode(body)
        head = f"POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: Kinesis_20131202.{operation}\r\nContent-Length: {len(raw)}"
        head += "\r\nContent-Type: application/x-amz-json-1.1"
        connection.sendall(f"{head}\r\n\r\n".encode() + raw)

    def call(self, connection: socket.socket, operation: str, body: object) -> dict[str, object]:
        self.send(connection, operation, body)
        head, answer = b"", bytearray()
        while b"\r\n\r\n" not in head:
            head += connection.recv(65536)
        head, _, rest = head.partition(b"\r\n\r\n")
        answer += rest
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(answer) < length:
            answer += connection.recv(1 << 20)
        assert b" 200 " in head[:20], bytes(answer)
        return msgspec.json.decode(answer)


@pytest.fixture
def server() -> Iterator[Server]:
    with subprocess.Popen(
        [sys.executable, "-c", SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        server = Server(process, int(process.stdout.readline()))
        with server.closing:
            yield server
        process.terminate()


def fill(server: Server, connection: socket.socket, stream: str, size: int) -> None:
    data = b64encode(os.urandom(size)).decode()
    for start in range(0, RECORDS, 500):
        records = [{"Data": data, "PartitionKey": f"key-{i}"} for i in range(start, start + 500)]
        server.call(connection, "PutRecords", {"StreamName": stream, "Records": records})


@pytest.mark.parametrize("stream", ["one", "four"])
@pytest.mark.parametrize("size", [200, 1024])
def test_cost_of_put_records(server: Server, stream: str, size: int) -> None:
    connection = server.connect()
    fill(server, connection, stream, size)
    before, began = server.cpu_seconds(), time.perf_counter()
    for _ in range(ROUNDS):
        fill(server, connection, stream, size)
    report(f"PutRecords, 500 x {size} B, {stream}", server.cpu_seconds() - before, time.perf_counter() - began)


@pytest.mark.parametrize("size", [200, 1000])
def test_cost_of_get_records(server: Server, size: int) -> None:
    connection = server.connect()
    fill(server, connection, "one", size)
    place = {"StreamName": "one", "ShardId": "shardId-000000000000", "ShardIteratorType": "TRIM_HORIZON"}
    iterator = server.call(connection, "GetShardIterator", place)["ShardIterator"]
    before, began = server.cpu_seconds(), time.perf_counter()
    for _ in range(ROUNDS * 5):
        answer = server.call(connection, "GetRecords", {"ShardIterator": iterator})
    spent = server.cpu_seconds() - before, time.perf_counter() - began
    assert len(answer["Records"]) == RECORDS  # type: ignore[arg-type]
    report(f"GetRecords, 10,000 x {size} B", *(value / 5 for value in spent))


@pytest.mark.parametrize("size", [200, 1024])
def test_cost_of_subscribe_to_shard(server: Server, size: int) -> None:
    connection = server.connect()
    for _ in range(ROUNDS):
        fill(server, connection, "one", size)
    arn = "arn:aws:kinesis:us-east-1:000000000000:stream/one"
    request = {"StreamARN": arn, "ConsumerName": "c"}
    consumer = server.call(connection, "RegisterStreamConsumer", request)["Consumer"]
    start = {
        "ConsumerARN": consumer["ConsumerARN"],  # type: ignore[index]
        "ShardId": "shardId-000000000000",
        "StartingPosition": {"Type": "TRIM_HORIZON"},
    }
    subscribed = server.connect()
    before, began = server.cpu_seconds(), time.perf_counter()
    server.send(subscribed, "SubscribeToShard", start)
    seen, tail = 0, b""
    while seen < RECORDS * ROUNDS:
        chunk = subscribed.recv(1 << 20)
        assert chunk
        joined = tail + chunk
        seen += joined.count(b'"PartitionKey":')
        tail = joined[-len(b'"PartitionKey":') + 1 :]
    report(f"SubscribeToShard, {size} B", server.cpu_seconds() - before, time.perf_counter() - began)


def report(what: str, cpu: float, wall: float) -> None:
    records = RECORDS * ROUNDS
    print(f"\n{what}: {cpu / records * 1e6:.2f} us of server CPU per record, {records / wall:,.0f} records/s")
