"""Properties, which are declared once, parsed and checked (C1).

Start at `properties.py`, which also lists the groups. The declarations are in `job_properties.py`,
`reading_properties.py`, `retry_properties.py` and `sink_properties.py`.

Public: the functions that declare a property, for plugins with settings of their own.
"""

from .declaration import PropertyOptions, boolean, choice, integer, number, optional_integer, prefix, text

__all__ = ["PropertyOptions", "boolean", "choice", "integer", "number", "optional_integer", "prefix", "text"]
