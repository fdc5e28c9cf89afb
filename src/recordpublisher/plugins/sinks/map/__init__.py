"""The map sink, which calls a function of the user for each record, many at a time.

- `map_sink.py`: the sink, which is where to start: what the job writes, and which positions a checkpoint gets.
- `handling.py`: the way of a record in five steps, from its arrival to its outcome.
- `key_order.py`: which record may be handled now; `handled_positions.py`: how far each shard is handled without a gap.
- `handler.py`: the call of the user's function.
"""

from .map_sink import MapSink

__all__ = ["MapSink"]
