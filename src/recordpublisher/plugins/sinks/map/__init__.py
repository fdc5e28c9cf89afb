"""MapSink: calls a function of the user for each record, many at a time. Start at `map_sink.py`.

`ordering.py` decides which records may be handled now, `processing.py` calls the handler in the tasks of `handler_tasks.py`,
`outcomes.py` decides what follows, and `handled_positions.py` knows how far each shard is handled without a gap.
"""

from .map_sink import MapSink

__all__ = ["MapSink"]
