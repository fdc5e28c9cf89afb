"""ShardLister: the publisher's own source first, otherwise Kinesis; how long records are kept (S5)."""

import asyncio
import socket
from contextlib import suppress
from dataclasses import replace

import pytest

from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.runtime.shard_lister import ShardLister
from recordpublisher.plugins.runtime.stream_names import stream_names
from recordpublisher.publishers.base import RecordPublisherFactory
from recordpublisher.publishers.errors import (
    FatalKinesisError,
    PluginError,
    ResourceNotFoundError,
    RetriesExhaustedError,
    StreamNotFoundError,
    TransientError,
)
from recordpublisher.publishers.kinesis.ports import ReadResponse
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.shards import HashRange, OldestRecord, Shard
from recordpublisher.testing.virtual_time import EPOCH_MS, VirtualClock, run_virtual

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
HOUR = 3_600_000


class Factory(RecordPublisherFactory):
    async def create(self, shard, starting_position, metrics):
        raise NotImplementedError


class OwnFactory(Factory):
    def __init__(self, own):
        self.own = own

    async def discover(self, stream):
        return self.own


class Client:
    """A fake Kinesis client; it raises `failures` first."""

    def __init__(self, *failures):
        self.failures, self.asked, self.closed = list(failures), [], 0

    async def list_shards(self, stream):
        return await self._answer(stream, [Shard("orders", "a")])

    async def get_shard_iterator(self, shard, position):
        return await self._answer(shard.stream_arn or shard.stream, "iterator")

    async def server_time_ms(self, stream):
        return await self._answer(stream, 100 * HOUR)

    async def retention_ms(self, stream):
        return await self._answer(stream, 24 * HOUR)

    async def close(self):
        self.closed += 1

    async def _answer(self, stream, answer):
        self.asked.append(stream)
        if self.failures:
            raise self.failures.pop(0)
        return answer


def lister(client=None, own=None, ends_open_shards=False):
    factory = Factory() if own is None else OwnFactory(own)
    factory.ends_open_shards = ends_open_shards
    made = ShardLister(factory, Properties({"aws.region": "eu-west-1"}), stream_names(ARN), VirtualClock())
    made._client = client
    return made


def test_a_publisher_with_its_own_source_lists_its_shards_itself():
    client, shards = Client(), [Shard("orders", "file")]

    assert run_virtual(lister(client, shards).list_shards("orders")) == shards
    assert run_virtual(lister(client, shards).server_time_ms("orders")) == EPOCH_MS
    assert run_virtual(lister(client, shards).oldest_retained_ms("orders")) is None
    assert client.asked == []


class HasOlderShards(Factory):
    def __init__(self, unlisted, own=None):
        self.unlisted, self.own = unlisted, own

    async def unlisted_shards(self, stream, listed):
        return self.unlisted

    @property
    def lists_shards(self):
        return self.own is not None

    async def discover(self, stream):
        return self.own

    async def oldest_record(self, shard):
        return OldestRecord("7", 1)

    async def oldest_retained_ms(self, stream):
        return 5


def lister_of(factory):
    client = Client()
    made = ShardLister(factory, Properties({"aws.region": "eu-west-1"}), stream_names(ARN), VirtualClock())
    made._client = client
    return made, client


def test_shards_that_only_the_publisher_still_has_join_a_complete_listing():
    """One of a listed shard's id has the parents that the service has forgotten."""
    listed = [Shard("orders", "a")]
    old = Shard("orders", "shardId-old", closed=True, is_unlisted=True)
    child = replace(listed[0], parents=("shardId-old",))
    made, _ = lister_of(HasOlderShards([old, child]))
    assert run_virtual(made.list_shards("orders")) == [child, old]
    made, _ = lister_of(HasOlderShards([Shard("other", "a")]))
    with pytest.raises(
        PluginError, match=r"HasOlderShards\.unlisted_shards returned other/a, a shard of another stream"
    ):
        run_virtual(made.list_shards("orders"))


