"""Files that survive a crash: what these functions write is on the disk when they return."""

import contextlib
import os
from pathlib import Path


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, content: bytes) -> None:
    """Write a file, or nothing, as on a full disk. Its name is durable only after `sync` of the folder."""
    try:
        with path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        raise


def make_folder(folder: Path) -> None:
    """Make a folder and the missing ones above it."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync(folder.parent)


def why_not_writable(folder: Path) -> str | None:
    """Why this user can neither write into a folder nor create it; None: it seems possible. Nothing is created."""
    try:
        above = (folder.absolute(), *folder.absolute().parents)
        existing = next(path for path in above if path.exists() or path.is_symlink())
        if not existing.exists():
            return f"{existing} is a link to {existing.readlink()}, which does not exist"
        if not existing.is_dir():
            return f"{existing} is no folder"
        return None if os.access(existing, os.W_OK | os.X_OK) else f"no right to write into {existing}"
    except (OSError, ValueError) as error:  # as of a name that is too long, or has a null character
        return str(error)
