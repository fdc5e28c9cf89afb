"""Claims as objects of S3, put only where there is none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.kinesis import run_sync
from recordpublisher.publishers.properties.properties import Properties

from ..aws_client import RefusedError
from ..ports import BatchId, ClaimStore
from .bucket import ABSENT, Bucket

T = TypeVar("T")
KEY = "metadataLocation"


class S3ClaimStore(ClaimStore):
    """Objects `<prefix>/<query>/<batch>-<plan>/<name>.json`. `If-None-Match: *` lets the first writer win.

    Every call has a client of its own: calls come from any thread and process, one or two for each task.
    """

    def __init__(self, location: str, properties: Properties) -> None:
        """Raises: ConfigurationError when the location is not s3://bucket/prefix."""
        self._location = location
        self._properties = properties
        Bucket(location, KEY, properties)

    def put_if_absent(self, batch: BatchId, name: str, claim: bytes) -> bytes:
        """What is stored: the claim given, or the winner's."""

        async def put(bucket: Bucket) -> bytes:
            try:
                await bucket.put(_name(batch, name), claim, ABSENT)
            except RefusedError:
                return (await bucket.get(_name(batch, name)))[0]
            return claim

        return self._with_bucket(put)

    def get(self, batch: BatchId, name: str) -> bytes | None:
        """The stored claim, if any."""

        async def get(bucket: Bucket) -> bytes | None:
            return (await bucket.find(_name(batch, name)))[0]

        return self._with_bucket(get)

    def load(self, batch: BatchId) -> dict[str, bytes]:
        """Every claim of a batch by name."""

        async def load(bucket: Bucket) -> dict[str, bytes]:
            names = [name async for name in bucket.names(_folder(batch))]
            return {_stem(name): (await bucket.get(name))[0] for name in names}

        return self._with_bucket(load)

    def purge(self, query: str, before: int) -> None:
        """Remove the objects of older batches."""

        async def purge(bucket: Bucket) -> None:
            old = [name async for name in bucket.names(f"{query}/") if _batch_number(name) < before]
            for name in old:
                await bucket.delete(name)

        self._with_bucket(purge)

    def plant_probe(self, query: str, token: str) -> None:
        """Leave the token, by the same conditional put that claims need. Raises: ConfigurationError."""

        async def plant(bucket: Bucket) -> None:
            try:
                await bucket.put(f"{query}/probe-{token}", token.encode(), ABSENT)
            except RefusedError:
                return

        try:
            self._with_bucket(plant)
        except Exception as error:
            reason = f"claims cannot be kept there: {error}"
            raise ConfigurationError(KEY, self._location, "an S3 bucket that can be written", reason=reason) from error

    def see_probe(self, query: str, token: str) -> None:
        """Look for the token."""

        async def see(bucket: Bucket) -> bytes | None:
            return (await bucket.find(f"{query}/probe-{token}"))[0]

        if self._with_bucket(see) is None:
            reason = "a task cannot see what the driver wrote there"
            raise ConfigurationError(KEY, self._location, "one bucket for the driver and every executor", reason=reason)

    def _with_bucket(self, work: Callable[[Bucket], Awaitable[T]]) -> T:
        async def run() -> T:
            bucket = Bucket(self._location, KEY, self._properties)
            try:
                return await work(bucket)
            finally:
                await bucket.service.close()

        return run_sync(run())


def _folder(batch: BatchId) -> str:
    return f"{batch.query}/{batch.batch:010d}-{batch.plan}/"


def _name(batch: BatchId, name: str) -> str:
    return f"{_folder(batch)}{name}.json"


def _stem(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(".json")


def _batch_number(name: str) -> float:
    number = name.rpartition("/")[0].rpartition("/")[2].partition("-")[0]
    return int(number) if number.isdigit() else float("inf")
