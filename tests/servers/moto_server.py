"""AWS services simulated by moto: S3, DynamoDB, Kinesis."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

KEYS = {"aws.credentials.provider.basic.accesskeyid": "a", "aws.credentials.provider.basic.secretkey": "s3cr3t"}


@contextmanager
def serve_moto() -> Iterator[str]:
    """The URL of a moto server that has a bucket named `bucket`."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    assert server._server is not None
    server._server.app = one_at_a_time(server._server.app)  # type: ignore[attr-defined]
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    s3 = boto3.client("s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="s")
    s3.create_bucket(Bucket="bucket")
    s3.close()
    try:
        yield url
    finally:
        server.stop()


def one_at_a_time(app: Callable[..., Any]) -> Callable[..., Any]:
    """The same WSGI application for one request at a time: moto checks the condition of a write and then writes, which is not atomic."""
    lock = Lock()

    def locked(*arguments: Any) -> Any:
        with lock:
            return app(*arguments)

    return locked
