"""The publisher ARCHIVE: reads what file sinks wrote, shard by shard, then goes over to the live stream at the exact next record."""
