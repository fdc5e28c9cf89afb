"""Read Amazon Kinesis Data Streams: publishers chosen by one property, exact state, event-time alignment, Spark."""
