"""The policies of docs/reference/iam-policies.md: each feature runs under exactly its policy, and calls all that it allows."""

import asyncio
from uuid import uuid4

import boto3
import pytest

import recordpublisher as rp
from recordpublisher.cli.doctor.examination import all_findings
from recordpublisher.cli.doctor.streams import stream_use_of

from fakes.archives import PAYLOADS, write_archive
from iam.jobs import JOBS, Run
from iam.simulated_aws import KEYS, load_policies, serve_aws
from servers.moto_server import serve_moto

pytestmark = pytest.mark.slow
POLICIES = load_policies()
SLOW = ("polling-dynamodb", "elastic-s3", "elastic-dynamodb")
"""Together more than ten seconds."""
DYNAMODB_STREAMS = {"flink.stream.recordpublisher": "DYNAMODB_STREAMS"}
QUEUE = {
    "flink.stream.recordpublisher": "QUEUE",
    "flink.queue.name": "work",
    "flink.stream.initpos": "TRIM_HORIZON",
    "flink.queue.wait": 1,
    "flink.queue.visibility.timeout": 5,
}
REFUSED = {
    "polling-s3": ("polling", "state-s3"),
    "polling-dynamodb": ("state-dynamodb",),
    "fan-out": ("fan-out",),
    "fan-out-given": ("fan-out-given",),
    "kinesis-sink": ("kinesis-sink",),
    "files-s3": ("files-s3",),
    "elastic-s3": ("elastic-s3",),
    "elastic-dynamodb": ("elastic-dynamodb",),
    "role": ("role",),
}
"""The features of each job from whose policy one action is taken."""


def actions_of(features):
    return [action for name in features for action in POLICIES.FEATURES[name].actions]


async def problems_of(properties):
    """What doctor finds wrong with the job. A quarter of a lease is the time for an answer of a group's store."""
    job = rp.Properties({"flink.sink": "memory", "flink.lease.duration": "120000", **properties})
    findings = await all_findings(job, {"orders": stream_use_of(job, "orders", writes=False)}, has_job=True)
    return [each for each in findings if each.verdict.value == "PROBLEM"]


def needed_by(features):
    return {action.name for action in actions_of(features) if not action.rare}


@pytest.fixture(scope="module")
def moto():
    with serve_moto() as url:
        yield url


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in JOBS])
async def test_a_job_runs_under_its_policy_and_calls_all_that_it_allows(moto, name):
    job = JOBS[name]
    needed = needed_by(job.features)
    with serve_aws(moto, POLICIES.policy(*job.features), job.properties) as (front, served, properties):
        await Run(served, properties, front.called, needed, job.restarts).read_all()

    assert front.denied == set()
    assert needed <= front.called


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "action"),
    [
        (name, action.name)
        for name, features in REFUSED.items()
        for action in actions_of(features)
        if not (action.rare or action.without)
    ],
)
async def test_a_job_without_the_right_to_an_action_fails_and_names_it(moto, name, action):
    job = JOBS[name]
    policy = POLICIES.document(each for each in actions_of(job.features) if each.name != action)
    with (
        serve_aws(moto, policy, job.properties) as (front, served, properties),
        pytest.raises(rp.RecordPublisherError, match=action),
    ):
        await Run(served, properties, front.called, needed_by(job.features), job.restarts).read_all()


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
async def test_doctor_finds_no_problem_under_the_policy_of_a_job(moto, name):
    job = JOBS[name]
    with serve_aws(moto, POLICIES.policy(*job.features, "doctor"), job.properties) as (front, _, properties):
        problems = await problems_of(properties)

    assert front.denied == set()
    assert problems == []


@pytest.mark.usefixtures("changed_table")
async def test_doctor_of_a_table_finds_no_problem_under_the_policy_of_its_job(moto):
    with serve_aws(moto, POLICIES.policy("dynamodb-streams"), DYNAMODB_STREAMS) as (front, _, properties):
        problems = await problems_of(properties)

    assert front.denied == set()
    assert front.called == needed_by(("dynamodb-streams",))
    assert problems == []


@pytest.fixture
def changed_table(moto):
    """The table `orders`, whose stream has one change."""
    dynamodb = boto3.client("dynamodb", endpoint_url=moto, **KEYS)
    dynamodb.create_table(
        TableName="orders",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
    )
    dynamodb.put_item(TableName="orders", Item={"id": {"S": "a"}})
    yield
    dynamodb.delete_table(TableName="orders")
    dynamodb.close()


async def changes(properties):
    sink = rp.MemorySink()
    async with rp.DataFetcher(["orders"], {**properties, **DYNAMODB_STREAMS}, sink=sink) as fetcher:
        await fetcher.run_bounded(max_time=60, stop_at_tip=True)
    return sink.records


