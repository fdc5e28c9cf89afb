"""A PostgreSQL for the tests of this folder."""

import pytest

from servers.postgresql import serve_postgresql


@pytest.fixture(scope="session")
def postgresql():
    with serve_postgresql() as uri:
        yield uri
