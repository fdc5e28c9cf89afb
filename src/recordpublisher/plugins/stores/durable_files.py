"""Files that survive a crash: what these functions write is on the disk when they return."""

import contextlib
import io
import os
import re
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from recordpublisher.publishers.errors import ConfigurationError

_URI_FORMS = {
    "sqlite": "sqlite:////path/file.db",
    "postgres": "postgresql://user@host/database",
    "s3": "s3://bucket/prefix",
    "dynamodb": "dynamodb://table/job",
}
_LIKE_A_URI = r"(?P<scheme>sqlite|postgres|s3|dynamodb|hdfs|dbfs|https?|\w+(?=://))[a-z+]*(:|//)|(?![a-z]:[/\\]).*:.*@"


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


class DurableFile(io.BufferedWriter):
    """A file that is on the disk, with its name, when it is closed. Makes the folders above it."""

    def __init__(self, path: Path, *, is_new: bool = False) -> None:
        """`is_new`: raises FileExistsError if there is such a file."""
        make_folder(path.parent)
        super().__init__(io.FileIO(path, "x" if is_new else "w"))
        self._folder = path.parent

    def close(self) -> None:
        """Raises: OSError; then the file is closed and may be empty."""
        if self.closed:
            return
        try:
            self.flush()
            os.fsync(self.fileno())
        finally:
            super().close()
        sync(self._folder)


def make_folder(folder: Path) -> None:
    """Make a folder and the missing ones above it."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync(folder.parent)


def path_of(location: str, key: str) -> str:
    """The path of a folder; `file:/a` and `file:///a` are `/a`, `~/a` is in the user's home. `key` is the property that has it.

    Raises: ConfigurationError, also for what looks like a URI of another kind: it may have a password, which would name the folder.
    """
    if not location.startswith("file:"):
        if (like := re.match(_LIKE_A_URI, location, re.IGNORECASE)) is not None:
            form = _URI_FORMS.get((like["scheme"] or "").lower())
            reason = "it looks like a URI" + (f", which is written {form}," if form else "") + " and is no path"
            raise ConfigurationError(key, location, "a folder, as /path or file:///path", reason=reason)
        return os.path.expanduser(location)
    if (found := re.search("[?#]", location)) is not None:
        reason = f"a URI ends at {found[0]!r}: write {quote(found[0])}, or a path without file:"
        raise ConfigurationError(key, location, "file:///path", reason=reason)
    parts = urlsplit(location)
    if parts.netloc not in ("", "localhost"):
        reason = f"{parts.netloc!r} would be a host: file: has one slash or three"
        raise ConfigurationError(key, location, "file:///path", reason=reason)
    path = unquote(parts.path)
    if "\0" in path:
        raise ConfigurationError(key, location, "file:///path", reason="no file name has a null character")
    return path


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
