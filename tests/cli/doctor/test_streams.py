"""What `doctor` says about a stream, on prepared faults: each is named with its remedy."""

import pytest

from recordpublisher.cli.doctor.streams import StreamChecks, StreamUse
from recordpublisher.local import Delays, LocalKinesis, ManualClock
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.kinesis.management import ManagementClient
from recordpublisher.publishers.properties.properties import Properties

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
FAN_OUT = StreamUse(consumer="billing")
WRITES = ("PutRecord", "PutRecords")
SINK = StreamUse(reads=False, writes=("PutRecords",))


@pytest.fixture
async def endpoint():
    async with LocalKinesis(streams={"orders": 2, "copy": 1}, delays=Delays(consumer=0)) as served:
        yield served


async def found(endpoint, use, stream="orders"):
    """The verdict and words of each check by its name."""
    async with ManagementClient(Properties(endpoint.properties()), [stream]) as client:
        findings = await StreamChecks(client, stream, use, SystemClock()).findings()
    return {each.name.partition(": ")[2]: (each.verdict.value, each.words) for each in findings}


async def test_a_stream_that_can_be_read_and_written_has_no_problem(endpoint):
    checked = await found(endpoint, StreamUse(writes=WRITES))

    assert {verdict for verdict, _ in checked.values()} == {"ok"}
    for api in ("GetShardIterator", "GetRecords", "PutRecord", "PutRecords"):
        assert checked[f"kinesis:{api}"] == ("ok", "allowed")
    assert checked["clock"] == ("ok", "as that of the service")


async def test_nothing_is_changed(endpoint):
    await found(endpoint, StreamUse(consumer="billing", writes=WRITES))
    stream = endpoint.stream("orders")

    assert [len(shard.log) for shard in stream.shards.values()] == [0, 0]
    assert stream.consumers.all() == []


@pytest.mark.parametrize("api", ["GetRecords", "GetShardIterator", "PutRecord", "PutRecords"])
async def test_a_denied_action_is_named(endpoint, api):
    endpoint.faults.fail_next(api, "AccessDeniedException")

    verdict, words = (await found(endpoint, StreamUse(writes=WRITES)))[f"kinesis:{api}"]

    assert verdict == "PROBLEM"
    assert "AccessDeniedException" in words
    assert "allow this action for the identity in use" in words


async def test_nothing_is_written_to_an_endpoint_that_may_not_know_dry_run(endpoint):
    endpoint.faults.fail_next("GetShardIterator", "InternalFailure", 9, status=500)

    checked = await found(endpoint, StreamUse(writes=WRITES))

    assert checked["kinesis:GetShardIterator"][0] == "PROBLEM"
    assert checked["kinesis:PutRecords"] == ("not checked", "it is not known whether the endpoint honours DryRun")


async def test_a_job_that_polls_does_not_need_describe(endpoint):
    endpoint.faults.fail_next("DescribeStreamSummary", "AccessDeniedException")

    assert (await found(endpoint, StreamUse()))["kinesis:DescribeStreamSummary"][0] == "not checked"


async def test_an_unknown_stream_is_named_with_the_existing_ones(endpoint):
    checked = await found(endpoint, StreamUse(writes=WRITES), "order")

    words = f"stream 'order' does not exist in us-east-1 (from aws.region) at {endpoint.url}; existing streams: copy, orders"
    assert checked["kinesis:ListShards"] == ("PROBLEM", words)
    assert [name for name, (verdict, _) in checked.items() if verdict == "PROBLEM"] == ["kinesis:ListShards"]
    assert {said for name, (_, said) in checked.items() if name != "kinesis:ListShards"} == {
        "see the check kinesis:ListShards"
    }


async def test_records_of_one_key_may_be_in_no_order(endpoint):
    stream = endpoint.stream("orders")
    stream.mode, stream.distribution = "ON_DEMAND", "AUTO"

    verdict, words = (await found(endpoint, StreamUse()))["kinesis:DescribeStreamSummary"]

    assert verdict == "ok"
    assert words.endswith("AUTO record distribution: records of one key are in no order")


@pytest.mark.parametrize(("hours", "words"), [(-1, "s ahead of the service"), (1, "s behind the service")])
async def test_a_clock_that_is_off(hours, words):
    clock = ManualClock(SystemClock().now_ms() + hours * 3_600_000)
    async with LocalKinesis(streams={"orders": 1}, clock=clock) as endpoint:
        verdict, said = (await found(endpoint, StreamUse()))["clock"]

    assert verdict == "PROBLEM"
    assert said.endswith(f"{words}: set its clock")


