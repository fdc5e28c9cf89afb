"""The latest results, stored in the repository: the page and the picture are made from them only.

Remove a row that no benchmark measures any more from the file by hand.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.figures.table import Row

FILE = Path(__file__).parents[1] / "results.json"


@dataclass(frozen=True)
class Run:
    """When and where a figure was measured; `load` is the load average of the last minute, which includes the benchmark's own."""

    day: str
    python: str
    cores: int
    load: float

    @classmethod
    def now(cls) -> Run:
        load = round(os.getloadavg()[0], 1)
        return cls(f"{datetime.now():%Y-%m-%d}", platform.python_version(), os.cpu_count() or 1, load)


def load(file: Path = FILE) -> dict[str, Any]:
    """Rows with their runs, and shares of layers by path."""
    return json.loads(file.read_text()) if file.exists() else {"rows": [], "shares": {}}


def measured(file: Path = FILE) -> list[tuple[Row, Run]]:
    return [(Row(**entry["row"]), Run(**entry["run"])) for entry in load(file)["rows"]]


def keep(rows: Iterable[Row], file: Path = FILE) -> None:
    """Replace the older rows with the same key, or append."""
    known = {row.key: (row, run) for row, run in measured(file)}
    known |= {row.key: (row, Run.now()) for row in rows}
    entries = [{"row": asdict(row), "run": asdict(run)} for row, run in known.values()]
    _write({**load(file), "rows": entries}, file)


def keep_shares(path: str, shares: dict[str, float], file: Path = FILE) -> None:
    """Store each layer's share of a path's samples."""
    known = load(file)
    rounded = {layer: round(share, 4) for layer, share in sorted(shares.items())}
    _write({**known, "shares": {**known["shares"], path: rounded}}, file)


def _write(known: dict[str, Any], file: Path) -> None:
    aside = file.with_suffix(".new")
    aside.write_text(json.dumps(known, indent=1) + "\n")
    aside.replace(file)
