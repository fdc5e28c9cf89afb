"""Credentials that live for ten seconds, in driver, tasks and stores: a query reads on, and no call is made with expired ones."""

from __future__ import annotations

import re
import time
from collections import defaultdict

import pytest

from recordpublisher.local import Delays, serve_in_thread

from iam.policy_front import PolicyFront, serve_front
from servers.moto_server import serve_moto
from spark_jobs.queries import WAIT_SECONDS, Kinesis, numbers, rows_so_far, to_parquet, wait_for_rows

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3 * WAIT_SECONDS)]
LIFE_SECONDS = 10
LIVES = 3
EVERYTHING = {"Statement": []}
PROCESS = f"""#!/bin/sh
expiration=$(date -u -d '+{LIFE_SECONDS} seconds' +%Y-%m-%dT%H:%M:%SZ)
printf '{{"Version": 1, "AccessKeyId": "T%s", "SecretAccessKey": "s", "SessionToken": "t", "Expiration": "%s"}}' "$(date +%s)" "$expiration"
"""


class ExpiringKeys(PolicyFront):
    """Keys are named by the second in which they were issued."""

    def __init__(self, services: dict[str, str]) -> None:
        super().__init__(services, EVERYTHING)
        self.expired = 0
        self.keys: dict[str, set[str]] = defaultdict(set)

    def has_expired(self, headers):
        key, service = re.search(r"Credential=T([0-9]+)/[^/]*/[^/]*/([^/]*)/", headers["Authorization"]).groups()
        self.keys[service].add(key)
        has_expired = time.time() - int(key) > LIFE_SECONDS + 1
        self.expired += has_expired
        return has_expired

    def _allows(self, action, resource):
        return True


@pytest.fixture(scope="module")
def moto():
    with serve_moto() as url:
        yield url


@pytest.mark.parametrize(
    ("location", "given"),
    [
        ("s3://bucket/short", {}),
        (
            "dynamodb://short/claims",
            {"flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "short"},
        ),
    ],
    ids=["polling-s3", "fan-out-dynamodb"],
)
def test_a_query_outlives_its_credentials(spark, tmp_path, moto, location, given):
    process = tmp_path / "keys.sh"
    process.write_text(PROCESS)
    process.chmod(0o755)
    profiles = tmp_path / "profiles"
    profiles.write_text(f"[short]\ncredential_process = {process}\n")
    keys = {
        "aws.credentials.provider": "PROFILE",
        "aws.credentials.provider.profile.name": "short",
        "aws.credentials.provider.profile.path": profiles,
        "aws.region": "us-east-1",
    }
    with serve_in_thread(delays=Delays(consumer=0)) as served:
        services = {"kinesis": served.url, "s3": moto, "dynamodb": moto}
        with serve_front(ExpiringKeys(services)) as front:
            stream = Kinesis(served, "orders", shards=2)
            stream.put(100)
            places = {"metadataLocation": location, "aws.endpoint": front.url, "flink.state.endpoint": front.url}
            options = stream.options(tmp_path, **{**places, **keys, **given})
            for key in ("accesskeyid", "secretkey"):
                options.pop(f"aws.credentials.provider.basic.{key}", None)
            query = to_parquet(with_numbers(spark.readStream.format("kinesis").options(**options).load()), tmp_path)
            wait_for_rows(query, 100)
            until = time.monotonic() + LIVES * LIFE_SECONDS
            while time.monotonic() < until:
                stream.put(10)
                wait_for_rows(query, stream.count)
            query.stop()
    assert rows_so_far(query) == stream.count
    assert numbers(spark, tmp_path) == list(range(stream.count))
    assert front.expired == 0
    assert set(front.keys) == {"kinesis", location.partition(":")[0]}
    assert all(len(keys) > LIVES for keys in front.keys.values())


def with_numbers(frame):
    from pyspark.sql import functions as f

    return frame.select("*", f.get_json_object(f.col("data").cast("string"), "$.n").cast("long").alias("n"))
