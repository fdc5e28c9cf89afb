"""Spark's data source `format("kinesis")`, for reading and writing, and the public names of `rp.spark`. Start at `data_source.py`.

The public names are imported at their first use, so this package can be imported without Spark. Queries are in `source/`, `spark.read`
in `batch_read.py`, writing in `writer.py`, listeners in `listeners.py`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from recordpublisher.install_commands import install_command

from .python_worker import reduce_garbage_collection

if TYPE_CHECKING:
    from .data_source import KinesisSource
    from .efo_consumers import deregister_consumers
    from .listeners import ConsumerDeregistration, ProgressListener
    from .query_positions import read_positions
    from .stream_reader import run_to_tips

_LAZY = {
    "ConsumerDeregistration": ".listeners",
    "ProgressListener": ".listeners",
    "KinesisSource": ".data_source",
    "deregister_consumers": ".efo_consumers",
    "run_to_tips": ".stream_reader",
    "read_positions": ".query_positions",
}

reduce_garbage_collection()  # Called here because Spark's processes import this module before any other module of this library.

__all__ = [
    "ConsumerDeregistration",
    "KinesisSource",
    "ProgressListener",
    "deregister_consumers",
    "read_positions",
    "run_to_tips",
]


if not TYPE_CHECKING:  # Hidden from type checkers, which would accept any name because of it.

    def __getattr__(name: str) -> Any:
        """Import a public name of `rp.spark` at its first use, and return it.

        Raises: ImportError, naming the extra, if Spark is not installed; AttributeError if there is no such name.
        """
        if name not in _LAZY:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        try:
            return getattr(importlib.import_module(_LAZY[name], __name__), name)
        except ModuleNotFoundError as error:
            if error.name in ("pyspark", "pyarrow", "pandas"):
                raise ImportError(f"rp.spark needs the extra 'spark': {install_command('spark')}") from error
            raise
