"""The publisher ARCHIVE: reads the records that file sinks wrote, shard by shard, and then the live stream from the exact next record."""
