"""Faults for `recordpublisher doctor`: each function prepares one in a Scene and returns the job's properties that go with it."""

import socket
import ssl
import threading
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from recordpublisher.local import ManualClock, serve_in_thread
from recordpublisher.local.stream import split
from recordpublisher.publishers.clock import SystemClock

from prepared_faults import job_faults
from prepared_faults.job_faults import COPY, HOUR_MS
from servers.certificates import self_signed

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
EFO = {"flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "billing"}
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


PREPARED = {
    "A region that does not exist": region_that_is_none,
    "An expired session token": expired_token,
    "No right to `GetShardIterator`": denied("GetShardIterator", {}),
    "No right to `GetRecords`": denied("GetRecords", {}),
    "No right to `SubscribeToShard`": denied("SubscribeToShard", EFO),
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
    "Unread records that retention deletes soon": job_faults.lag_that_reaches_the_retention,
    "A store in PostgreSQL that refuses connections": job_faults.store_at("postgresql://me@127.0.0.1:{port}/shop"),
    "A store in S3 that refuses connections": job_faults.store_at("s3://bucket/state"),
    "A store in DynamoDB that refuses connections": job_faults.store_at("dynamodb://table/state"),
    "A store's folder that cannot be written": job_faults.store_in_a_file,
    "A store of a plugin that is not installed": job_faults.store_that_is_unknown,
    "Another process that runs the job": job_faults.process_that_stores,
    "A sink's database that refuses connections": job_faults.database_that_refuses,
    "A sink's stream that does not exist": job_faults.target_that_is_missing,
    "Records too large for the sink's stream": job_faults.records_too_large_for_the_target,
    "A sink of a plugin that is not installed": job_faults.sink_that_is_unknown,
    "A function that cannot be imported": job_faults.function_that_is_missing,
    "A sink's folder that cannot be written": job_faults.sink_in_a_file,
    "A publisher of a plugin that is not installed": job_faults.publisher_that_is_unknown,
    "A publisher whose constructor raises an error": job_faults.publisher_that_is_broken,
    "A fan-out consumer without a name": job_faults.consumer_without_a_name,
    "Two plugins with one name": job_faults.plugin_with_a_taken_name,
    "A property that does not exist": job_faults.property_that_is_unknown,
    "No Java for Spark": job_faults.java_that_is_missing,
}
