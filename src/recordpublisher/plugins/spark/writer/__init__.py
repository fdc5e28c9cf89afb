"""`df.writeStream.format("kinesis")` and `df.write.format("kinesis")`: rows into streams, through the core of the Kinesis sink."""
