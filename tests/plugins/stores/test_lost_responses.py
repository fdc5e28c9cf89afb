"""A write that is sent again after a lost response recognises its own value, and no other."""

import pytest

from recordpublisher.fetcher.conditional_store import ConflictError
from recordpublisher.plugins.databases.database import Database
from recordpublisher.plugins.stores import s3_store
from recordpublisher.plugins.stores.aws_store_service import ConditionFailedError, StoreService
from recordpublisher.plugins.stores.s3_store import S3Store
from recordpublisher.publishers.errors import StoreUnavailableError

WRITES = ("PutObject", "UpdateItem")


@pytest.fixture
def every_write_is_sent_twice(monkeypatch):
    """As the SDK and `Database.transaction` do when the first response is lost."""
    call, transaction = StoreService.call, Database.transaction

    async def call_twice(self, api, parse, **parameters):
        response = await call(self, api, parse, **parameters)
        return await call(self, api, parse, **parameters) if api in WRITES else response

    async def transaction_twice(self, work):
        await transaction(self, work)
        return await transaction(self, work)

    monkeypatch.setattr(StoreService, "call", call_twice)
    monkeypatch.setattr(Database, "transaction", transaction_twice)


@pytest.mark.usefixtures("every_write_is_sent_twice")
async def test_a_write_that_is_sent_twice_is_made_once(open_store):
    store, other = open_store(), open_store()
    first = await store.put_if_absent("a/1", b"same")
    with pytest.raises(ConflictError):
        await other.put_if_absent("a/1", b"same")  # an equal value may be that of another writer

    second = await store.compare_and_set("a/1", b"2", first)
    with pytest.raises(ConflictError):
        await other.compare_and_set("a/1", b"2", first)

    found = await store.get("a/1")
    assert (found.value, found.version) == (b"2", second)
    await store.close()
    await other.close()


async def test_s3_a_refused_write_is_retried_when_nothing_has_changed(aws, tmp_path, monkeypatch):
    """S3 returns 409 during a concurrent write, which may fail afterwards."""
    call, refusals = StoreService.call, [1, 2]

    async def refuse_at_first(self, api, parse, **parameters):
        if api == "PutObject" and refusals:
            refusals.pop()
            raise ConditionFailedError("ConditionalRequestConflict")
        return await call(self, api, parse, **parameters)

    monkeypatch.setattr(StoreService, "call", refuse_at_first)
    store = S3Store(f"s3://bucket/{tmp_path.name}", "uri", aws)
    version = await store.put_if_absent("a/1", b"1")
    refusals += [1]
    await store.compare_and_set("a/1", b"2", version)
    assert (await store.get("a/1")).value == b"2"
    await store.close()


async def test_s3_writes_that_are_refused_as_long_as_nothing_changes_may_be_tried_later(aws, tmp_path, monkeypatch):
    """A job outlasts it by its retries for stores: nobody else has written."""
    call = StoreService.call

    async def refuse(self, api, parse, **parameters):
        if api == "PutObject":
            raise ConditionFailedError("ConditionalRequestConflict")
        return await call(self, api, parse, **parameters)

    async def no_pause(attempt):
        """The real one waits for seconds."""

    monkeypatch.setattr(StoreService, "call", refuse)
    monkeypatch.setattr(s3_store, "pause", no_pause)
    store = S3Store(f"s3://bucket/{tmp_path.name}", "uri", aws)
    with pytest.raises(StoreUnavailableError, match="each of 10 attempts met another write"):
        await store.put_if_absent("a/1", b"1")
    await store.close()
