"""Sends the flights to the stream with the AWS SDK, as a process of its own, and reports its progress on stdout."""

import argparse
import json
import sys
import time
from collections import deque
from typing import Any

import boto3
from botocore.config import Config

from .flights import LAGGING, SHARDS, Flight, ProductionSchedule, all_flights, route, split_hash_key

TICK_SECONDS = 0.1
REPORT_SECONDS = 0.5
RECORDS_PER_CALL = 500


def main() -> None:
    """Send every flight once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--stream", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    arguments = parser.parse_args()
    flights = all_flights()
    schedule = ProductionSchedule(flights[0].scheduled, flights[-1].scheduled, arguments.seconds)
    FlightProducer(kinesis_client(arguments.endpoint), arguments.stream, flights, schedule).run()


class FlightProducer:
    """Owns the flights that are not sent yet: flights that are not due, and flights held back for the lagging shard."""

    def __init__(self, kinesis: Any, stream: str, flights: list[Flight], schedule: ProductionSchedule) -> None:
        self._kinesis = kinesis
        self._stream = stream
        self._due = deque(flights)
        self._lagging: deque[Flight] = deque()
        self._schedule = schedule
        self._has_split = False
        self._sent = [0] * SHARDS
        self._sent_up_to = [schedule.first] * SHARDS

    def run(self) -> None:
        """Send until no flight is left, and report the progress twice a second."""
        began = reported = time.monotonic()
        while self._due or self._lagging:
            elapsed = time.monotonic() - began
            self._send(self._due_entries(elapsed))
            self._split_when_due(elapsed)
            if time.monotonic() - reported >= REPORT_SECONDS:
                reported = time.monotonic()
                self._report(elapsed, done=False)
            time.sleep(TICK_SECONDS)
        self._report(time.monotonic() - began, done=True)

    def _due_entries(self, elapsed: float) -> list[dict[str, Any]]:
        """Return the entries that are due, in order for each shard."""
        entries = []
        event_time = self._schedule.event_time_at(elapsed)
        lagging_event_time = self._schedule.lagging_event_time_at(elapsed)
        while self._due and self._due[0].scheduled <= event_time:
            flight = self._due.popleft()
            if route(flight.partition_key, False).quarter == LAGGING:
                self._lagging.append(flight)
            else:
                entries.append(self._entry(flight))
        while self._lagging and self._lagging[0].scheduled <= lagging_event_time:
            entries.append(self._entry(self._lagging.popleft()))
        return entries

    def _entry(self, flight: Flight) -> dict[str, Any]:
        chosen = route(flight.partition_key, flight.scheduled >= self._schedule.half_way)
        self._sent[chosen.quarter] += 1
        self._sent_up_to[chosen.quarter] = flight.scheduled
        entry = {"Data": flight.data, "PartitionKey": flight.partition_key}
        return entry if chosen.explicit_hash_key is None else {**entry, "ExplicitHashKey": chosen.explicit_hash_key}

    def _send(self, entries: list[dict[str, Any]]) -> None:
        for start in range(0, len(entries), RECORDS_PER_CALL):
            response = self._kinesis.put_records(
                StreamName=self._stream, Records=entries[start : start + RECORDS_PER_CALL]
            )
            if response["FailedRecordCount"]:
                sys.exit(f"the endpoint refused {response['FailedRecordCount']} records: {response['Records'][:3]}")

    def _split_when_due(self, elapsed: float) -> None:
        if self._has_split or not self._schedule.is_time_to_split(elapsed):
            return
        shards = self._kinesis.list_shards(StreamName=self._stream)["Shards"]
        parent = next(each for each in shards if each["HashKeyRange"]["StartingHashKey"] == "0")
        self._kinesis.split_shard(
            StreamName=self._stream, ShardToSplit=parent["ShardId"], NewStartingHashKey=split_hash_key()
        )
        self._has_split = True

    def _report(self, elapsed: float, *, done: bool) -> None:
        progress = {
            "elapsed": round(elapsed, 1),
            "eventTime": self._schedule.event_time_at(elapsed),
            "sent": self._sent,
            "sentUpToByQuarter": self._sent_up_to,
            "split": self._has_split,
            "done": done,
        }
        print(json.dumps(progress), flush=True)  # noqa: T201 - stdout is the pipe to the runner


def kinesis_client(endpoint: str) -> Any:
    """Return a client of the embedded endpoint."""
    return boto3.client(
        "kinesis",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="demo",
        aws_secret_access_key="demo",  # noqa: S106 - the embedded endpoint takes any
        config=Config(retries={"max_attempts": 3}),
    )


if __name__ == "__main__":
    main()