async def called_by(endpoint, use, stream="copy", **options):
    """The calls that the checks make, and the verdict of each by its name."""
    called = []
    async with ManagementClient(Properties(endpoint.properties()), [stream]) as client:
        dry_run = client.dry_run

        async def counted(api, **parameters):
            called.append(api)
            await dry_run(api, **parameters)

        client.dry_run = counted
        findings = await StreamChecks(client, stream, use, SystemClock(), **options).findings()
    return called, {each.name.partition(": ")[2]: each.verdict.value for each in findings}


async def test_of_a_sinks_stream_only_what_the_sink_calls_is_asked_for(endpoint):
    called, checked = await called_by(endpoint, SINK, knows_dry_run=True)

    assert called == ["PutRecords"]
    assert {name for name in checked if name.startswith("kinesis:")} == {
        "kinesis:ListShards",
        "kinesis:DescribeStreamSummary",
        "kinesis:PutRecords",
    }
    assert set(checked.values()) == {"ok"}


async def test_a_right_that_the_sink_does_not_need_is_no_problem(endpoint):
    endpoint.faults.fail_next("DescribeStreamSummary", "AccessDeniedException")
    endpoint.faults.fail_next("GetShardIterator", "AccessDeniedException")

    checked = await found(endpoint, SINK, "copy")

    words = "AccessDeniedException; without this permission the job puts records of up to 1 MiB, distributed by key"
    assert checked["kinesis:DescribeStreamSummary"] == ("not checked", words)
    assert checked["kinesis:PutRecords"] == ("not checked", "it is not known whether the endpoint honours DryRun")
    assert "kinesis:GetShardIterator" not in checked


async def test_what_tags_and_a_key_of_ones_own_need_is_named(endpoint):
    endpoint.stream("orders").encryption_key = "arn:aws:kms:us-east-1:1:key/mine"

    checked = await found(endpoint, StreamUse(consumer="billing", has_tags=True, writes=WRITES))

    for action in ("kinesis:TagResource", "kms:Decrypt", "kms:GenerateDataKey"):
        assert checked[action] == ("not checked", "a check would change something: look at the IAM policy")


async def test_fan_out_by_an_arn_needs_no_description_of_the_stream(endpoint):
    endpoint.faults.fail_next("DescribeStreamSummary", "AccessDeniedException")

    assert (await found(endpoint, FAN_OUT, ARN))["kinesis:DescribeStreamSummary"][0] == "not checked"


async def test_a_registered_consumer_can_subscribe(endpoint):
    endpoint.stream("orders").consumers.register("billing")

    checked = await found(endpoint, FAN_OUT)

    assert checked["kinesis:DescribeStreamConsumer"] == ("ok", "'billing' is ACTIVE")
    assert checked["kinesis:SubscribeToShard"] == ("ok", "allowed")
    assert checked["kinesis:RegisterStreamConsumer"][0] == "not checked"


async def test_a_subscription_that_is_denied(endpoint):
    endpoint.stream("orders").consumers.register("billing")
    endpoint.faults.fail_next("SubscribeToShard", "AccessDeniedException")

    assert (await found(endpoint, FAN_OUT))["kinesis:SubscribeToShard"][0] == "PROBLEM"


async def test_a_consumer_that_the_job_will_register(endpoint):
    checked = await found(endpoint, FAN_OUT)

    assert checked["kinesis:DescribeStreamConsumer"] == ("ok", "allowed; the job registers 'billing'")
    assert checked["consumer quota"] == ("ok", "0 of 20 are registered")
    assert checked["kinesis:SubscribeToShard"] == ("not checked", "the consumer is not registered yet")


async def test_a_full_quota_of_consumers(endpoint):
    for number in range(20):
        endpoint.stream("orders").consumers.register(f"c{number}")

    verdict, words = (await found(endpoint, FAN_OUT))["consumer quota"]

    assert verdict == "PROBLEM"
    assert words.endswith("recordpublisher consumers deregister orders NAME")


async def test_a_consumer_that_is_given_by_its_arn_and_is_gone(endpoint):
    checked = await found(endpoint, StreamUse(consumer="", consumer_arn=f"{ARN}/consumer/gone:1"))

    verdict, words = checked["kinesis:SubscribeToShard"]
    assert verdict == "PROBLEM"
    assert "ResourceNotFoundException" in words
    assert "kinesis:RegisterStreamConsumer" not in checked
