"""Groups of real processes over each store of positions."""

import pytest

from groups.stores import STORES
from groups.worker_group import SHARDS, TIMES, worker_group

NEEDS_TOOLS = ("dynamodb", "s3")
"""Maven and Go: they belong to `make compare`."""


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.compare if name in NEEDS_TOOLS else pytest.mark.kills) for name in STORES
    ]
)
def store(request, tmp_path):
    """The properties of a store."""
    with STORES[request.param](tmp_path) as properties:
        yield properties


@pytest.fixture
def group(store, tmp_path):
    with worker_group(tmp_path, SHARDS, {**store, **TIMES}) as group:
        yield group
