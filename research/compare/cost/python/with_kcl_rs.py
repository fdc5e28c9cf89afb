"""Reads with kcl-rs, one worker: URL polling|fan-out WARM SEGMENT SEGMENTS. AWS_ENDPOINT_URL_DYNAMODB is where its leases are.

At the tip it polls five times a second. Its metrics go to a port where nobody listens: they cannot be switched off.
"""

import os
import sys
from uuid import uuid4

from kcl_rs import RecordProcessorBase, Scheduler
from meter import Meter


class Measured(RecordProcessorBase):
    """Hands the data of each batch to the meter."""

    def __init__(self, meter):
        self._meter = meter

    def process_records(self, process_records_input):
        self._meter.add([record.data for record in process_records_input.records])

    def initialize(self, initialize_input):
        pass

    lease_lost = shard_ended = shutdown_requested = initialize


def main(url, how, *numbers):
    os.environ |= {"AWS_ENDPOINT_URL_KINESIS": url, "AWS_ENDPOINT_URL_CLOUDWATCH": "http://127.0.0.1:1"}
    meter = Meter(*numbers)
    polling = {"retrieval_mode": "POLLING", "max_records": 10_000, "idle_time_between_reads_millis": 200}
    Scheduler(
        stream_name="cost",
        application_name=str(uuid4()),
        record_processor_factory=lambda: Measured(meter),
        region="us-east-1",
        initial_position="TRIM_HORIZON",
        access_key_id="local",
        secret_access_key="local",
        **(polling if how == "polling" else {"retrieval_mode": "FANOUT"}),
    ).run()


main(*sys.argv[1:])
