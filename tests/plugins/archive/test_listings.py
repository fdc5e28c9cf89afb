"""Which files the listing of an archive finds, and what it lists again."""

import pytest

from recordpublisher.plugins.archive.archive import FileCatalogue, files_at
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard


def catalogue(folder):
    return FileCatalogue(files_at(str(folder), Properties({}), int), int)


def write(folder, path):
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()


async def ends(found, stream, *, again):
    return [int(file.end.sequence) for file in await found.files(Shard(stream, "s"), again=again)]


async def test_a_stream_whose_name_begins_with_a_dot_has_its_files(tmp_path):
    write(tmp_path, ".orders/s/BEGIN_9.-1.jsonl")
    write(tmp_path, ".recordpublisher/staged/life/BEGIN_7.-1.jsonl")
    found = catalogue(tmp_path)
    assert await ends(found, ".orders", again=False) == [9]
    assert await found.shard_ids("staged") == set()


@pytest.mark.parametrize("folder", ["", "day=1/"])
async def test_files_that_come_after_an_empty_listing_are_found_with_partitions_too(tmp_path, folder):
    found = catalogue(tmp_path)
    assert await ends(found, "orders", again=False) == []
    write(tmp_path, f"{folder}orders/s/BEGIN_9.-1.jsonl")
    assert await ends(found, "orders", again=True) == [9]
    write(tmp_path, f"{folder}orders/s/9.-1_12.-1.jsonl")
    assert await ends(found, "orders", again=True) == [9, 12]