def test_a_publisher_with_its_own_source_tells_what_it_still_has():
    made, client = lister_of(HasOlderShards([], [Shard("orders", "file")]))
    assert run_virtual(made.oldest_record(Shard("orders", "file"))) == OldestRecord("7", 1)
    assert run_virtual(made.oldest_retained_ms("orders")) == 5
    assert client.asked == []


@pytest.mark.parametrize("listed", [None, ["a"], 7])
@pytest.mark.parametrize("call", ["list_shards", "server_time_ms"])
def test_a_publisher_that_lists_no_shards_of_its_own_source_is_not_answered_by_kinesis(listed, call):
    client = Client()
    made = ShardLister(OwnFactory(listed), Properties({}), stream_names(ARN), VirtualClock())
    made._client = client
    with pytest.raises(PluginError, match=r"OwnFactory\.discover returned .* for orders: return a list of Shard"):
        run_virtual(getattr(made, call)("orders"))
    assert client.asked == []


@pytest.mark.parametrize(
    ("shards", "words"),
    [
        (
            [Shard("orders", "a"), Shard("orders", "b"), Shard("orders", "a", closed=True)],
            "returned 'a' twice for orders",
        ),
        ([Shard("orders", "a"), Shard("returns", "b")], "returned returns/b, a shard of another stream, for orders"),
    ],
)
def test_a_publisher_that_lists_a_shard_twice_or_one_of_another_stream_is_refused(shards, words):
    with pytest.raises(PluginError, match=rf"OwnFactory\.discover {words}: return each shard of this stream once"):
        run_virtual(lister(Client(), shards).list_shards("orders"))


def test_what_discover_raises_names_the_publisher_and_the_stream():
    class Failing(OwnFactory):
        async def discover(self, stream):
            raise ConnectionError("broken pipe")

    made = ShardLister(Failing([]), Properties({}), stream_names(ARN), VirtualClock())
    with pytest.raises(ConnectionError) as raised:
        run_virtual(made.list_shards("orders"))
    assert raised.value.__notes__ == ["`Failing.discover` for orders failed"]


class Flaky(Factory):
    """Its `discover` fails from the second call on, `failures` times."""

    def __init__(self, failures):
        self.calls, self.failures = 0, failures

    async def discover(self, stream):
        self.calls += 1
        if 1 < self.calls <= 1 + self.failures:
            raise ConnectionError("network away")
        return [Shard(stream, "a")]


async def listed_twice(factory):
    made = ShardLister(factory, Properties({"flink.job.max.outage": 60_000}), {"orders": "orders"}, VirtualClock())
    await made.list_shards("orders")
    began = asyncio.get_running_loop().time()
    with suppress(ConnectionError):
        return await made.list_shards("orders")
    return asyncio.get_running_loop().time() - began


def test_an_error_of_a_later_discover_is_retried_as_is_one_of_list_shards():
    assert run_virtual(listed_twice(Flaky(3))) == [Shard("orders", "a")]


def test_an_error_of_a_later_discover_is_raised_itself_after_the_longest_outage(caplog):
    assert 55 < run_virtual(listed_twice(Flaky(1_000_000))) <= 60
    assert "calls to Flaky.discover have failed for" in caplog.text
    assert "ConnectionError: network away" in caplog.text


class Unmounted(Flaky):
    """Its folder is missing from the second call on, `failures` times."""

    async def discover(self, stream):
        self.calls += 1
        if 1 < self.calls <= 1 + self.failures:
            raise StreamNotFoundError(stream)
        return [Shard(stream, "a")]


async def seconds_to_be_gone(factory, properties):
    made = ShardLister(factory, Properties(properties), {"orders": "orders"}, VirtualClock())
    await made.list_shards("orders")
    began = asyncio.get_running_loop().time()
    while True:
        try:
            return await made.list_shards("orders")
        except StreamNotFoundError:
            return asyncio.get_running_loop().time() - began
        except RetriesExhaustedError:  # The periodic listing comes again.
            await asyncio.sleep(1)


