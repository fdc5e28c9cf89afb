"""The names of everything in a spool; numbers have so many digits that texts sort as they do."""

from __future__ import annotations

import re
from dataclasses import dataclass

SPOOL = "spool/id"
READER = "spool/query"
GENERATIONS = "generations/"
READ = "read/"
MANIFESTS = "manifests/"
FILES = "files/"
_PLACE = re.compile(r"(?:manifests|files)/g(\d{10})-l(\d{6})-(\d{10})(?:-[0-9a-f]+)?$")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a manifest or file belongs: the `number`-th of a lane of a generation."""

    generation: int
    lane: int
    number: int


def generation_name(number: int) -> str:
    """The record that opens a generation."""
    return f"{GENERATIONS}{number:010d}"


def failure_name(number: int) -> str:
    """Why the fetchers of a generation gave up."""
    return f"failures/{number:010d}"


def manifest_name(place: Place) -> str:
    """A manifest."""
    return f"{MANIFESTS}{_of(place)}"


def manifests_of(generation: int, lane: int | None = None) -> str:
    """How the names of the manifests of a generation, or of one of its lanes, begin."""
    return f"{MANIFESTS}g{generation:010d}-" + ("" if lane is None else f"l{lane:06d}-")


def file_name(place: Place, token: str) -> str:
    """A file of rows; the token is nobody else's, so that of two writers each has a file of its own."""
    return f"{FILES}{_of(place)}-{token}"


def read_name(batch: int) -> str:
    """What the query had read when it began to plan that batch."""
    return f"{READ}{batch:010d}"


def place_of(name: str) -> Place | None:
    """The place that a manifest's or file's name tells."""
    found = _PLACE.match(name)
    return None if found is None else Place(*map(int, found.groups()))


def _of(place: Place) -> str:
    return f"g{place.generation:010d}-l{place.lane:06d}-{place.number:010d}"
