"""S3: a failed listing never ends a running job; the deletion of the last stream does (S8)."""

import asyncio

import pytest

from recordpublisher.fetcher.shards.discovery import ShardDiscovery
from recordpublisher.publishers import base
from recordpublisher.publishers.base import RecordPublisherFactory, shards_listed_by
from recordpublisher.publishers.errors import (
    ConfigurationError,
    FatalKinesisError,
    PluginError,
    RetriesExhaustedError,
    StateError,
    StoreUnavailableError,
    StreamNotFoundError,
    ThrottledError,
)
from recordpublisher.publishers.kinesis.error_mapping import NoCredentialsError
from recordpublisher.testing.virtual_time import run_virtual

from fakes.shard_entries import shard


class Lister:
    """Returns or raises one result after the other, and then the last one again and again."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []

    async def list_shards(self, stream):
        self.requests.append((asyncio.get_running_loop().time(), stream))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def discover_for(seconds, lister, streams=("s",), interval_ms=1_000):
    discovery, found, closed = ShardDiscovery(lister, streams, interval_ms), [], []

    async def on_listing(stream, listed):
        found.append((stream, listed))

    async def on_closed(stream):
        closed.append(stream)

    async def job():
        try:
            async with asyncio.timeout(seconds):
                await discovery.run(on_listing, on_closed)
        except TimeoutError:
            return False
        return True

    return run_virtual(job()), found, discovery


def test_shards_are_listed_in_the_interval():
    lister = Lister([shard()])
    over, found, _ = discover_for(3.5, lister)

    assert not over
    assert lister.requests == [(1, "s"), (2, "s"), (3, "s")]
    assert found == [("s", [shard()])] * 3


@pytest.mark.parametrize(
    "error",
    [
        ThrottledError("ListShards", "LimitExceededException", "slow down"),
        FatalKinesisError("ListShards", "AccessDeniedException", "no"),
        RetriesExhaustedError("ListShards"),
    ],
)
def test_a_failed_listing_is_logged_and_repeated(error, caplog, monkeypatch):
    monkeypatch.setattr(base, "is_raised_in_user_code", lambda error, or_installed: False)  # as if Kinesis were listed
    over, found, _ = discover_for(2.5, Lister(error, [shard()]))

    assert not over
    assert len(found) == 1
    assert "shards of s" in caplog.text


def test_discovery_ends_with_the_last_deleted_stream():
    lister = Lister(StreamNotFoundError("s"), [shard()], StreamNotFoundError("t"))
    over, found, discovery = discover_for(10, lister, ("s", "t"))

    assert over
    assert discovery.all_deleted
    assert [stream for stream, _ in found] == ["t"]
    assert [stream for _, stream in lister.requests] == ["s", "t", "t"]


def test_discovery_can_be_turned_off():
    over, found, _ = discover_for(10, Lister([shard()]), interval_ms=-1)

    assert over
    assert found == []


def test_the_first_listing_must_succeed():
    with pytest.raises(StreamNotFoundError):
        run_virtual(ShardDiscovery(Lister(StreamNotFoundError("s")), ["s"], 1_000).list_all())


class Plugin(RecordPublisherFactory):
    def __init__(self, result):
        self.result = result

    async def create(self, shard, starting_position, metrics):
        raise NotImplementedError

    async def discover(self, stream):
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    async def list_shards(self, stream):
        return await shards_listed_by(self, stream)


@pytest.mark.parametrize(
    ("result", "error", "words"),
    [
        (7, PluginError, r"Plugin\.discover returned 7"),
        (ConfigurationError("a.b", 1, "2"), ConfigurationError, "property 'a.b' is 1"),
        (FatalKinesisError("the key is refused"), FatalKinesisError, "the key is refused"),
        (StateError("the index is broken"), StateError, "the index is broken"),
    ],
)
def test_a_plugin_that_is_wrong_ends_the_job_at_once(result, error, words):
    with pytest.raises(error, match=words) as raised:
        discover_for(10, Plugin(result))
    assert "Plugin.discover" in " ".join([str(raised.value), *getattr(raised.value, "__notes__", ())])


def test_credentials_that_are_missing_now_do_not_end_the_job():
    over, found, _ = discover_for(2.5, Lister(NoCredentialsError(), [shard()]))

    assert not over
    assert len(found) == 1


@pytest.mark.parametrize("error", [RetriesExhaustedError("away"), StoreUnavailableError("away")])
def test_an_outage_that_a_plugin_tells_is_logged_with_its_method(error, caplog):
    assert not discover_for(2.5, Plugin(error))[0]
    line = "listing the shards of s failed, next attempt in 1 s: away; `Plugin.discover` for s failed"
    assert caplog.messages == [line] * 2