@pytest.mark.parametrize("outage_ms", [900_000, 5_000])
def test_a_stream_that_was_listed_counts_as_deleted_when_it_is_missing_for_a_minute(outage_ms):
    """A folder that is mounted again is away for seconds."""
    properties = {"flink.job.max.outage": outage_ms}

    assert run_virtual(seconds_to_be_gone(Unmounted(5), properties)) == [Shard("orders", "a")]
    assert 60 <= run_virtual(seconds_to_be_gone(Unmounted(1_000_000), properties)) < 70


def test_each_absence_of_a_stream_has_a_minute_of_its_own():
    class Twice(Unmounted):
        async def discover(self, stream):
            self.calls = 1 if self.calls == 20 else self.calls
            await asyncio.sleep(5)
            return await super().discover(stream)

    async def listed_four_times():
        made = ShardLister(Twice(8), Properties({}), {"orders": "orders"}, VirtualClock())
        return [await made.list_shards("orders") for _ in range(20)]

    assert run_virtual(listed_four_times()) == [[Shard("orders", "a")]] * 20


def test_a_stream_that_was_never_listed_does_not_exist():
    async def listed():
        made = ShardLister(Unmounted(9), Properties({}), {"orders": "orders"}, VirtualClock())
        await made.list_shards("orders")
        with pytest.raises(StreamNotFoundError):
            await made.list_shards("others")
        return asyncio.get_running_loop().time()

    assert run_virtual(listed()) == 0


def test_kinesis_is_called_by_arn_and_again_after_transient_errors():
    client = Client(TransientError("ListShards", "InternalFailure", "again"))

    assert run_virtual(lister(client).list_shards("orders")) == [Shard("orders", "a")]
    assert client.asked == [ARN, ARN]


def test_a_region_of_an_arn_that_cannot_be_reached_is_named():
    client = Client(*[TransientError("ListShards", "EndpointConnectionError", "no")] * 1_000)
    made = ShardLister(Factory(), Properties({}), stream_names(ARN), VirtualClock())
    made._client = client

    with pytest.raises(
        RetriesExhaustedError, match=r"ListShards failed .*the endpoint is that of the region eu-west-1, or of AWS"
    ):
        run_virtual(made.list_shards("orders"))


def test_a_listing_that_stays_empty_is_an_error():
    client = Client()
    client._answer = lambda *_: asyncio.sleep(0, [])

    with pytest.raises(RetriesExhaustedError, match="ListShards names no shard of orders, 6 times in a row"):
        run_virtual(lister(client).list_shards("orders"))


REFUSED = TransientError("ListShards", "EndpointConnectionError", "connection refused")
OF_RUN = {"aws.region": "eu-west-1"}


def started_with(client, properties):
    """How often a lister called until it gave up or succeeded, at its first call."""
    made = ShardLister(Factory(), Properties(properties), stream_names(ARN), VirtualClock(), client)
    with suppress(RetriesExhaustedError):
        run_virtual(made.list_shards("orders"))
    return len(client.asked)


def test_a_service_that_is_away_at_the_start_is_waited_for_as_in_the_run():
    assert started_with(Client(*[REFUSED] * 100), OF_RUN) == 101
    assert started_with(Client(*[REFUSED] * 100), {**OF_RUN, "flink.list.shards.maxretries": 10}) == 4


def test_retries_of_the_listing_that_are_set_are_those_of_the_start():
    assert started_with(Client(*[REFUSED] * 100), {**OF_RUN, "flink.list.shards.maxretries": 0}) == 1


def test_an_endpoint_that_dns_does_not_know_is_tried_a_few_times_at_the_start():
    unknown = TransientError("ListShards", "EndpointConnectionError", "no")
    unknown.__cause__ = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    dns_is_away = TransientError("ListShards", "EndpointConnectionError", "no")
    dns_is_away.__cause__ = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    assert started_with(Client(*[unknown] * 100), OF_RUN) == 4
    assert started_with(Client(*[dns_is_away] * 100), OF_RUN) == 101


def test_the_oldest_retained_time_follows_from_the_retention_period():  # S5
    assert run_virtual(lister(Client()).oldest_retained_ms("orders")) == 76 * HOUR


