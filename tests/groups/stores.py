"""The stores of a group, each on a server of its own kind: the properties with which a job reaches it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servers.atomic_stores import PROPERTIES, serve_dynamodb_local, serve_versitygw
from servers.postgresql import serve_postgresql

Properties = dict[str, object]


@contextmanager
def a_folder(folder: Path) -> Iterator[Properties]:
    yield {"flink.state.uri": f"{folder}/group"}


@contextmanager
def sqlite(folder: Path) -> Iterator[Properties]:
    yield {"flink.state.uri": f"sqlite:///{folder}/group.db"}


@contextmanager
def postgresql(folder: Path) -> Iterator[Properties]:
    with serve_postgresql() as uri:
        yield {"flink.state.uri": uri}


@contextmanager
def dynamodb(folder: Path) -> Iterator[Properties]:
    with serve_dynamodb_local() as url:
        yield {**PROPERTIES, "flink.state.uri": "dynamodb://groups/orders", "flink.state.endpoint": url}


@contextmanager
def s3(folder: Path) -> Iterator[Properties]:
    with serve_versitygw() as url:
        yield {**PROPERTIES, "flink.state.uri": "s3://bucket/groups/orders", "flink.state.endpoint": url}


STORES = {"folder": a_folder, "sqlite": sqlite, "postgresql": postgresql, "dynamodb": dynamodb, "s3": s3}
