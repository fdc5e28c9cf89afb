"""A record that is not what its name says is refused: nothing is deleted or sealed by the name that it contains (E3)."""

import pytest

from recordpublisher.fetcher.leases.documents.group_store import WORKERS, GroupStore
from recordpublisher.fetcher.leases.documents.worker_record import WorkerRecord
from recordpublisher.publishers.errors import StateError

from fakes.memory_store import MemoryStore


@pytest.mark.parametrize("worker", ["../../../victim/x", "b", "", 7, ["a"]])
async def test_a_record_of_another_name_is_refused(worker):
    store = MemoryStore()
    await store.put_if_absent(f"{WORKERS}a", WorkerRecord(worker, is_sealed=True).to_bytes())
    with pytest.raises(
        StateError, match=r"group/workers/a in memory .*: delete it, if no worker of this group has that name"
    ):
        await GroupStore(store).read_records()
