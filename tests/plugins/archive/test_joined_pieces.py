"""Rows that another program has moved to files of its own are complete if there are as many as the ranges say that they lie in."""

import pytest

import recordpublisher as rp
from recordpublisher.plugins.archive.table_files import RowPiece, _TableFiles, joined_pieces
from recordpublisher.plugins.sinks.tables.table_folder import TableFolder
from recordpublisher.publishers.errors import StateError


def piece(first, last, rows=None, path="a.parquet", group=0):
    count = last - first + 1 if rows is None else rows
    return RowPiece(path, group, count, ((first, float("inf")), f"{first}.-1"), ((last, float("inf")), f"{last}.-1"))


def joined(pieces, **expected):
    ranges = {f"{name.replace('to', '.-1_')}.-1".replace("r", "", 1): rows for name, rows in expected.items()}
    return [(each.name, len(each.pieces), each.is_proven) for each in joined_pieces(pieces, ranges, int)]


def test_ranges_that_join_are_proven_together():
    assert joined([piece(1, 9)], r0to4=4, r4to9=5) == [("0.-1_9.-1", 1, True)]


def test_pieces_in_order_are_read_one_after_the_other():
    """The first ends where its last row is, the last one where the ranges end."""
    assert joined([piece(4, 9), piece(1, 3)], r0to5=5, r5to12=4) == [
        ("0.-1_3.-1", 1, True),
        ("3.-1_12.-1", 1, True),
    ]


def test_pieces_that_overlap_are_read_together():
    assert joined([piece(1, 9, 5), piece(2, 8, 4)], r0to9=9) == [("0.-1_9.-1", 2, True)]


def test_a_missing_row_proves_nothing():
    assert joined([piece(1, 9, 8)], r0to9=9) == [("1.-1-9.-1", 1, False)]


def test_a_row_too_many_proves_nothing():
    assert joined([piece(1, 9, 10)], r0to9=9) == [("1.-1-9.-1", 1, False)]


def test_ranges_with_a_gap_between_are_proven_each_for_itself():
    """A file of its own, or live records that nobody archived, may be between them."""
    assert joined([piece(1, 4), piece(11, 14)], r0to4=4, r10to14=4) == [
        ("0.-1_4.-1", 1, True),
        ("10.-1_14.-1", 1, True),
    ]
    assert joined([piece(1, 14, 8)], r0to4=4, r10to14=4) == [("1.-1-14.-1", 1, False)]


def test_a_range_without_records_joins_its_neighbours():
    assert joined([piece(1, 9, 6)], r0to4=4, r4to7=0, r7to9=2) == [("0.-1_9.-1", 1, True)]


def test_the_oldest_ranges_may_have_been_deleted_with_their_rows():
    assert joined([piece(5, 9)], r0to4=4, r4to9=5) == [("4.-1_9.-1", 1, True)]


def test_an_unproven_piece_reaches_to_the_end_of_the_range_that_its_last_row_lies_in():
    """The next range begins there, so nothing counts as missing between them."""
    assert joined([piece(1, 9, 3)], r0to4=4, r4to12=5) == [("1.-1-12.-1", 1, False)]


class Table:
    """A table of one file, of which rows were deleted."""

    def __init__(self, folder):
        self.path = folder

    async def refresh(self):
        pass

    def load(self):
        return self

    def folder(self):
        return TableFolder(str(self.path))

    def live_files(self, loaded):
        return {"data/life/1/1.parquet": True}


async def test_a_file_with_deleted_rows_is_an_error(tmp_path):
    files = _TableFiles(Table(tmp_path), "table t", rp.Properties({}), int, None)
    with pytest.raises(
        StateError, match=r"rows of data/life/1/1\.parquet of table t are marked as deleted, and are still in the file"
    ):
        await files.paths("")


async def test_more_than_sixteen_row_groups_that_overlap_are_an_error(tmp_path):
    files = _TableFiles(Table(tmp_path), "table t", rp.Properties({}), int, None)
    files._sources["orders/shardId-0/x.parquet"] = [piece(1, 9, group=group) for group in range(17)]
    with pytest.raises(StateError, match="the rows of 17 row groups overlap, of which at most 16 can be merged"):
        await files.opened("orders/shardId-0/x.parquet")
    with pytest.raises(FileNotFoundError):
        await files.opened("orders/shardId-0/gone.parquet")
