"""The file in which the endpoint keeps records."""

import sqlite3

import pytest

from recordpublisher.local.storage.account_storage import Database

RECORD = (7, 1_700_000_000_000, 5, b"fragment")


def test_records_after_a_write_that_failed_are_found_again(tmp_path):
    database = Database(tmp_path)
    with pytest.raises(sqlite3.IntegrityError):
        database.append("orders/1/0", [(6, None, 5, b"")])
    database.append("orders/1/0", [RECORD])
    database.close()

    reopened = Database(tmp_path)
    try:
        assert list(reopened.records("orders/1/0")) == [RECORD]
    finally:
        reopened.close()
