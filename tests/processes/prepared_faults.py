"""Faults for `recordpublisher doctor`: each function prepares one in a Scene and returns the job's properties that go with it."""

import asyncio
import socket
import ssl
import threading
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from recordpublisher.fetcher.checkpoints.snapshot import snapshot_to_json
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.local import ManualClock, serve_in_thread
from recordpublisher.local.streams.resharding import split
from recordpublisher.plugins.stores.fenced_state_stores import FileStateStore
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition

from servers.certificates import self_signed

HOUR_MS = 3_600_000
ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
EFO = {"flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "billing"}
COPY = {"flink.sink": "kinesis", "flink.sink.kinesis.stream": "copy"}
REMOTE = {"aws.endpoint": "http://kinesis.example"}


@dataclass
class Scene:
    """Where a fault is prepared: an endpoint, a folder, and what is undone after the test."""

    folder: Path
    environment: pytest.MonkeyPatch
    cleanup: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self):
        self.serve()

    def serve(self, **options):
        self.served = self.cleanup.enter_context(serve_in_thread(streams={"orders": 1, "copy": 1}, **options))
        self.stream = self.served.endpoint.stream("orders")

    def deny(self, api):
        self.served.call(self.served.endpoint.faults.fail_next, api, "AccessDeniedException")
        return {}

    def register(self, *consumers):
        for name in consumers:
            self.served.call(self.stream.consumers.register, name)

    def unused_port(self):
        """A port that refuses connections for as long as the test runs."""
        bound = self.cleanup.enter_context(closing(socket.socket()))
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def region_that_is_none(scene):
    return {"aws.region": "mars", "aws.endpoint": None}


def expired_token(scene):
    scene.served.call(scene.served.endpoint.faults.fail_next, "ListShards", "ExpiredTokenException", 9)
    return {}


def denied(api, settings):
    def prepare(scene):
        scene.register("billing")
        return {**settings, **scene.deny(api)}

    return prepare


def clock_behind(scene):
    scene.serve(clock=ManualClock(SystemClock().now_ms() + HOUR_MS))
    return {}


def proxy_that_refuses(scene):
    scene.environment.setenv("http_proxy", f"http://127.0.0.1:{scene.unused_port()}")
    return REMOTE


def proxy_for_loopback(scene):
    scene.environment.setenv("http_proxy", f"http://127.0.0.1:{scene.unused_port()}")
    return {}


def ca_file_that_is_missing(scene):
    scene.environment.setenv("AWS_CA_BUNDLE", str(scene.folder / "missing.pem"))
    return {}


def certificate_of_an_unknown_ca(scene):
    return {"aws.endpoint": scene.cleanup.enter_context(_tls_server(self_signed(scene.folder)))}


