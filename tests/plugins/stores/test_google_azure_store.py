"""Google Cloud Storage and Azure: what is special about them. The contract of stores is tested in test_conditional_stores.py."""

import subprocess
import sys

import obstore.exceptions
import pytest
from obstore.store import MemoryStore

from recordpublisher.fetcher.conditional_store import ConflictError
from recordpublisher.plugins.stores.by_location import conditional_store_of
from recordpublisher.plugins.stores.google_azure_store import GoogleAzureStore
from recordpublisher.publishers.errors import ConfigurationError, StateError, StoreUnavailableError
from recordpublisher.publishers.properties.properties import Properties


class Client:
    """obstore's client in memory, whose writes a test changes."""

    def __init__(self, put):
        self._memory = MemoryStore()
        self._put = put

    def __getattr__(self, name):
        return getattr(self._memory, name)

    async def put_async(self, *arguments, **more):
        return await self._put(self._memory.put_async, *arguments, **more)


def store_with(put):
    client = Client(put)
    return GoogleAzureStore("gs://bucket/claims", "uri", Properties(), lambda uri: client)


async def test_a_write_whose_response_was_lost_is_recognised():
    async def sent_twice(put, *arguments, **more):
        await put(*arguments, **more)
        return await put(*arguments, **more)

    store = store_with(sent_twice)
    first = await store.put_if_absent("a/1", b"1")
    with pytest.raises(ConflictError):
        await store.put_if_absent("a/1", b"1")  # an equal value may be that of another writer
    assert await store.compare_and_set("a/1", b"2", first) != first
    with pytest.raises(ConflictError):
        await store.compare_and_set("a/1", b"2", first)


async def test_a_write_that_met_one_which_was_deleted_meanwhile_is_made_again():
    refusals = [1]

    async def refused_once(put, *arguments, **more):
        if refusals:
            refusals.pop()
            raise obstore.exceptions.AlreadyExistsError("it is there")
        return await put(*arguments, **more)

    store = store_with(refused_once)
    version = await store.put_if_absent("a/1", b"1")
    assert (await store.get("a/1")).version == version


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (obstore.exceptions.GenericError("no route to https://host/a?sig=SECRET in 3 s\n\nDebug source"), StoreUnavailableError),
        (obstore.exceptions.PermissionDeniedError("not allowed"), StateError),
        (FileNotFoundError("no such bucket"), StateError),
    ],
)  # fmt: skip
async def test_only_what_may_pass_is_an_outage_and_a_message_has_one_line(error, kind):
    async def fail(put, *arguments, **more):
        raise error

    with pytest.raises(StateError, match="gs://bucket/claims cannot be used: no") as raised:
        await store_with(fail).put_if_absent("a/1", b"1")
    assert isinstance(raised.value, StoreUnavailableError) == (kind is StoreUnavailableError)
    assert "SECRET" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(ConfigurationError, match=r"needs the extra 'object-storage': pip install"):
        conditional_store_of("gs://bucket/claims", "metadataLocation", Properties())


EXITS = """
import asyncio, atexit, time
from obstore.store import S3Store
from recordpublisher.plugins.stores.obstore_client import as_state_errors
from recordpublisher.publishers.errors import StoreUnavailableError

config = dict(endpoint="http://127.0.0.1:9", access_key_id="a", secret_access_key="b", region="us-east-1")
store = S3Store("b", config={**config, "allow_http": "true"}, retry_config={"max_retries": 0})

async def call():
    with as_state_errors("s3://b"):
        await store.put_async("x", b"1")

atexit.register(lambda: print(time.monotonic() - began > 0.09))
try:
    asyncio.run(call())
except StoreUnavailableError:
    began = time.monotonic()
"""


def test_an_exit_after_a_failed_call_lets_the_threads_of_the_library_end():
    """They abort the process if the interpreter ends while they still hold objects of the call."""
    ended = subprocess.run([sys.executable, "-c", EXITS], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "True\n"), ended.stderr
