"""S3 and DynamoDB as moto plays them, and every store by its URI."""

import boto3
import pytest
from moto.server import ThreadedMotoServer

from recordpublisher import Properties

KEYS = {"aws.credentials.provider.basic.accesskeyid": "a", "aws.credentials.provider.basic.secretkey": "s3cr3t"}


@pytest.fixture(scope="session")
def moto_endpoint():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    s3 = boto3.client("s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="s")
    s3.create_bucket(Bucket="bucket")
    s3.close()
    yield url
    server.stop()


@pytest.fixture
def aws(moto_endpoint):
    return Properties({"aws.region": "us-east-1", "flink.state.endpoint": moto_endpoint, **KEYS})


URIS = {
    "FILE": "{folder}/state",
    "SQL": "sqlite:///{folder}/state.db",
    "S3": "s3://bucket/{name}",
    "DYNAMODB": "dynamodb://states/{name}",
}


@pytest.fixture(params=URIS)
def state_properties(request, tmp_path, aws):
    """The properties of a job whose state is in each kind of store in turn; another test is another job."""
    uri = URIS[request.param].format(folder=tmp_path, name=tmp_path.name)
    return aws.merged({"flink.state.uri": uri, "flink.job.name": "job"})
