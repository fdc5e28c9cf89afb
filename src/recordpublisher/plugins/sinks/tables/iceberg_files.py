"""DurableFileIO: how pyiceberg writes a table's metadata."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from recordpublisher.plugins.stores.durable_files import DurableFile


class DurableFileIO(PyArrowFileIO):  # type: ignore[misc] # of Any
    """Local files are on the disk when they are closed: then a catalogue, which survives a power cut, names them."""

    def new_output(self, location: str) -> PyArrowFile:
        """A file to write."""
        scheme, host, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return super().new_output(location)
        return _LocalFile(location, path, self.fs_by_scheme(scheme, host))


class _LocalFile(PyArrowFile):  # type: ignore[misc]
    def create(self, overwrite: bool = False) -> DurableFile:
        _, _, path = PyArrowFileIO.parse_location(self.location)
        return DurableFile(Path(path), is_new=not overwrite)
