"""The path of a batch from its reader to the sink: read, queue, emit, end of the run. Start at `emitter.py`."""
