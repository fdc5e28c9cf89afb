"""A simple conditional store passes the contract, and each kind of broken store fails one of its tests."""

import asyncio
import itertools
import re
import socket
from contextlib import asynccontextmanager

import pytest

from recordpublisher import ConditionalStore, ConflictError, VersionedValue
from recordpublisher.testing import ConditionalStoreCase, ConditionalStoreContract, run_virtual


class DictStore(ConditionalStore):
    """Values and versions in a dict that all stores of a location share."""

    place = "a dict"

    def __init__(self, values, versions):
        self.values, self.versions = values, versions

    async def get(self, name):
        return self.values.get(name)

    async def put_if_absent(self, name, value):
        return self.write(name, value, None)

    async def compare_and_set(self, name, value, expected):
        return self.write(name, value, expected)

    async def list(self, prefix, *, consistent=True):
        return {name: self.values[name] for name in sorted(self.values) if name.startswith(prefix)}

    async def list_versions(self, prefix):
        return {name: entry.version for name, entry in (await self.list(prefix)).items()}

    async def list_names(self, prefix, before=None):
        return [name for name in await self.list(prefix) if before is None or name < before]

    async def delete(self, *names):
        for name in names:
            self.values.pop(name, None)

    def write(self, name, value, expected):
        current = self.values.get(name)
        if expected != (None if current is None else current.version):
            raise ConflictError(self.place, name, current)
        self.values[name] = VersionedValue(value, self.new_version(name))
        return self.values[name].version

    def new_version(self, name):
        return str(next(self.versions))


class Values(dict):
    """The values of a location. It can have attributes."""


class DictContract(ConditionalStoreContract):
    store = DictStore

    @asynccontextmanager
    async def open_case(self):
        values, versions = Values(), itertools.count()
        yield ConditionalStoreCase(lambda: self.store(values, versions))

    def execute(self, work):
        run_virtual(work)


class TestAStoreOfADict(DictContract):
    """The contract, on virtual time."""


class Overwrites(DictStore):
    """Ignores the expected version."""

    async def compare_and_set(self, name, value, expected):
        current = self.values.get(name)
        return self.write(name, value, None if current is None else current.version)


class PutsOver(DictStore):
    """Puts over what is there."""

    async def put_if_absent(self, name, value):
        self.values.pop(name, None)
        return self.write(name, value, None)


class CountsForEachName(DictStore):
    """Counts the versions of a name from 0: a deleted value comes back."""

    def new_version(self, name):
        return str(int(self.values[name].version) + 1 if name in self.values else 0)


class HidesTheStoredValue(DictStore):
    """Its conflicts do not say what is stored."""

    def write(self, name, value, expected):
        try:
            return super().write(name, value, expected)
        except ConflictError as error:
            raise ConflictError(self.place, name, None) from error


class WritesAfterALook(DictStore):
    """Compares, and writes when the service has answered: two writers that look at once both write."""

    async def compare_and_set(self, name, value, expected):
        current = self.values.get(name)
        if current is None or current.version != expected:
            raise ConflictError(self.place, name, current)
        await asyncio.sleep(0.01)
        return self.write(name, value, self.values[name].version)


class KnowsOnlyItsOwn(DictStore):
    """Each object has values of its own."""

    def __init__(self, values, versions):
        super().__init__({}, versions)


class Unordered(DictStore):
    """Lists as values were put."""

    async def list(self, prefix, *, consistent=True):
        return {name: entry for name, entry in self.values.items() if name.startswith(prefix)}


class EndsEarly(DictStore):
    """Lists a first page only."""

    async def list(self, prefix, *, consistent=True):
        return dict(list((await super().list(prefix)).items())[:10])


class StaysClosed(DictStore):
    """Has a client that cannot be used after it was closed."""

    is_closed = False

    async def get(self, name):
        if self.is_closed:
            raise RuntimeError("the client has been closed")
        return await super().get(name)

    async def put_if_absent(self, name, value):
        await self.get(name)
        return await super().put_if_absent(name, value)

    async def close(self):
        self.is_closed = True


class ClosesOnce(DictStore):
    """Opens again, but cannot be closed while it is closed."""

    is_open = False

    async def get(self, name):
        self.is_open = True
        return await super().get(name)

    async def put_if_absent(self, name, value):
        self.is_open = True
        return await super().put_if_absent(name, value)

    async def close(self):
        if not self.is_open:
            raise RuntimeError("there is no connection to close")
        self.is_open = False


