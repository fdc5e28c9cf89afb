"""The embedded endpoint, with a new stream of two shards for each test, and a job that reads it."""

import itertools

import boto3
import pytest

import recordpublisher as rp
from recordpublisher.local import serve_in_thread

from servers.moto_server import KEYS

ACCESS = {"aws_access_key_id": "a", "aws_secret_access_key": "s", "region_name": "us-east-1"}
numbers = itertools.count()


@pytest.fixture(scope="session")
def endpoint():
    with serve_in_thread() as served:
        yield served


@pytest.fixture(scope="session")
def kinesis(endpoint):
    client = boto3.client("kinesis", endpoint_url=endpoint.url, **ACCESS)
    yield client
    client.close()


@pytest.fixture
def stream(endpoint):
    """The name of a new stream."""
    return endpoint.create_stream(f"orders-{next(numbers)}", 2).name


@pytest.fixture
def job(endpoint, stream, tmp_path):
    """The properties of a job that has stored nothing."""
    own = {
        "flink.streams": stream,
        "flink.sink": "memory",
        "flink.stream.initpos": "TRIM_HORIZON",
        "flink.state.uri": str(tmp_path / "state"),
    }
    return rp.Properties({**KEYS, **endpoint.properties(), **own})
