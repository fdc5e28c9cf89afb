"""What a script or a command imports before its first record: it waits for all of it."""

import subprocess
import sys

import pytest

from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.spark.efo_consumers import register_consumers
from recordpublisher.publishers.properties.properties import Properties

from processes.command_line import process_environment

BASIC, KEYS = "aws.credentials.provider.basic.", ("accesskeyid", "secretkey")
SDK = {"aiobotocore", "boto3", "botocore", "aiohttp", "urllib3"}
OF_GROUPS = ("recordpublisher.fetcher.elastic", "recordpublisher.fetcher.leases.")
READ_ONE = "import recordpublisher as rp; next(rp.consume('orders', start='TRIM_HORIZON', endpoint={url!r}))"
TAIL_ONE = (
    "from recordpublisher.cli.app import app; "
    "app(['tail', 'orders', '--no-follow', '-n', '1', '--endpoint', {url!r}], standalone_mode=False)"
)
FAN_OUT = {"stream": "orders", "flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "c"}
SPARK_RESTART = f"""
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.spark.arrow_rows import ArrowRows
from recordpublisher.plugins.spark.options.spark_options import SparkOptions
from recordpublisher.plugins.spark.source.kinesis_service import KinesisService
from recordpublisher.plugins.spark.source.task_read import shard_reader
from recordpublisher.publishers.positions import StartingPosition
options = SparkOptions.parse(dict({[*FAN_OUT.items()]} + [("aws.endpoint", {{url!r}})]), keeps_claims=False)
service, rows = KinesisService(options), ArrowRows()
starts = dict.fromkeys(service.list_shards("orders"), ShardState(StartingPosition.trim_horizon()))
shard_reader(options, service.consumer_arns())(starts, Bounds(stop_at_tip=True), rows, "POLLING", is_replay=True)
assert len(rows) > 0
"""


@pytest.fixture(scope="module")
def url():
    with serve_in_thread(streams={"orders": 1}) as endpoint:
        endpoint.stream("orders").put(b"{}", "key")
        yield endpoint.url


def modules_of(script, url, **more):
    environment = process_environment(AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="s", AWS_REGION="us-east-1", **more)
    script = f"{script.format(url=url)}\nimport sys; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    return set(done.stderr.split())


@pytest.mark.parametrize("script", [READ_ONE, TAIL_ONE], ids=["consume", "tail"])
def test_the_first_record_is_read_without_the_aws_sdk_and_without_groups(script, url):
    imported = modules_of(script, url)

    assert "recordpublisher.publishers.polling.publisher" in imported
    assert imported & SDK == set()
    assert {name for name in imported if name.startswith(OF_GROUPS)} == {
        "recordpublisher.fetcher.leases.group_counters"
    }


def test_f9_a_fan_out_query_that_starts_again_needs_no_aws_sdk_before_it_subscribes(url):
    """Its driver lists shards and finds its consumer, its tasks read the last batch again by polling."""
    given = Properties(
        {**FAN_OUT, "aws.endpoint": url, "aws.region": "us-east-1", **{f"{BASIC}{key}": "a" for key in KEYS}}
    )
    assert register_consumers(["orders"], given)
    assert modules_of(SPARK_RESTART, url) & SDK == set()


def test_the_endpoint_of_the_readme_is_an_environment_variable(url):
    script = READ_ONE.replace(", endpoint={url!r}", "")
    assert modules_of(script, url, AWS_ENDPOINT_URL=url) & SDK == set()


def test_what_only_some_jobs_need_is_not_imported(url):
    """Each takes 5 to 20 ms of CPU: a look at every distribution, and at the proxies of a system. (A command has them by its library.)"""
    assert modules_of(READ_ONE, url) & {"importlib.metadata", "urllib.request"} == set()


def test_a_job_that_runs_alone_imports_nothing_of_heartbeats_and_plans(url):
    imported = modules_of("import recordpublisher.fetcher.elastic.alone_worker", url)
    assert {
        f"recordpublisher.fetcher.leases.{each}" for each in ("planning", "heartbeat", "worker")
    } & imported == set()
