"""A batch's way from the reader to the sink: read, queue, emit, end. Start at `emitter.py`."""