@pytest.mark.usefixtures("changed_table")
async def test_dynamodb_streams_are_read_under_their_policy(moto):
    with serve_aws(moto, POLICIES.policy("dynamodb-streams"), {}) as (front, _, properties):
        assert len(await changes(properties)) == 1

    assert front.denied == set()
    assert front.called == needed_by(("dynamodb-streams",))


@pytest.mark.usefixtures("changed_table")
@pytest.mark.parametrize("action", sorted(needed_by(("dynamodb-streams",))))
async def test_dynamodb_streams_without_the_right_to_an_action_fail_and_name_it(moto, action):
    policy = POLICIES.document(each for each in actions_of(("dynamodb-streams",)) if each.name != action)
    with (
        serve_aws(moto, policy, {}) as (_, _, properties),
        pytest.raises(rp.RecordPublisherError, match=action),
    ):
        await changes(properties)


@pytest.fixture
async def archive(moto):
    """The properties of a job that reads an archive of 24 records, and nothing else."""
    place = f"s3://bucket/lake/orders/{uuid4().hex}"
    keys = {"aws.credentials.provider.basic.accesskeyid": "a", "aws.credentials.provider.basic.secretkey": "s"}
    given = {**keys, "aws.region": "us-east-1", "flink.state.endpoint": moto}
    path = {"flink.sink.parquet.path": place, "flink.sink.archive": "true"}
    await write_archive(place, rp.ParquetSink, (5, 14), sink=rp.ParquetSink(rp.Properties({**given, **path})))
    return {
        "flink.stream.recordpublisher": "ARCHIVE",
        "flink.archive.uri": place,
        "flink.archive.live": "NONE",
        "flink.stream.initpos": "TRIM_HORIZON",
    }


async def past(properties):
    sink = rp.MemorySink()
    async with rp.DataFetcher(["orders"], properties, sink=sink) as fetcher:
        await fetcher.run_bounded(max_time=60)
    return [record.data for record in sink.records]


async def test_an_archive_is_read_under_its_policy(moto, archive):
    with serve_aws(moto, POLICIES.policy("archive-s3"), archive) as (front, _, properties):
        assert await past(properties) == PAYLOADS

    assert front.denied == set()
    assert front.called == needed_by(("archive-s3",))


@pytest.mark.parametrize("action", sorted(needed_by(("archive-s3",))))
async def test_an_archive_without_the_right_to_an_action_fails_and_names_it(moto, archive, action):
    policy = POLICIES.document(each for each in actions_of(("archive-s3",)) if each.name != action)
    with (
        serve_aws(moto, policy, archive) as (_, _, properties),
        pytest.raises(rp.RecordPublisherError, match=action),
    ):
        await past(properties)


async def test_doctor_finds_no_problem_under_the_policy_of_an_archive(moto, archive):
    with serve_aws(moto, POLICIES.policy("polling", "archive-s3", "doctor"), archive) as (front, _, properties):
        problems = await problems_of({**properties, "flink.archive.live": "POLLING"})

    assert front.denied == set()
    assert "s3:GetObject" in front.called
    assert problems == []


async def work(served, properties):
    """Handle one record of a new queue, which is prolonged meanwhile."""
    kinesis = boto3.client("kinesis", endpoint_url=served.url, **KEYS)
    arn = kinesis.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"]["StreamARN"]
    kinesis.update_stream_mode(StreamARN=arn, StreamModeDetails={"StreamMode": "ON_DEMAND"})
    kinesis.get_waiter("stream_exists").wait(StreamName="orders")
    kinesis.put_record(StreamName="orders", Data=b"a", PartitionKey="k")
    kinesis.close()
    handled = []

    async def handle(record):
        await asyncio.sleep(4)
        handled.append(record.data)

    async with rp.DataFetcher(["orders"], {**properties, **QUEUE}, sink=rp.MapSink(handle)) as fetcher:
        await fetcher.run_bounded(max_time=6)
    return handled


async def test_a_queue_is_read_under_its_policy(moto):
    with serve_aws(moto, POLICIES.policy("queue"), {}) as (front, served, properties):
        assert await work(served, properties) == [b"a"]

    assert front.denied == set()
    assert needed_by(("queue",)) <= front.called <= {action.name for action in actions_of(("queue",))}


@pytest.mark.parametrize("action", sorted(needed_by(("queue",))))
async def test_a_queue_without_the_right_to_an_action_fails_and_names_it(moto, action):
    policy = POLICIES.document(each for each in actions_of(("queue",)) if each.name != action)
    with (
        serve_aws(moto, policy, {}) as (_, served, properties),
        pytest.raises(rp.RecordPublisherError, match=action),
    ):
        await work(served, properties)
