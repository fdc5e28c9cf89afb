"""Claims as files: written aside, then linked to their name, which only the first writer can do."""

from __future__ import annotations

import shutil
from pathlib import Path

from recordpublisher.publishers.errors import ConfigurationError

from ..ports import BatchId, ClaimStore
from .hard_links import link_durably

_VALID = "a folder on a local or network file system with hard links, the same for the driver and every executor"


class FileClaimStore(ClaimStore):
    """Owns `<location>/<query>/<batch>-<plan>/<name>.json`."""

    def __init__(self, location: str | Path) -> None:
        self._root = Path(location)

    def put_if_absent(self, batch: BatchId, name: str, claim: bytes) -> bytes:
        """Durable before it is visible: the file is synced, then linked, then its folder is synced."""
        folder = self._folder(batch)
        if self._link(folder, f"{name}.json", claim):
            return claim
        return (folder / f"{name}.json").read_bytes()

    def get(self, batch: BatchId, name: str) -> bytes | None:
        """The stored claim, if any."""
        try:
            return (self._folder(batch) / f"{name}.json").read_bytes()
        except FileNotFoundError:
            return None

    def load(self, batch: BatchId) -> dict[str, bytes]:
        """Every claim of a batch by name."""
        return {path.stem: path.read_bytes() for path in sorted(self._folder(batch).glob("*.json"))}

    def purge(self, query: str, before: int) -> None:
        """Remove the folders of older batches."""
        for folder in (self._root / query).glob("*-*"):
            number = folder.name.partition("-")[0]
            if number.isdigit() and int(number) < before:
                shutil.rmtree(folder, ignore_errors=True)

    def plant_probe(self, query: str, token: str) -> None:
        """Leave the token, by the same link that claims need."""
        self._link(self._root / query, f"probe-{token}", token.encode())

    def see_probe(self, query: str, token: str) -> None:
        """Look for the token."""
        if not (self._root / query / f"probe-{token}").exists():
            reason = "a task cannot see what the driver wrote there"
            raise ConfigurationError("metadataLocation", str(self._root), _VALID, reason=reason)

    def _folder(self, batch: BatchId) -> Path:
        return self._root / batch.query / f"{batch.batch:010d}-{batch.plan}"

    def _link(self, folder: Path, name: str, content: bytes) -> bool:
        """Whether this call made the name."""
        try:
            return link_durably(folder, name, content)
        except OSError as error:
            reason = f"claims cannot be kept there: {error}"
            raise ConfigurationError("metadataLocation", str(self._root), _VALID, reason=reason) from error
