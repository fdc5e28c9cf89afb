"""Runs the demo and draws what its terminal shows in the middle of the year: docs/images/demo.svg. Needs Java, as the demo does."""

from __future__ import annotations

import io
import re
from pathlib import Path
from unittest.mock import patch

from rich.console import Console, Group

from recordpublisher.demo import runner
from recordpublisher.demo.runner import ProgressDisplay

PICTURE = Path(__file__).parent / "images" / "demo.svg"
SECONDS = 150.0
SHARE_WRITTEN = 0.5
"""By then one shard lags and one is silent."""


class DrawnDisplay(ProgressDisplay):
    """Draws one frame."""

    def show(self, elapsed: float) -> None:
        """Draw the first frame after Spark has written half of the rows."""
        super().show(elapsed)
        if not PICTURE.exists() and self._progress.rows.get("flights", 0) > SHARE_WRITTEN * self._progress.total:
            console = Console(record=True, width=118, file=io.StringIO())
            console.print(Group(self._table(), self._summary(elapsed)))
            svg = console.export_svg(title="recordpublisher demo", unique_id="demo")
            PICTURE.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    PICTURE.unlink(missing_ok=True)
    with patch.object(runner, "ProgressDisplay", DrawnDisplay):
        results = runner.run_demo(runner.DemoConfig(publisher="EFO", seconds=SECONDS))
    print(*results, sep="\n")
