"""Several streams in one job, by name and by ARN, over real sockets."""

from collections import Counter

import pytest

import recordpublisher as rp
from recordpublisher.local import serve_in_thread


@pytest.mark.parametrize("publisher", ["POLLING", "EFO"])
def test_streams_by_name_and_by_arn_are_read_together(publisher):
    with serve_in_thread(streams={"orders": 2, "clicks": 1, "taps": 1}) as server:
        endpoint = server.endpoint
        for name, count in (("orders", 6), ("clicks", 3), ("taps", 2)):
            for number in range(count):
                server.call(endpoint.stream(name).put, f"{name} {number}".encode(), str(number))
        given = {
            **endpoint.properties(),
            "flink.stream.recordpublisher": publisher,
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.stream.efo.consumername": "app",
        }
        streams = ["orders", endpoint.stream("clicks").arn, "taps"]
        records = list(rp.consume(streams, given, stop_at_tip=True))
        consumers = [len(endpoint.stream(name).consumers.all()) for name in ("orders", "clicks", "taps")]

    assert Counter(record.stream for record in records) == {"orders": 6, "clicks": 3, "taps": 2}
    assert all(record.data.decode().startswith(record.stream) for record in records)
    # each stream had its own consumer, which is deleted or DELETING
    assert set(consumers) <= {0, 1}


def test_a_stream_of_another_account_is_looked_up_by_its_arn():
    with serve_in_thread(streams={"orders": 1}) as server:
        other = server.endpoint.stream("orders").arn.replace(":000000000000:", ":999999999999:")
        given = {**server.endpoint.properties(), "flink.stream.initpos": "TRIM_HORIZON"}
        with pytest.raises(rp.StreamNotFoundError, match="999999999999"):
            list(rp.consume([other], given, stop_at_tip=True))
