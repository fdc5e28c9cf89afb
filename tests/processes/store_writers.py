"""Writers of one conditional store that overlap; they run in threads or processes of their own."""

import asyncio
import uuid

from recordpublisher import Properties
from recordpublisher.fetcher.conditional_store import ConflictError
from recordpublisher.plugins.stores.by_location import conditional_store_of

WRITES = 10


def count(location, job, writers):
    """Increase a counter `WRITES` times; returns how many writes conflicted.

    Nobody writes before all writers have read the missing counter: of the first writes all but one conflict.
    """

    async def run():
        store, conflicts = conditional_store_of(location, "uri", Properties({"flink.job.name": job})), 0
        found = await store.get("a/counter")
        await store.put_if_absent(f"ready/{uuid.uuid4().hex}", b"")
        while len(await store.list_names("ready/")) < writers:  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.01)
        for _ in range(WRITES):
            while True:
                try:
                    if found is None:
                        await store.put_if_absent("a/counter", b"1")
                    else:
                        await store.compare_and_set("a/counter", b"%d" % (int(found.value) + 1), found.version)
                    break
                except ConflictError:
                    conflicts += 1
                    found = await store.get("a/counter")
            found = await store.get("a/counter")
        await store.close()
        return conflicts

    return asyncio.run(run())


def put(location, job, mine):
    """Put a few names; returns those that this writer put first."""

    async def run():
        store, won = conditional_store_of(location, "uri", Properties({"flink.job.name": job})), []
        lost = []
        for number in range(WRITES):
            try:
                await store.put_if_absent(f"a/{number}/name", mine)
                won.append(number)
            except ConflictError as error:
                lost.append(error.current.value)
        await store.close()
        assert mine not in lost
        return won

    return asyncio.run(run())


def put_and_delete(location, job, mine):
    """Put and delete the same name, and with it its folder, as other writers do: calls fail by conflicts only."""

    async def run():
        store, lost = conditional_store_of(location, "uri", Properties({"flink.job.name": job})), []
        for _ in range(WRITES):
            try:
                version = await store.put_if_absent("a/b/name", mine)
                await store.compare_and_set("a/b/name", mine + b"2", version)
            except ConflictError as error:
                lost.append(error.current and error.current.value)
            found = await store.list("a/")
            assert all(entry.value for entry in found.values())
            await store.delete("a/b/name")
        await store.close()
        assert not any(value and value.startswith(mine) for value in lost)

    asyncio.run(run())


def read(location, job):
    async def run():
        store = conditional_store_of(location, "uri", Properties({"flink.job.name": job}))
        try:
            return {name: entry.value for name, entry in (await store.list("")).items()}
        finally:
            await store.close()

    return asyncio.run(run())
