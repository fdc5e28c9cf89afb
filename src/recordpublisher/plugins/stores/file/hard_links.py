"""Files that only the first writer can make: written aside, then linked to their name."""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path


def link_durably(folder: Path, name: str, content: bytes) -> bool:
    """Whether this call made the name. Durable before it is visible: file, link and folders are synced.

    link(2) is atomic and fails when the name exists, also on NFS; a rename would let the last writer win. Raises: OSError.
    """
    aside = folder / f".{uuid.uuid4().hex}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_durably(aside, content)
        os.link(aside, folder / name)
        sync_folder(folder)
        sync_folder(folder.parent)  # the folder itself may be new
    except FileExistsError:
        return False
    else:
        return True
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()


def write_durably(path: Path, content: bytes) -> None:
    """Write and sync a file; its folder is not synced. Raises: OSError."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. Raises: OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
