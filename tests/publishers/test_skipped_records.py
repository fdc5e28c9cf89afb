"""What is logged of records that are left out."""

import asyncio
import logging

from recordpublisher.publishers.skipped_records_log import MOST_KINDS, SkippedRecordsLog
from recordpublisher.testing import VirtualClock, run_virtual

log = logging.getLogger("recordpublisher.test")


def test_the_first_is_logged_at_once_and_the_others_are_counted_after_a_minute(caplog):
    async def job():
        skipped = SkippedRecordsLog(log, VirtualClock())
        for number in range(40):
            skipped.skipped(f"record {number}", "no JSON", how="dead letter for")
        told = list(caplog.messages)
        await asyncio.sleep(61)
        return told

    assert run_virtual(job()) == ["dead letter for record 0: no JSON"]
    assert caplog.messages[1:] == ["dead letter for record 39: no JSON (60 s ago) (38 others since the last such line)"]


def test_a_record_after_a_minute_is_logged_at_once(caplog):
    async def job():
        skipped = SkippedRecordsLog(log, VirtualClock())
        skipped.skipped("record 1", "no JSON")
        await asyncio.sleep(61)
        skipped.skipped("record 2", "no JSON")

    run_virtual(job())
    assert caplog.messages == ["skipped record 1: no JSON", "skipped record 2: no JSON"]


def test_an_error_that_comes_again_and_again_does_not_hide_another_one(caplog):
    async def job():
        skipped = SkippedRecordsLog(log, VirtualClock())
        for number in range(40):
            skipped.skipped("record 0", f"attempt {number}", KeyError("sku"))
        skipped.skipped("record 1", "away", ConnectionRefusedError())

    run_virtual(job())
    assert caplog.messages == ["skipped record 0: attempt 0", "skipped record 1: away"]


def test_many_classes_of_errors_share_a_line(caplog):
    async def job():
        skipped = SkippedRecordsLog(log, VirtualClock())
        for number in range(40):
            skipped.skipped(f"record {number}", "bad", type(f"Error{number}", (Exception,), {})())

    run_virtual(job())
    assert len(caplog.messages) == MOST_KINDS
