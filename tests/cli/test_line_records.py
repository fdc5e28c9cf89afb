"""Lines as records: how they are read, and which partition key each gets."""

import asyncio
import os

import pytest

from recordpublisher.cli.stream_commands.put import MAX_LINE_BYTES, blocks_of_lines, partition_key
from recordpublisher.publishers.errors import RecordPublisherError


async def lines_of(*files):
    return [line.data async for block in blocks_of_lines(files) for line in block]


async def test_lines_come_without_ends_and_without_empty_ones(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"a\r\n\nb c\n\r\n")
    second.write_bytes(b"d\ne")

    assert await lines_of(first, second) == [b"a", b"b c", b"d", b"e"]


async def test_lines_are_numbered_in_each_file_empty_ones_too(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"a\n\nb\n")
    second.write_bytes(b"x" * 200_000 + b"\ny\nz")
    blocks = blocks_of_lines([first, second])

    assert [(line.file, line.number, line.data[:1]) async for block in blocks for line in block] == [
        (first, 1, b"a"), (first, 3, b"b"), (second, 1, b"x"), (second, 2, b"y"), (second, 3, b"z"),
    ]  # fmt: skip


async def test_a_line_may_be_longer_than_a_block(tmp_path):
    (tmp_path / "long").write_bytes(b"x" * 200_000 + b"\ny\n")

    assert [len(line) for line in await lines_of(tmp_path / "long")] == [200_000, 1]


async def test_a_file_without_line_ends_is_an_error_before_it_fills_the_memory(tmp_path):
    with (tmp_path / "endless").open("wb") as file:
        file.truncate(MAX_LINE_BYTES * 4)

    with pytest.raises(RecordPublisherError, match="endless: line 1 has more than 16,777,216 bytes"):
        await lines_of(tmp_path / "endless")


async def test_a_pipe_passes_each_line_on_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = asyncio.create_task(asyncio.to_thread(os.open, tmp_path / "pipe", os.O_WRONLY))
    blocks = blocks_of_lines([tmp_path / "pipe"])
    first = asyncio.ensure_future(anext(blocks))
    pipe = await writer

    os.write(pipe, b"one\ntw")
    assert [line.data for line in await first] == [b"one"]
    os.write(pipe, b"o\n")
    assert [(line.place, line.data) for line in await anext(blocks)] == [(f"line 2 of {tmp_path / 'pipe'}", b"two")]

    os.close(pipe)
    assert [block async for block in blocks if block] == []


def test_the_key_is_fixed_or_random():
    assert partition_key("k", None)(b"1") == "k"
    random = partition_key(None, None)
    assert random(b"1") != random(b"1")


def test_the_key_is_the_value_of_a_field():
    key_of = partition_key(None, "customer")

    assert [key_of(line) for line in (b'{"customer":"c1"}', b'{"customer":7}', b'{"customer":true}')] == [
        "c1",
        "7",
        "true",
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "it is not a JSON"),
        (b"\xff", "it is not a JSON"),
        (b"[1]", "it is not a JSON object"),
        (b'{"other":1}', "it has no field 'customer'"),
        (b'{"customer":null}', "it has no field 'customer'"),
    ],
)
def test_a_line_without_the_field_has_no_key(line, reason):
    with pytest.raises(ValueError, match=reason):
        partition_key(None, "customer")(line)