def test_a_job_without_the_right_to_read_the_retention_period_runs_with_one_warning(caplog):  # S5
    denied = [FatalKinesisError("DescribeStreamSummary", "AccessDeniedException", "no") for _ in range(3)]
    made = lister(Client(*denied))

    async def asked():
        first = await made.oldest_retained_ms("orders")
        return first, await made.oldest_retained_ms("orders"), await made.retention_ms("orders")

    assert run_virtual(asked()) == (None, None, None)
    assert caplog.text.count("the retention of orders is not known") == 1


class Reading(Client):
    """A client whose shards have some responses."""

    def __init__(self, *responses):
        super().__init__()
        self.responses = list(responses)

    async def get_shard_iterator(self, shard, position):
        assert position == StartingPosition.trim_horizon()
        return "iterator"

    async def get_records(self, shard, iterator, limit):
        return self.responses.pop(0)


def test_the_oldest_record_of_a_shard_is_read_behind_empty_responses():  # S5
    record = UserRecord(b"", "7", 1.5)
    client = Reading(ReadResponse([], 9, "next"), ReadResponse([record], 9, "next"))

    assert run_virtual(lister(client).oldest_record(Shard("orders", "a"))) == OldestRecord("7", 1_500)


def test_a_shard_without_records_has_no_oldest_one():  # S5
    assert (
        run_virtual(lister(Reading(ReadResponse([], 0, "next"))).oldest_record(Shard("orders", "a"))) == OldestRecord()
    )


def test_a_source_of_its_own_says_nothing_about_its_oldest_record():  # S5
    made = lister(own=[Shard("orders", "a")])

    assert run_virtual(made.oldest_record(Shard("orders", "a"))) is None


def test_an_own_client_is_closed():
    client = Client()
    run_virtual(lister(client).close())
    run_virtual(lister().close())

    assert client.closed == 1


@pytest.mark.parametrize("lent", [True, False])
def test_a_factorys_client_is_shared_and_stays_open(lent):
    client, own = Client(), Client()

    class Lending(Factory):
        def shared_client(self, streams):
            assert streams == [ARN]
            return client if lent else None

    made = ShardLister(Lending(), Properties({"aws.region": "eu-west-1"}), stream_names(ARN), VirtualClock())
    if not lent:
        made._client = own

    async def job():
        shards = await made.list_shards("orders")
        await made.close()
        return shards

    assert run_virtual(job()) == [Shard("orders", "a")]
    assert (client.asked, own.asked) == (([ARN], []) if lent else ([], [ARN]))
    assert (client.closed, own.closed) == (0, 0 if lent else 1)


@pytest.mark.parametrize("publisher", ["POLLING", "EFO"])
def test_a_job_has_one_client(publisher):
    properties = Properties({"aws.region": "eu-west-1", "flink.stream.efo.consumername": "c"})
    factory = load_registry().publishers.get(publisher, "key")(properties)
    factory.prepare([ARN])
    made = ShardLister(factory, properties, stream_names(ARN), VirtualClock())

    assert made._kinesis_client() is made._kinesis_client() is factory.shared_client([ARN])


def test_the_retention_period_is_returned_if_known():  # A1
    assert run_virtual(lister(Client()).retention_ms("orders")) == 24 * HOUR
    assert run_virtual(lister(own=[Shard("orders", "a")]).retention_ms("orders")) is None


def test_an_unknown_retention_period_is_no_error():  # A1
    gone = Client(*[TransientError("DescribeStreamSummary", "Slow", "down")] * 1_000)

    assert run_virtual(lister(gone).retention_ms("orders")) is None


def test_a_publisher_with_its_own_source_has_no_tip_and_is_listed_once():  # A2
    made = lister(own=[Shard("orders", "a")])
    listings = []
    made._factory.discover = _counted(made._factory.discover, listings)

    async def looks():
        start = StartingPosition.trim_horizon()
        return [await made.tip(Shard("orders", "a"), start) for _ in range(3)]

    assert run_virtual(looks()) == [None] * 3
    assert listings == ["orders"]


