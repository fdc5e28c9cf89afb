"""Writes files that survive a crash. When a function here returns, the content is on the disk."""

import contextlib
import errno
import io
import os
import re
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from recordpublisher.publishers.errors import ConfigurationError

from .back_ends import BY_SCHEME, FOLDER, REFUSED_SCHEMES, is_file_uri

_KNOWN_SCHEMES = "|".join(({*BY_SCHEME} - {*FOLDER.schemes}) | {*REFUSED_SCHEMES, "http", "https"})
_LIKE_A_URI = rf"(?P<scheme>{_KNOWN_SCHEMES}|\w+(?=://))(\+\w+)?(:|//)|(?![a-z]:[/\\]).*:.*@"


class DurableFile(io.BufferedWriter):
    """A file for writing. When `close` returns, its data and its name are on the disk. Missing folders above it are created.

    Raises: FileExistsError if `is_new` is True and the file exists.
    """

    def __init__(self, path: Path, *, is_new: bool = False) -> None:
        make_folder(path.parent)
        super().__init__(io.FileIO(path, "x" if is_new else "w"))
        self._folder = path.parent

    def close(self) -> None:
        """Flush the file and its name to the disk, and close it.

        Raises: OSError if the flush fails. The file is then closed, and may be empty.
        """
        if self.closed:
            return
        try:
            self.flush()
            os.fsync(self.fileno())
        finally:
            super().close()
        sync(self._folder)


def write_file(path: Path, content: bytes) -> None:
    """Write a file completely, or remove it if that fails, for example on a full disk.

    The file's name is durable only after `sync` of the folder. Raises: OSError if the file cannot be written.
    """
    try:
        with path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        raise


def exists(path: Path) -> bool:
    """Return whether a file or folder exists. Unlike `os.path.exists`, it does not return False if the disk is unavailable.

    Raises: OSError if the answer is not known, for example on a network file system that is unavailable.
    """
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        return False
    return True


def sync(path: Path) -> None:
    """Flush the content of a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a folder, and the missing folders above it."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync(folder.parent)


def path_of(location: str, key: str) -> str:
    """Return the path of the folder at a location.

    It is `/a` for `file:/a` and `file:///a`, and a path in the user's home for `~/a`.

    - `key`: the property that contains the location, for the error.

    Raises: ConfigurationError if the location is not a path or file: URI. A location that looks like another URI is refused too, because
    its password would otherwise become the name of a folder.
    """
    if not is_file_uri(location):
        if (like := re.match(_LIKE_A_URI, location, re.IGNORECASE)) is not None:
            meant = BY_SCHEME.get((like["scheme"] or "").lower())
            reason = (
                "it looks like a URI" + (f", which is written {meant.form}," if meant else "") + " and is not a path"
            )
            raise ConfigurationError(key, location, "a folder, as /path or file:///path", reason=reason)
        return os.path.expanduser(location)
    if (found := re.search("[?#]", location)) is not None:
        reason = f"a URI ends at {found[0]!r}; write {quote(found[0])}, or a path without file:"
        raise ConfigurationError(key, location, "file:///path", reason=reason)
    parts = urlsplit(location)
    if parts.netloc not in ("", "localhost"):
        reason = f"{parts.netloc!r} would be a host; write file: with one slash or three"
        raise ConfigurationError(key, location, "file:///path", reason=reason)
    path = unquote(parts.path)
    if "\0" in path:
        raise ConfigurationError(key, location, "file:///path", reason="a file name cannot have a null character")
    return path


def why_not_writable(folder: Path) -> str | None:
    """Return why this user can neither write into a folder nor create it, or None if it seems possible. Nothing is written."""
    try:
        above = (folder.absolute(), *folder.absolute().parents)
        existing = next(path for path in above if path.exists() or path.is_symlink())
        if not existing.exists():
            return f"{existing} is a link to {existing.readlink()}, which does not exist"
        if not existing.is_dir():
            return f"{existing} is not a folder"
        return None if os.access(existing, os.W_OK | os.X_OK) else f"this user may not write into {existing}"
    except (OSError, ValueError) as error:  # For example, the name is too long, or has a null character.
        return str(error)
