"""Fixtures: an account on a manual clock, called with and without HTTP."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import boto3
import msgspec
import pytest

from recordpublisher.local import Delays, LocalKinesisThread, ManualClock, serve_in_thread
from recordpublisher.local.account import Account
from recordpublisher.local.dispatcher import OPERATIONS

Call = Callable[..., dict[str, Any]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def account(clock: ManualClock) -> Account:
    return Account(clock, "us-east-1", Delays(consumer=0), None)


@pytest.fixture
def call(account: Account) -> Call:
    """Call an operation of the account, without a socket."""

    def call(operation: str, **fields: object) -> dict[str, Any]:
        body = OPERATIONS[operation](account, msgspec.json.encode(fields))
        response: dict[str, Any] = msgspec.json.decode(body or b"{}")
        return response

    return call


@pytest.fixture
def connect() -> Callable[..., Any]:
    """Return a boto3 client of an endpoint, of the default session: a session of its own reads the SDK's models again."""

    def connect(endpoint: LocalKinesisThread, key: str = "local", secret: str = "local", **options: Any) -> Any:
        access = {"aws_access_key_id": key, "aws_secret_access_key": secret, "region_name": "us-east-1"}
        return boto3.client("kinesis", endpoint_url=endpoint.url, **access, **options)

    return connect


@pytest.fixture
def serve(connect: Callable[..., Any]) -> Iterator[Callable[..., tuple[LocalKinesisThread, Any]]]:
    """Start endpoints in threads, each with a boto3 client."""
    with ExitStack() as stack:

        @contextmanager
        def served(options: dict[str, Any], credentials: dict[str, Any]) -> Iterator[tuple[LocalKinesisThread, Any]]:
            with serve_in_thread(**options) as endpoint:
                kinesis = connect(endpoint, **credentials)
                yield endpoint, kinesis
                kinesis.close()

        yield lambda signing=None, **options: stack.enter_context(served(options, signing or {}))
