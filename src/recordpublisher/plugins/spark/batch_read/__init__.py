"""`spark.read.format("kinesis")`: a finite part of a stream. Start at `batch_reader.py`."""
