"""Keeps garbage collection cheap in the Python processes that Spark starts."""

import gc
import sys

YOUNG_OBJECTS = 10_000
"""How many objects Python makes before it looks for garbage among them; 700 unless set."""


def spare_collection() -> None:
    """Exclude all existing objects from garbage collection, and collect less often, if Spark started this process.

    Call it before the imports of this library. PySpark's modules have a hundred thousand objects, which Python would scan again and again
    while it imports more: a fifth of the CPU of a task's imports.
    """
    if is_process_of_spark():
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])


def is_process_of_spark() -> bool:
    """Return whether Spark started this process, because it runs a module of pyspark or our daemon."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and str(spec.name).startswith(("pyspark.", "recordpublisher.plugins.spark."))
