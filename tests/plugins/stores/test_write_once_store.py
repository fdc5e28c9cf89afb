"""The contract of write-once stores, for every back end: the first writer wins."""

import asyncio

import pytest

from recordpublisher import ConfigurationError, Properties, StateError
from recordpublisher.plugins.stores.by_location import write_once_store_of

LOCATIONS = {"folder": "{folder}/spool", "file": "file://{folder}/spool", "s3": "s3://bucket/{name}/spool"}


@pytest.fixture(params=LOCATIONS)
async def store(request, tmp_path, aws):
    location = LOCATIONS[request.param].format(folder=tmp_path, name=tmp_path.name)
    made = write_once_store_of(location, "metadataLocation", aws)
    yield made
    await made.close()


async def test_the_first_writer_wins(store):
    assert await store.get("a/1") is None
    assert await store.put_if_absent("a/1", b"first") == b"first"
    assert await store.put_if_absent("a/1", b"second") == b"first"
    assert await store.get("a/1") == b"first"


async def test_many_writers_at_once_agree_on_one(store):
    answers = await asyncio.gather(*(store.put_if_absent("a/1", b"%d" % n) for n in range(12)))
    assert set(answers) == {await store.get("a/1")}


async def test_names_are_those_with_the_prefix_sorted(store):
    assert await store.names("a/") == []
    for name in ("a/x-2", "a/x-1", "a/y-1", "b/x-1"):
        await store.put(name, b"content")
    assert await store.names("a/x-") == ["a/x-1", "a/x-2"]
    assert await store.names("a/") == ["a/x-1", "a/x-2", "a/y-1"]


async def test_deleting_a_missing_object_is_no_error(store):
    await store.put("a/1", b"1")
    await store.delete(["a/1", "a/2"])
    assert await store.get("a/1") is None


async def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    store = write_once_store_of(str(tmp_path / "file"), "metadataLocation", Properties())
    with pytest.raises(StateError, match="cannot be used"):
        await store.put_if_absent("a/1", b"1")


def test_another_location_is_an_error_that_says_what_is_valid():
    with pytest.raises(ConfigurationError, match=r"setting 'metadataLocation'.*a folder or s3://bucket/prefix"):
        write_once_store_of("dynamodb://table/job", "metadataLocation", Properties())
