"""S3 and DynamoDB simulated by moto, a PostgreSQL, and every store by its location."""

import pytest

from recordpublisher import Properties

from servers.moto_server import KEYS, serve_moto
from servers.postgresql import serve_postgresql


@pytest.fixture(scope="session")
def moto_endpoint():
    with serve_moto() as url:
        yield url


@pytest.fixture(scope="session")
def postgresql():
    with serve_postgresql() as uri:
        yield uri


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


@pytest.fixture(params=[*URIS, "POSTGRESQL"])
def open_store(request, tmp_path, aws):
    """Opens conditional stores of one location, as independent processes would."""
    from recordpublisher.plugins.stores.by_location import conditional_store_of

    if request.param == "POSTGRESQL":
        location = request.getfixturevalue("postgresql")
    else:
        location = URIS[request.param].format(folder=tmp_path, name=tmp_path.name)
    return lambda: conditional_store_of(location, "uri", aws, job=tmp_path.name)
