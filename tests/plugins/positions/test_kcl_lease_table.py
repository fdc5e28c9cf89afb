"""The KCL's lease table in DynamoDB, simulated by moto."""

import asyncio
import uuid

import pytest

import recordpublisher as rp
from recordpublisher.plugins.positions.kcl_transfer import KclLease, KclLeaseTable

from servers.moto_server import KEYS, serve_moto


@pytest.fixture(scope="module")
def with_table():
    """Runs an async function with a new table."""
    with serve_moto() as url:
        properties = rp.Properties({"aws.region": "us-east-1", "flink.state.endpoint": url, **KEYS})

        def run(use):
            async def with_table():
                table = KclLeaseTable(f"app-{uuid.uuid4().hex}", properties)
                try:
                    await use(table)
                finally:
                    await table.close()

            asyncio.run(with_table())

        yield run


def test_leases_are_written_and_read(with_table):
    """As large as items can be, so that they take several pages."""
    leases = [KclLease(f"shard-{number}", "1" * 380_000, stream_id="1:orders:2") for number in range(4)]

    async def use(table):
        assert await table.read() is None
        await table.create()
        for lease in leases:
            await table.write(lease, None)
        assert await table.read() == leases

    with_table(use)


def test_a_lease_replaces_only_the_one_that_was_seen(with_table):
    async def use(table):
        await table.create()
        await table.write(KclLease("shard-1", "17"), None)
        (seen,) = await table.read()
        await table.write(KclLease("shard-1", "18"), seen)
        assert await table.read() == [KclLease("shard-1", "18", counter=1)]
        for wrong in (seen, None):
            with pytest.raises(rp.StateError, match=r"the lease shard-1 .* was changed in the meantime"):
                await table.write(KclLease("shard-1", "19"), wrong)
        assert await table.read() == [KclLease("shard-1", "18", counter=1)]

    with_table(use)
