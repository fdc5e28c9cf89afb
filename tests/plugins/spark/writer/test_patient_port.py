"""A writer whose service is away waits, and fails after `maxOutage`; refused records are put again for as long."""

from __future__ import annotations

import asyncio

import pytest

from recordpublisher.plugins.spark.write_options import WriteOptions
from recordpublisher.plugins.spark.writer import PatientPort
from recordpublisher.publishers.errors import FatalKinesisError, OutageError, TransientError
from recordpublisher.publishers.kinesis.ports import PutEntry
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.writable_stream import FakeKinesis

REFUSED = TransientError("PutRecords", "ConnectionError", "refused")
ENTRIES = [PutEntry(b"x", "k")]


def test_a_put_waits_until_the_service_is_back():
    fake = FakeKinesis()
    fake.fail = REFUSED

    async def put():
        port = PatientPort(fake, 600_000, VirtualClock())
        asyncio.get_running_loop().call_later(300, setattr, fake, "fail", None)
        return await port.put_records("out", ENTRIES)

    assert run_virtual(put()).failed == 0
    assert len(fake.user_records()) == 1


def test_past_the_longest_outage_it_fails_and_names_service_and_call():
    fake = FakeKinesis()
    fake.fail = REFUSED

    async def put():
        await PatientPort(fake, 600_000, VirtualClock()).put_records("out", ENTRIES)

    with pytest.raises(
        OutageError, match=r"^calls to Kinesis have failed since .*maxOutage \(600 s\): PutRecords failed with Conn"
    ):
        run_virtual(put())


def test_an_error_that_is_no_outage_is_raised_at_once():
    fake = FakeKinesis()
    fake.fail = FatalKinesisError("PutRecords", "AccessDeniedException", "no")

    async def put():
        with pytest.raises(FatalKinesisError):
            await PatientPort(fake, 600_000, VirtualClock()).put_records("out", ENTRIES)

    run_virtual(put())
    assert len(fake.calls) == 1


@pytest.mark.parametrize(
    ("options", "seconds"), [({}, 900), ({"maxoutage": "20m"}, 1200), ({"flink.job.max.outage": "1s"}, 1)]
)
def test_refused_records_are_put_again_for_the_longest_outage(options, seconds):
    assert WriteOptions.parse({"stream": "out", **options}).settings.retries.max_outage_ms == seconds * 1000
