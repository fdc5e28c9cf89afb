"""S3 and DynamoDB simulated by moto, real servers of both, a PostgreSQL, and every store by its location."""

import pytest

from recordpublisher import Properties

from servers.atomic_stores import PROPERTIES, serve_dynamodb_local, serve_versitygw
from servers.google_storage import serve_google_storage
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


@pytest.fixture(scope="session")
def google_storage():
    with serve_google_storage() as url:
        yield url


@pytest.fixture
def object_storage(request, tmp_path):
    """Opens stores over obstore's model of object storage in memory, or its client of Google Cloud Storage."""
    from obstore.store import GCSStore, MemoryStore

    from recordpublisher.plugins.stores.google_azure_store import GoogleAzureStore

    def found(kind):
        memory = MemoryStore()

        def google(uri):
            config = {"base_url": request.getfixturevalue("google_storage"), "bearer_token": "token"}
            return GCSStore.from_url(uri, config=config, client_options={"allow_http": True})

        uri = f"gs://bucket/{tmp_path.name}"
        opened = google if kind == "GOOGLE" else lambda uri: memory
        return lambda: GoogleAzureStore(uri, "uri", Properties(), opened)

    return found


URIS = {
    "FILE": "{folder}/state",
    "SQLITE": "sqlite:///{folder}/state.db",
    "S3": "s3://bucket/{name}",
    "DYNAMODB": "dynamodb://states/{name}",
}
OBJECT_STORAGE = ("OBSTORE", "GOOGLE")
ATOMIC = {"VERSITYGW": "S3", "DYNAMODB_LOCAL": "DYNAMODB"}
"""Servers whose conditional writes are atomic, which moto's are not. They need Go and Maven."""
KINDS = [
    "FILE",
    "SQLITE",
    *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("S3", "DYNAMODB")),
    *(pytest.param(kind, marks=pytest.mark.compare) for kind in ATOMIC),
]


@pytest.fixture(scope="session")
def versitygw():
    with serve_versitygw() as url:
        yield url


@pytest.fixture(scope="session")
def dynamodb_local():
    with serve_dynamodb_local() as url:
        yield url


@pytest.fixture
def locate(request, tmp_path):
    """The location of a kind of store for this test, and the properties with which it is reached."""

    def found(kind):
        if kind == "POSTGRESQL":
            return request.getfixturevalue("postgresql"), Properties()
        uri = URIS[ATOMIC.get(kind, kind)].format(folder=tmp_path, name=tmp_path.name)
        if kind in ATOMIC:
            return uri, Properties({**PROPERTIES, "flink.state.endpoint": request.getfixturevalue(kind.lower())})
        return uri, request.getfixturevalue("aws")

    return found


@pytest.fixture(params=KINDS)
def state_properties(request, locate):
    """The properties of a job whose state is in each kind of store in turn; another test is another job."""
    uri, properties = locate(request.param)
    return properties.merged({"flink.state.uri": uri, "flink.job.name": "job"})


@pytest.fixture(params=[*KINDS, *OBJECT_STORAGE, pytest.param("POSTGRESQL", marks=pytest.mark.slow)])
def open_store(request, tmp_path, locate):
    """Opens conditional stores of one location, as independent processes would."""
    from recordpublisher.plugins.stores.by_location import conditional_store_of

    if request.param in OBJECT_STORAGE:
        return request.getfixturevalue("object_storage")(request.param)
    location, properties = locate(request.param)
    return lambda: conditional_store_of(location, "uri", properties.merged({"flink.job.name": tmp_path.name}))
