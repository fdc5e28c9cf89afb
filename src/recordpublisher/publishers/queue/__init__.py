"""Sources whose records are acknowledged one by one. Start at the port, `queue_source.py`; `kinesis_queue.py` is QUEUE of Kinesis."""
