"""`df.writeStream.format("kinesis")` and `df.write.format("kinesis")`: put rows into streams with the Kinesis sink's writer.

Start at `data_writers.py`, which Spark calls; a task is in `write_task.py`.
"""
