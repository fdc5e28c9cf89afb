"""The policies of docs/reference/iam-policies.md: each feature runs under exactly its policy, and calls all that it allows."""

import boto3
import pytest

import recordpublisher as rp
from recordpublisher.cli.doctor.streams import StreamChecks, Use
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.kinesis.management.client import ManagementClient

from iam.jobs import JOBS, Run
from iam.simulated_aws import KEYS, load_policies, serve_aws
from servers.moto_server import serve_moto

POLICIES = load_policies()
SLOW = ("polling-dynamodb", "elastic-s3", "elastic-dynamodb")
"""Together more than ten seconds."""
REFUSED = {
    "polling-s3": ("polling", "state-s3"),
    "polling-dynamodb": ("state-dynamodb",),
    "fan-out": ("fan-out",),
    "role": ("role",),
}
"""The features of each job from whose policy one action is taken."""


def actions_of(features):
    return [action for name in features for action in POLICIES.FEATURES[name].actions]


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


async def test_doctor_needs_little_more_than_the_job(moto):
    features = ("fan-out", "kinesis-sink", "doctor")
    with serve_aws(moto, POLICIES.policy(*features), {}) as (front, _, properties):
        async with ManagementClient(rp.Properties(properties), ["orders", "copies"]) as client:
            uses = {"orders": Use(consumer="billing"), "copies": Use(reads=False, writes=True)}
            checks = [StreamChecks(client, stream, use, SystemClock()) for stream, use in uses.items()]
            findings = [each for check in checks for each in await check.findings()]

    assert front.denied == set()
    assert needed_by(("doctor",)) <= front.called
    assert [each for each in findings if each.verdict.value == "PROBLEM"] == []


async def test_dynamodb_streams_are_read_under_their_policy(moto):
    dynamodb = boto3.client("dynamodb", endpoint_url=moto, **KEYS)
    dynamodb.create_table(
        TableName="orders",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
    )
    try:
        dynamodb.put_item(TableName="orders", Item={"id": {"S": "a"}})
        given = {"flink.stream.recordpublisher": "DYNAMODB_STREAMS", "flink.dynamodb.tip.empty.reads": 2}
        with serve_aws(moto, POLICIES.policy("dynamodb-streams"), given) as (front, _, properties):
            sink = rp.MemorySink()
            async with rp.DataFetcher(["orders"], properties, sink=sink) as fetcher:
                await fetcher.run_bounded(max_time=60, stop_at_tip=True)
    finally:
        dynamodb.delete_table(TableName="orders")
        dynamodb.close()

    assert len(sink.records) == 1
    assert front.denied == set()
    assert front.called == needed_by(("dynamodb-streams",))
