"""S3 and DynamoDB as moto plays them, and every store by its URI."""

import pytest

from recordpublisher import Properties

from servers.moto_server import KEYS, serve_moto


@pytest.fixture(scope="session")
def moto_endpoint():
    with serve_moto() as url:
        yield url


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
