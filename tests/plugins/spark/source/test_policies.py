"""The policies of docs/reference/iam-policies.md, for a query on a real Spark: driver and tasks run under exactly these."""

import pytest

from recordpublisher.local import Delays, serve_in_thread

from iam.policy_front import serve_policy
from iam.simulated_aws import load_policies
from servers.moto_server import serve_moto
from spark_jobs.queries import WAIT_SECONDS, Kinesis, numbers, to_parquet, wait_for_rows

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3 * WAIT_SECONDS)]
POLICIES = load_policies()
BATCHES = 4
NEVER_BY_SPARK = {"kinesis:DeregisterStreamConsumer"}
QUERIES = {
    "s3": (("polling", "spark-s3"), "s3://bucket/jobs/claims", {}),
    "dynamodb": (
        ("fan-out", "spark-dynamodb"),
        "dynamodb://states/claims",
        {"flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "billing"},
    ),
}


@pytest.fixture(scope="module")
def moto():
    with serve_moto() as url:
        yield url


@pytest.mark.parametrize("place", QUERIES)
def test_a_query_runs_under_its_policy_and_calls_all_that_it_allows(spark, tmp_path, moto, place):
    features, location, given = QUERIES[place]
    with (
        serve_in_thread(delays=Delays(consumer=0)) as served,
        serve_policy(hosts(served, moto), POLICIES.policy(*features)) as front,
    ):
        stream = Kinesis(served, "orders", shards=1)
        ends = {
            "aws.endpoint": front.url,
            "flink.state.endpoint": front.url,
            "metadataLocation": location,
            "minBatchesToRetain": 1,
        }
        for _ in range(2):  # a restart reads the claims
            query = to_parquet(stream.load(spark, tmp_path, **ends, **given), tmp_path)
            for count in range(10, 10 * BATCHES // 2 + 1, 10):
                stream.put(10)
                wait_for_rows(query, count)
            query.stop()

    assert numbers(spark, tmp_path) == list(range(10 * BATCHES))
    assert front.denied == set()
    assert needed(features) <= front.called


def hosts(served, moto):
    return {"kinesis": served.url, "s3": moto, "dynamodb": moto}


def needed(features):
    actions = [action for name in features for action in POLICIES.FEATURES[name].actions if not action.rare]
    return {action.name for action in actions} - NEVER_BY_SPARK
