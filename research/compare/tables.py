"""Tables in the pages of docs/explanation: figures are kept as JSON beside a page, and written between its marks."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from compare.tools import HERE

FOLDER = HERE.parents[1] / "docs" / "explanation"


def seen_now() -> dict[str, str | float]:
    """When figures were measured, and the load average: kept with them."""
    return {"day": f"{date.today():%Y-%m-%d}", "load": round(os.getloadavg()[0], 1)}


class KeptFigures:
    """Figures by client, in a JSON file. Adding one writes the file."""

    def __init__(self, file: str) -> None:
        self._file = FOLDER / file
        self.rows: dict[str, dict[str, Any]] = json.loads(self._file.read_text()) if self._file.exists() else {}

    def add(self, client: str, figures: Mapping[str, Any]) -> None:
        self.rows[client] = {**figures, **seen_now()}
        self._file.write_text(json.dumps(self.rows, indent=1) + "\n")
        print(f"{client}: {self.rows[client]}", flush=True)

    @property
    def conditions(self) -> str:
        """When they were measured, and beside how much other work."""
        loads = [row["load"] for row in self.rows.values()]
        days = " and ".join(sorted({str(row["day"]) for row in self.rows.values()}))
        return f"*Measured {days}, load {min(loads):g} to {max(loads):g} on {os.cpu_count()} cores.*"


def markdown(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [heads, ["---"] * len(heads), *lines])


def write_between_marks(page: str, mark: str, text: str) -> None:
    """Replace what stands between `<!-- mark -->` and `<!-- end -->` in a page."""
    path: Path = FOLDER / page
    marked = re.compile(rf"(<!-- {re.escape(mark)} -->\n).*?(<!-- end -->)", re.DOTALL)
    content, count = marked.subn(lambda found: f"{found[1]}\n{text}\n\n{found[2]}", path.read_text())
    assert count == 1, f"{path} has the mark {mark} {count} times"
    path.write_text(content)
