"""How long a store is waited for that is away when a job starts."""

import asyncio
import socket
import ssl

import pytest

from recordpublisher.fetcher.conditional_store import VersionedValue, named_store, wait_for_store
from recordpublisher.plugins.stores.folder_store import FolderStore
from recordpublisher.publishers.errors import PluginError, StateError, StoreUnavailableError, TransientError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.retry_properties import outage_policy
from recordpublisher.publishers.retry import RetryPolicy
from recordpublisher.testing.virtual_time import run_virtual

from fakes.memory_store import MemoryStore

OUTLASTS_MINUTES = outage_policy(Properties())


UNKNOWN_HOST = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
NO_TLS = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")
NO_TLS.reason = "WRONG_VERSION_NUMBER"


def caused_by(refused):
    call = TransientError("GetItem", "EndpointConnectionError", "no connection")
    call.__cause__ = refused
    error = StoreUnavailableError("GetItem at dynamodb://t/j failed")
    error.__cause__ = call
    return error


def waited(*, answers_after=float("inf"), error=None, seconds_each=0.0, policy=OUTLASTS_MINUTES):
    """What a store that is away until then answers in the end, and the seconds until that; each call takes some."""

    async def story():
        now = asyncio.get_running_loop().time
        begun = now()

        async def call():
            await asyncio.sleep(seconds_each)
            if now() - begun < answers_after:
                raise error or StoreUnavailableError("away")
            return "stored"

        try:
            outcome = await wait_for_store(call, policy)
        except StateError as raised:
            outcome = raised
        return outcome, now() - begun

    return run_virtual(story())


def test_a_store_is_waited_for_and_the_log_says_so_at_most_once_a_minute(caplog):
    outcome, seconds = waited(answers_after=300)

    assert outcome == "stored"
    assert 300 <= seconds < 312
    assert caplog.messages[0].startswith("calls to the state store have failed for ")
    assert len(caplog.messages) <= 7


@pytest.mark.parametrize("seconds_each", [0.0, 30.0])
def test_a_store_that_does_not_come_back_is_given_up_after_a_quarter_of_an_hour(seconds_each):
    outcome, seconds = waited(seconds_each=seconds_each)

    assert isinstance(outcome, StoreUnavailableError)
    assert 900 <= seconds < 900 + 2 * seconds_each + 1
    assert str(outcome).endswith("min (flink.job.max.outage decides); the last error: away")


def test_a_script_with_few_retries_ends_soon():
    assert waited(policy=RetryPolicy(3, 300, 1_000, 1.5))[1] < 3


@pytest.mark.parametrize("refused", [UNKNOWN_HOST, NO_TLS], ids=["unknown host", "no TLS"])
def test_a_host_that_dns_does_not_know_or_that_speaks_no_tls_is_not_waited_for(refused):
    error = caused_by(refused)
    assert waited(error=error) == (error, 0)


def test_what_waiting_does_not_mend_is_raised_at_once():
    error = StateError("worker-0 cannot be read")
    assert waited(error=error) == (error, 0)


class Faulty(MemoryStore):
    """Its methods return, or raise, `fault`."""

    def __init__(self, fault):
        super().__init__()
        self.fault = fault

    async def get(self, *given):
        if isinstance(self.fault, Exception):
            raise self.fault
        return self.fault

    put_if_absent = get


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (VersionedValue(b"", 1), "whose version is 1: it must be a str"),
        (VersionedValue("", "1"), "whose value is '': it must be bytes"),
    ],
)
async def test_a_field_of_a_wrong_type_names_the_method_of_a_store_of_another_package(found, words):
    with pytest.raises(PluginError, match=rf"^`Faulty\.get` returned a VersionedValue {words}$"):
        await named_store(Faulty(found)).get("name")


def test_a_store_whose_close_hangs_is_left_behind(caplog):
    class Hangs(MemoryStore):
        async def close(self):
            await asyncio.sleep(1e9)

    run_virtual(named_store(Hangs(), close_seconds=4).close())
    assert caplog.messages[-1].startswith("`Hangs.close` has not ended after 4 s (flink.job.drain.timeout)")


async def test_a_result_of_a_wrong_type_names_the_method_of_a_store_of_another_package():
    with pytest.raises(PluginError, match=r"^`Faulty\.get` returned b'x': it must return VersionedValue or None$"):
        await named_store(Faulty(b"x")).get("name")
    with pytest.raises(PluginError, match=r"^`Faulty\.put_if_absent` returned None: it must return str$"):
        await named_store(Faulty(None)).put_if_absent("name", b"")


@pytest.mark.parametrize("error", [KeyError("name"), StateError("broken"), StoreUnavailableError("away")])
async def test_an_error_names_the_method_of_a_store_of_another_package(error):
    with pytest.raises(type(error)) as raised:
        await named_store(Faulty(error)).get("name")
    assert raised.value.__notes__ == ["`Faulty.get` failed"]


def test_a_call_that_does_not_return_names_the_method_of_a_store_of_another_package(caplog):
    class Hangs(MemoryStore):
        async def list(self, prefix, *, consistent=True):
            await asyncio.sleep(15)
            return {}

    run_virtual(named_store(Hangs()).list("name"))
    assert [line.partition(": it waits")[0] for line in caplog.messages] == ["`Hangs.list` has not returned for 10 s"]


def test_stores_of_this_package_are_used_as_they_are(tmp_path):
    store = FolderStore(str(tmp_path))
    assert named_store(store) is store
    assert named_store(None) is None
