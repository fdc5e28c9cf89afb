"""The contract of a conditional store: tests that it must pass. Subclass `ConditionalStoreContract`, provide a case, and run pytest.

class TestRedisStore(ConditionalStoreContract):
    @asynccontextmanager
    async def open_case(self):
        yield ConditionalStoreCase(lambda: RedisStore("redis://localhost/test", "flink.state.uri", properties))
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ..fetcher.conditional_store import ConditionalStore, ConflictError, VersionedValue
from ..publishers.safe_text import repr_of
from .contract import Contract, check_that_close_releases, errors_naming_rule, on_case

RACES = 3
OPENS_AGAIN = (
    "after `close`, the next call of a method must open the store again, and `close` may be called again, and for a store that was never "
    "used: a program may give the closed store to its next job"
)


@dataclass(frozen=True, slots=True)
class ConditionalStoreCase:
    """An empty place for values. Each call of `open` makes a new store object for this place, as each process does."""

    open: Callable[[], ConditionalStore]


class ConditionalStoreContract(Contract[ConditionalStoreCase]):
    """The tests of any conditional store. Implement `open_case`.

    A store that passes them can keep the state of jobs, of groups of workers, and of Spark queries.
    """

    @on_case
    async def test_a_value_is_put_only_where_there_is_none(self, case: ConditionalStoreCase) -> None:
        """Check that the second writer of a name gets a ConflictError, which has the value of the first writer."""
        store, other = case.open(), case.open()
        assert isinstance(store.place, str), f"`place` is {store.place!r}: it must be a text, which messages show"
        _check_read("get", await store.get("a/1"), None)
        version = await store.put_if_absent("a/1", b"first")
        assert await _conflict(other.put_if_absent("a/1", b"second")) == VersionedValue(b"first", version)
        _check_read("get", await other.get("a/1"), VersionedValue(b"first", version))
        await store.close()
        await other.close()

    @on_case
    async def test_a_read_shows_every_write_that_has_returned(self, case: ConditionalStoreCase) -> None:
        """Check that each kind of read shows a new, a replaced and a deleted value at once, even if another process wrote it."""
        writer, reader = case.open(), case.open()
        _check_read("list", dict(await reader.list("a/")), {})
        first = await writer.put_if_absent("a/1", b"1")
        await _check_reads(reader, VersionedValue(b"1", first))
        second = await writer.compare_and_set("a/1", b"2", first)
        await _check_reads(reader, VersionedValue(b"2", second))
        await writer.delete("a/1")
        await _check_reads(reader, None)
        await writer.close()
        await reader.close()

    @on_case
    async def test_a_value_is_replaced_only_with_its_version(self, case: ConditionalStoreCase) -> None:
        """Check that a write with an old version raises ConflictError and changes nothing. A process that was suspended may try that."""
        sleeper, successor = case.open(), case.open()
        first = await sleeper.put_if_absent("a/1", b"1")
        second = await successor.compare_and_set("a/1", b"2", first)
        for _ in range(2):
            current = await _conflict(sleeper.compare_and_set("a/1", b"too late", first))
            assert current == VersionedValue(b"2", second)
        _check_read("get", await sleeper.get("a/1"), VersionedValue(b"2", second))
        assert await sleeper.compare_and_set("a/1", b"3", second) not in (first, second)
        await sleeper.close()
        await successor.close()

    @on_case
    async def test_a_deleted_value_does_not_come_back_by_its_old_version(self, case: ConditionalStoreCase) -> None:
        """Check that a write with the version of a deleted value fails, even after another value was put."""
        store = case.open()
        version = await store.put_if_absent("a/1", b"1")
        await store.delete("a/1", "a/2")
        assert await _conflict(store.compare_and_set("a/1", b"2", version)) is None
        _check_read("get", await store.get("a/1"), None)
        await store.put_if_absent("a/1", b"another")
        current = await _conflict(store.compare_and_set("a/1", b"2", version))
        assert current is not None
        assert current.value == b"another"
        await store.close()

    @on_case
    async def test_of_many_writers_one_wins(self, case: ConditionalStoreCase) -> None:
        """Check that one of eight processes that write at the same time succeeds. The others get its value in a ConflictError."""
        store = case.open()

        async def put(number: int) -> bytes | None:
            try:
                await store.put_if_absent("a/1", b"%d" % number)
            except ConflictError as error:
                return None if error.current is None else error.current.value
            return b"%d" % number

        known = set(await asyncio.gather(*map(put, range(8))))
        stored = await store.get("a/1")
        _check_read("get", {None if stored is None else stored.value}, known)
        await store.close()

    @on_case
    async def test_of_many_writers_with_one_version_one_wins(self, case: ConditionalStoreCase) -> None:
        """Check that exactly one of several writers with the same version succeeds.

        A store fails this test if it compares the version first and writes later.
        """
        stores = [case.open() for _ in range(8)]
        version = await stores[0].put_if_absent("a/1", b"0")
        for round_number in range(RACES):
            races = (
                store.compare_and_set("a/1", b"%d of %d" % (number, round_number), version)
                for number, store in enumerate(stores)
            )
            results = await asyncio.gather(*races, return_exceptions=True)
            won = [(number, result) for number, result in enumerate(results) if not isinstance(result, BaseException)]
            others = [result for result in results if isinstance(result, BaseException)]
            wrong = next((error for error in others if not isinstance(error, ConflictError)), None)
            assert len(won) == 1, (
                f"{len(won)} of 8 writers with the same version have written: exactly one write must succeed"
            ) + ("" if wrong is None else f". An error of another one: {wrong!r}")
            assert wrong is None, f"a writer that lost must get a ConflictError, and got {wrong!r}"
            number, version = won[0]
            written = VersionedValue(b"%d of %d" % (number, round_number), version)
            _check_read("get", await stores[0].get("a/1"), written)
        for store in stores:
            await store.close()

    @on_case
    async def test_values_versions_and_names_are_listed_by_prefix_and_in_order(
        self, case: ConditionalStoreCase
    ) -> None:
        """Check that `list`, `list_versions` and `list_names` agree, and that `list_names` returns only names that sort before `before`."""
        store = case.open()
        assert await store.list("") == {}
        for name in ("a/x-2", "a/x-1", "a/y-1", "b/x-1", "a2/x"):
            await store.put_if_absent(name, name.encode())
        listed = await store.list("a/")
        names = ["a/x-1", "a/x-2", "a/y-1"]
        _check_read(
            "list", [(name, entry.value) for name, entry in listed.items()], [(each, each.encode()) for each in names]
        )
        versions = {name: entry.version for name, entry in listed.items()}
        _check_read("list_versions", dict(await store.list_versions("a/")), versions)
        assert list(await store.list("a/x", consistent=False)) == ["a/x-1", "a/x-2"]
        assert len(await store.list("")) == 5
        _check_read("list_names", list(await store.list_names("a/", before="a/x-2")), ["a/x-1"])
        assert list(await store.list_names("b/", before="a/z")) == []
        await store.close()

    @on_case
    async def test_several_values_are_read_at_once(self, case: ConditionalStoreCase) -> None:
        """Check that `get_all` leaves out names without a value."""
        store = case.open()
        for name in ("a/1", "b/c"):
            await store.put_if_absent(name, name.encode())
        read = await store.get_all(["b/c", "a/2", "a/1"])
        _check_read("get_all", {name: entry.value for name, entry in read.items()}, {"a/1": b"a/1", "b/c": b"b/c"})
        _check_read("get", await store.get("a/1"), read["a/1"])
        await store.close()

    @on_case
    async def test_large_and_empty_values_are_stored_unchanged(self, case: ConditionalStoreCase) -> None:
        """Check a value of a quarter of a megabyte with every possible byte, and an empty value."""
        store = case.open()
        await store.put_if_absent("large", large := bytes(range(256)) * 1000)
        await store.put_if_absent("empty", b"")
        stored = {name: entry.value for name, entry in (await store.list("")).items()}
        _check_read("list", list(stored), ["empty", "large"])
        assert stored == {"empty": b"", "large": large}
        await store.close()

    @on_case
    async def test_a_long_listing_is_complete(self, case: ConditionalStoreCase) -> None:
        """Check that forty values of together 1.6 MB are listed and can be deleted."""
        store = case.open()
        for number in range(40):
            await store.put_if_absent(f"many/{number:02d}", b"%02d" % number * 20_000)
        numbers = [int(entry.value[:2]) for entry in (await store.list("many/")).values()]
        _check_read("list", numbers, [*range(40)])
        await store.delete(*await store.list_names("many/"))
        _check_read("list", list(await store.list("many/")), [])
        await store.close()

    @on_case
    async def test_a_closed_store_leaves_nothing_open(self, case: ConditionalStoreCase) -> None:
        """Check that `close` closes the sockets, sessions and files that the store has opened. A program may run many jobs in a row."""

        async def use() -> None:
            store = case.open()
            await store.put_if_absent("a/1", b"1")
            await store.get("a/1")
            await store.close()

        await check_that_close_releases(use)

    @on_case
    async def test_a_closed_store_opens_again(self, case: ConditionalStoreCase) -> None:
        """Check that a closed store opens again at its next call, and has the stored values. It may also be closed unused or twice."""
        store = case.open()
        with errors_naming_rule(OPENS_AGAIN):
            await store.close()
            version = await store.put_if_absent("a/1", b"1")
            await store.close()
            await store.close()
            found = await store.get("a/1")
            await store.close()
        _check_read("get", found, VersionedValue(b"1", version))


async def _check_reads(store: ConditionalStore, stored: VersionedValue | None) -> None:
    """Check that each kind of read shows `stored` as the value of `a/1`, and no other value. None means that it was deleted."""
    values = {} if stored is None else {"a/1": stored}
    _check_read("get", await store.get("a/1"), stored)
    _check_read("get_all", dict(await store.get_all(["a/1"])), values)
    _check_read("list", dict(await store.list("a/")), values)
    _check_read(
        "list_versions", dict(await store.list_versions("a/")), {name: each.version for name, each in values.items()}
    )
    _check_read("list_names", list(await store.list_names("a/")), list(values))


def _check_read(method: str, found: object, stored: object) -> None:
    """Check that `method` found what was stored before. Raises: AssertionError if it did not."""
    assert found == stored, (
        f"`{method}` found {repr_of(found)} where {repr_of(stored)} was stored: a read must show every write that has returned, also "
        "a write of another process"
    )


async def _conflict(write: Awaitable[str]) -> VersionedValue | None:
    """Await a write that must fail. Return the stored value that its ConflictError contains. Raises: AssertionError if it succeeds."""
    try:
        await write
    except ConflictError as error:
        return error.current
    raise AssertionError("the store accepted a write that must raise ConflictError")