class LeavesItsSocket(DictStore):
    async def get(self, name):
        self.socket = socket.socket()
        return await super().get(name)


@pytest.mark.parametrize(
    ("broken", "test"),
    [
        (Overwrites, "test_a_value_is_replaced_only_with_its_version"),
        (PutsOver, "test_a_value_is_put_only_where_there_is_none"),
        (CountsForEachName, "test_a_deleted_value_does_not_come_back_by_its_old_version"),
        (HidesTheStoredValue, "test_a_value_is_put_only_where_there_is_none"),
        (WritesAfterALook, "test_of_many_writers_with_one_version_one_wins"),
        (KnowsOnlyItsOwn, "test_a_value_is_put_only_where_there_is_none"),
        (Unordered, "test_values_versions_and_names_are_listed_by_prefix_and_in_order"),
        (EndsEarly, "test_a_long_listing_is_complete"),
        (StaysClosed, "test_a_closed_store_opens_again"),
        (ClosesOnce, "test_a_closed_store_opens_again"),
        (LeavesItsSocket, "test_a_closed_store_leaves_nothing_open"),
    ],
)
def test_a_broken_store_is_found(broken, test):
    contract = DictContract()
    contract.store = broken

    with pytest.raises(AssertionError):
        getattr(contract, test)()


@pytest.mark.parametrize(
    ("broken", "cause"),
    [
        (StaysClosed, "the client has been closed"),
        (ClosesOnce, "there is no connection to close"),
    ],
)
def test_a_store_that_cannot_be_closed_and_opened_again_is_told_the_rule(broken, cause):
    contract = DictContract()
    contract.store = broken

    rule = (
        "after `close`, the next call of a method must open the store again, and `close` may be called again, and for a store that was "
        "never used: a program may give the closed store to its next job; it raised RuntimeError: "
    )
    with pytest.raises(AssertionError, match=re.escape(rule + cause)):
        contract.test_a_closed_store_opens_again()


class Stale(DictStore):
    """Reads by the methods in `stale` show each name as it was before its last write."""

    stale = ()

    def __init__(self, values, versions):
        super().__init__(values, versions)
        self.before = values.before = getattr(values, "before", {})

    def write(self, name, value, expected):
        current = self.values.get(name)
        version = super().write(name, value, expected)
        self.before[name] = current
        return version

    async def delete(self, *names):
        self.before.update({name: self.values[name] for name in names if name in self.values})
        await super().delete(*names)

    def seen(self, method, prefix):
        values = {**self.values, **self.before} if method in self.stale else self.values
        return {name: values[name] for name in sorted(values) if name.startswith(prefix) and values[name] is not None}

    async def get(self, name):
        return self.seen("get", name).get(name)

    async def get_all(self, names):
        return {name: self.seen("get_all", "")[name] for name in names if name in self.seen("get_all", "")}

    async def list(self, prefix, *, consistent=True):
        return self.seen("list", prefix)

    async def list_versions(self, prefix):
        return {name: entry.version for name, entry in self.seen("list_versions", prefix).items()}

    async def list_names(self, prefix, before=None):
        return [name for name in self.seen("list_names", prefix) if before is None or name < before]


@pytest.mark.parametrize("method", ["get", "get_all", "list", "list_versions", "list_names"])
def test_a_store_whose_reads_do_not_see_each_finished_write_is_told_so_in_words(method):
    contract = DictContract()
    contract.store = type("StaleStore", (Stale,), {"stale": (method,)})

    with pytest.raises(AssertionError, match=f"`{method}`.*a read must show every write that has returned"):
        contract.test_a_read_shows_every_write_that_has_returned()


@pytest.mark.parametrize("name", [name for name in dir(DictContract) if name.startswith("test_")])
def test_no_test_of_a_store_with_stale_values_fails_without_words(name):
    contract = DictContract()
    contract.store = type("StaleStore", (Stale,), {"stale": ("get",)})

    try:
        getattr(contract, name)()
    except AssertionError as error:
        assert "a read must show every write that has returned" in str(error)  # noqa: PT017 - some tests pass
