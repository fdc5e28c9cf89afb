"""`spark.read.format("kinesis")`: reads a finite part of a stream. Start at `batch_reader.py`."""
