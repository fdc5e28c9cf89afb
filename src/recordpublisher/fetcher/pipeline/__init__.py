"""The path of a batch from its reader to the sink: read, queue, emit (write to the sink), and the end of a run. Start at `emitter.py`."""
