"""The embedded Kinesis endpoint."""
