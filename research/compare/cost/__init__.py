"""CPU, memory and latency of every client that reads Kinesis, side by side: `make compare-cost`."""
