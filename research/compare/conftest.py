"""moto keeps its tables for as long as the process lives: each test begins without those of the test before."""

import pytest
from moto.moto_api._internal.models import moto_api_backend


@pytest.fixture(autouse=True)
def _no_tables():
    yield
    moto_api_backend.reset()
