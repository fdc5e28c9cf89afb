"""Properties, which are declared once, parsed and checked.

Start at `properties.py`, which also lists the groups. The declarations are in `reading_properties.py`, with files of their own for polling,
fan-out and queues, in `job_properties.py`, `sink_properties.py` and `retry_properties.py`.

Public: the functions that declare a property, for plugins with settings of their own.
"""

from .declaration import PropertyOptions, boolean, choice, integer, number, optional_integer, prefix, text

__all__ = ["PropertyOptions", "boolean", "choice", "integer", "number", "optional_integer", "prefix", "text"]