def _counted(discover, listings):
    async def counted(stream):
        listings.append(stream)
        return await discover(stream)

    return counted


@pytest.mark.parametrize(
    ("failures", "exists"),
    [
        ([], True),
        ([ResourceNotFoundError("GetShardIterator", "ResourceNotFoundException", "gone")], False),
        ([FatalKinesisError("GetShardIterator", "AccessDeniedException", "no")], None),
    ],
)
def test_whether_a_shard_exists_is_asked_at_the_shard(failures, exists):  # S2, S5: a listing may lack it
    made = lister(Client(*failures))
    made._is_own["orders"] = False

    assert run_virtual(made.shard_exists(Shard("orders", "a"))) is exists


def test_a_shard_of_a_stream_in_another_account_is_asked_for_by_the_streams_arn():  # by its name, it would not be found
    client = Client()
    made = lister(client)
    made._is_own["orders"] = False

    assert run_virtual(made.shard_exists(Shard("orders", "a"))) is True
    assert client.asked == [ARN]


def test_a_source_of_the_publisher_does_not_tell_whether_a_shard_exists_and_may_end():
    made = lister(Client(), own=[])

    assert run_virtual(made.shard_exists(Shard("orders", "a"))) is None
    assert not made.is_endless("orders")


def test_a_source_whose_service_reports_ends_before_its_listing_does_not_end():  # S8, as DynamoDB Streams
    made = lister(Client(), own=[Shard("orders", "a", closed=True)], ends_open_shards=True)
    run_virtual(made.list_shards("orders"))

    assert made.is_endless("orders")


def test_a_stream_of_kinesis_does_not_end():  # S8
    made = lister(Client())
    assert not made.is_endless("orders"), "not listed yet"
    run_virtual(made.list_shards("orders"))

    assert made.is_endless("orders")


class LateListing(Client):
    """Its first listings lack a shard."""

    def __init__(self, incomplete):
        super().__init__()
        self.left = incomplete

    async def list_shards(self, stream):
        self.left -= 1
        halves = [
            Shard("orders", "a", hash_range=HashRange(end=9)),
            Shard("orders", "b", hash_range=HashRange(start=10)),
        ]
        return await self._answer(stream, halves[:1] if self.left >= 0 else halves)


@pytest.mark.parametrize("incomplete", [1, 5])
def test_a_first_listing_that_lacks_an_open_shard_is_made_again(incomplete):
    client = LateListing(incomplete)

    assert [shard.shard_id for shard in run_virtual(lister(client).list_shards("orders"))] == ["a", "b"]


def test_a_listing_that_stays_incomplete_is_used_with_a_warning(caplog):
    client = LateListing(100)

    assert [shard.shard_id for shard in run_virtual(lister(client).list_shards("orders"))] == ["a"]
    assert "lacks the shard of hash keys 10 to " in caplog.text


@pytest.mark.parametrize(
    ("offset_ms", "words"),
    [
        (
            120_000,
            "is 2 min ahead of that of Kinesis, so lags and the ages of records (max_age of MapSink) are too large",
        ),
        (
            -120_000,
            "is 2 min behind that of Kinesis, so lags and the ages of records (max_age of MapSink) are too small",
        ),
        (4_000, None),
        (-4_000, None),
    ],
)
def test_a_clock_that_differs_from_that_of_the_service_is_told_once(offset_ms, words, caplog):
    class Timed(Client):
        async def server_time_ms(self, stream):
            return (EPOCH_MS - offset_ms) // 1000 * 1000

    async def run():
        made = lister(Timed())
        return [await made.retention_ms("orders") for _ in range(2)]

    run_virtual(run())
    told = [line for line in caplog.messages if "the clock of this machine" in line]
    assert len(told) == (words is not None)
    assert all(words in line for line in told)


def test_a_service_that_does_not_tell_its_time_is_no_reason_for_a_line(caplog):
    class Silent(Client):
        async def server_time_ms(self, stream):
            raise FatalKinesisError("ListShards", "NoDate", "no")

    assert run_virtual(lister(Silent()).retention_ms("orders")) is not None
    assert caplog.messages == []
