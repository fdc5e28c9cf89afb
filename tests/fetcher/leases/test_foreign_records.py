"""A record that is not what its name says is refused: nothing is deleted or sealed by the name that it contains (E3)."""

import json

import pytest

from recordpublisher.fetcher.leases.group_store import WORKERS, GroupStore
from recordpublisher.publishers.errors import StateError

from fakes.memory_store import MemoryStore


async def refusal(**entries):
    store = MemoryStore()
    await store.put_if_absent(f"{WORKERS}a", json.dumps({"format": 1, "worker": "a", "beat": 1, **entries}).encode())
    with pytest.raises(StateError, match=r"group/workers/a in memory") as raised:
        await GroupStore(store).read_records()
    return str(raised.value)


async def test_a_record_of_another_name_is_refused():
    assert "If this group has no worker of the document's name, delete the document" in await refusal(worker="b")


@pytest.mark.parametrize(
    "entries",
    [
        *({"worker": name} for name in ("../../../victim/x", "", 7, ["a"], "a\nb")),
        *({"beat": beat} for beat in ("x", None, [1], -1, 1e999, True, 10**400)),
        *({"watermark": value} for value in ("x", 10**30, 1.5)),
        {"parts": 10**9},
        {"released": {"s": {"0": "x"}}},
        {"loads": {"s": {"0": -1}}},
        {"sealed": "false"},
    ],
)
async def test_a_record_with_other_types_is_refused_with_what_does_not_fit(entries):
    told = await refusal(**entries)
    assert ("cannot be read: " in told and f"$.{next(iter(entries))}" in told) or "malformed" in told
