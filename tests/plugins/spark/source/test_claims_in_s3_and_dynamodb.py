"""Claims in S3 and DynamoDB, used by a driver and its workers in their own processes."""

import pytest

from servers.moto_server import serve_moto
from spark_jobs.queries import WAIT_SECONDS, numbers, to_parquet, wait_for_rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * WAIT_SECONDS)]


@pytest.fixture(scope="module")
def moto_endpoint():
    with serve_moto() as url:
        yield url


@pytest.mark.parametrize("location", ["s3://bucket/claims", "dynamodb://claims/query"])
def test_every_record_once_through_a_restart(spark, kinesis, tmp_path, moto_endpoint, location):
    stream = kinesis(location.partition(":")[0])
    stream.put(500)
    options = {"metadataLocation": location, "flink.state.endpoint": moto_endpoint}
    for count in (500, 300):
        query = to_parquet(stream.load(spark, tmp_path, **options), tmp_path)
        wait_for_rows(query, count)
        query.stop()
        stream.put(300)

    assert numbers(spark, tmp_path) == list(range(800))
    assert not (tmp_path / "claims").exists()
