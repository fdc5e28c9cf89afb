"""The whole replay: which halves a rule plays, what came of them, and where the pictures went."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from recordpublisher.publishers.errors import ConfigurationError

from ..result_checks import Finding
from .catch_up import morning_after
from .checks import findings_of_flink, findings_of_morning, findings_of_ours
from .event_log import Recording
from .subtask import FLINK
from .suspension import replay

OURS = "ours"
RULES = {OURS: "TCP", "flink": FLINK}
"""The rules by name, and the tracker that each goes by."""
PICTURES = {OURS: "outage-our-rule", "flink": "outage-flink-rule"}


@dataclass(frozen=True, slots=True)
class Half:
    """One half that was played: its name, what was found, and what was recorded."""

    name: str
    title: str
    unit: str
    findings: list[Finding]
    recording: Recording

    @property
    def is_right(self) -> bool:
        """Whether everything was as it should be."""
        return all(finding.is_right for finding in self.findings)


def perform(rule: str, folder: Path | None, say: Callable[[str], None]) -> list[Half]:
    """Play the outage by a rule; by ours, the morning after, too. Raises: OutageFailedError, ConfigurationError."""
    if rule not in RULES:
        raise ConfigurationError("--rule", rule, ", ".join(RULES))
    with tempfile.TemporaryDirectory(prefix="recordpublisher-outage-") as made:
        place = Path(made) if folder is None else folder
        say(f"the outage, by {_words(rule)}")
        evidence = replay(RULES[rule], place / rule, say)
        found = findings_of_ours(evidence) if rule == OURS else findings_of_flink(evidence)
        title = f"The outage by {_words(rule)}"
        halves = [Half(PICTURES[rule], title, "minutes", found, evidence.recording)]
        if rule == OURS:
            say("the morning after: one shard is three days behind")
            seen = morning_after(place / "morning", say)
            title = "The morning after: one shard is three days behind"
            halves.append(Half("outage-morning-after", title, "days", findings_of_morning(seen), seen.recording))
        return halves


def check_pictures(folder: Path) -> None:
    """Raises: ConfigurationError without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        valid = "pip install 'recordpublisher[demo]'"
        raise ConfigurationError("--pictures", str(folder), valid, reason="pictures need matplotlib")


def draw_pictures(halves: list[Half], folder: Path) -> list[Path]:
    """A PNG for each half; answers where they are."""
    from .plot import draw

    paths = [folder / f"{half.name}.png" for half in halves]
    for half, path in zip(halves, paths, strict=True):
        draw(half.recording, half.title, half.unit, path)
    return paths


def _words(rule: str) -> str:
    return "our rule" if rule == OURS else "Flink's old rule (before FLINK-29099)"