@contextmanager
def _tls_server(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        server.handle_error = lambda *_: None  # of clients that do not trust it
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def name_that_is_unknown(scene):
    return {"aws.endpoint": "http://nowhere.invalid"}


def refused_connection(scene):
    return {"aws.endpoint": f"http://127.0.0.1:{scene.unused_port()}"}


def full_quota(scene):
    scene.register(*(f"c{number}" for number in range(20)))
    return EFO


def stream_that_is_missing(scene):
    return {"flink.streams": "order"}


def stream_that_is(status):
    def prepare(scene):
        scene.served.call(scene.stream.set_busy, status, HOUR_MS)
        return {}

    return prepare


def uneven_ranges(scene):
    (whole,) = scene.stream.shards.values()
    scene.served.call(split, scene.stream, whole, 2)
    return {}


def lag_that_reaches_the_retention(scene):
    clock = ManualClock(SystemClock().now_ms() - 22 * HOUR_MS)
    scene.serve(clock=clock)
    done, _ = (scene.served.call(scene.stream.put, data, "k") for data in (b"read", b"unread"))
    shard = next(each.id for each in scene.stream.shards.values() if len(each.log))
    asyncio.run(_store_position(scene.folder / "state", shard, done))
    scene.served.call(clock.advance, 22 * HOUR_MS)
    return {**COPY, "flink.state.uri": str(scene.folder / "state")}


async def _store_position(folder, shard, done):
    store = FileStateStore(folder)
    state = ShardState(StartingPosition.trim_horizon(), SequenceNumber(done))
    generation = await store.open_generation(0)
    await store.store(0, generation, snapshot_to_json({f"orders/{shard}": state}, None, generation, 0, 1))


def store_at(uri):
    def prepare(scene):
        port = scene.unused_port()
        return {
            "flink.state.uri": uri.format(port=port),
            "flink.state.endpoint": f"http://127.0.0.1:{port}",
            "flink.job.name": "billing",
        }

    return prepare


def store_in_a_file(scene):
    (scene.folder / "state").write_text("")
    return {"flink.state.uri": str(scene.folder / "state")}


def store_that_is_unknown(scene):
    return {"flink.state.uri": "pigeon://state"}


def database_that_refuses(scene):
    uri = f"postgresql://me@127.0.0.1:{scene.unused_port()}/shop"
    return {"flink.sink": "sql", "flink.sink.sql.uri": uri, "flink.job.name": "billing"}


def target_that_is_missing(scene):
    return {**COPY, "flink.sink.kinesis.stream": "copies"}


def records_too_large_for_the_target(scene):
    scene.stream.max_record_bytes = 10 * 2**20
    return COPY


def sink_that_is_unknown(scene):
    return {"flink.sink": "jsnl"}


def publisher_that_is_unknown(scene):
    return {"flink.stream.recordpublisher": "NATS"}


def plugin_with_a_taken_name(scene):
    (scene.folder / "taken_name.py").write_text(
        "from recordpublisher.plugins.host.hookspecs import hookimpl\n"
        "@hookimpl\n"
        "def recordpublisher_register_sinks(registry):\n"
        "    registry.add('jsonl', 'taken_name:Sink')\n"
    )
    installed = scene.folder / "taken_name-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: taken-name\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[recordpublisher]\ntaken-name = taken_name\n")
    scene.environment.syspath_prepend(scene.folder)
    return {}


def property_that_is_unknown(scene):
    return {"flink.stream.initpso": "LATEST"}


def java_that_is_missing(scene):
    pytest.importorskip("pyspark")
    scene.environment.setenv("JAVA_HOME", str(scene.folder))
    return {}


PREPARED = {
    "A region that does not exist": region_that_is_none,
    "An expired session token": expired_token,
    "No right to `GetShardIterator`": denied("GetShardIterator", {}),
    "No right to `GetRecords`": denied("GetRecords", {}),
    "No right to `SubscribeToShard`": denied("SubscribeToShard", EFO),
    "No right to `PutRecord`": denied("PutRecord", COPY),
    "No right to `PutRecords`": denied("PutRecords", COPY),
    "A clock that is an hour behind": clock_behind,
    "A proxy that refuses connections": proxy_that_refuses,
    "A proxy for an endpoint on this machine": proxy_for_loopback,
    "A CA file that is missing": ca_file_that_is_missing,
    "A certificate of an unknown CA": certificate_of_an_unknown_ca,
    "A host that DNS does not know": name_that_is_unknown,
    "An endpoint that refuses connections": refused_connection,
    "20 registered consumers": full_quota,
    "A stream that does not exist": stream_that_is_missing,
    "A stream that is being created": stream_that_is("CREATING"),
    "A stream that is being deleted": stream_that_is("DELETING"),
    "A shard with nearly all hash keys": uneven_ranges,
    "Unread records that retention deletes soon": lag_that_reaches_the_retention,
    "A store in PostgreSQL that refuses connections": store_at("postgresql://me@127.0.0.1:{port}/shop"),
    "A store in S3 that refuses connections": store_at("s3://bucket/state"),
    "A store in DynamoDB that refuses connections": store_at("dynamodb://table/state"),
    "A store's folder that cannot be written": store_in_a_file,
    "A store of a plugin that is not installed": store_that_is_unknown,
    "A sink's database that refuses connections": database_that_refuses,
    "A sink's stream that does not exist": target_that_is_missing,
    "Records too large for the sink's stream": records_too_large_for_the_target,
    "A sink of a plugin that is not installed": sink_that_is_unknown,
    "A publisher of a plugin that is not installed": publisher_that_is_unknown,
    "Two plugins with one name": plugin_with_a_taken_name,
    "A property that does not exist": property_that_is_unknown,
    "No Java for Spark": java_that_is_missing,
}
