"""Records put for clients that print what they read, a line `SHARD NUMBER` a record, and a check that they print all of them."""

import subprocess
from contextlib import contextmanager
from queue import Queue
from threading import Thread

import boto3

ACCESS = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "us-east-1"}
FIRST, SECOND, CHILD = (f"shardId-{number:012d}" for number in (0, 1, 3))
"""Shards of a stream that begins with two, of which the first one is split."""
SECONDS = 180


@contextmanager
def worker(*command):
    """The lines that a process prints; it is killed at the end."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process.stdout
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Records:
    """Numbers put into every open shard of `orders`. `found`: (reader, shard, number) of each line printed."""

    def __init__(self, url):
        self.kinesis = boto3.client("kinesis", endpoint_url=url, **ACCESS)
        self.count = 0
        self.found = []
        self._printed = Queue()

    @contextmanager
    def read_by(self, name, *command):
        """Collect what a process prints while the block runs; then it is killed."""
        with worker(*command) as lines:
            thread = Thread(target=lambda: [self._printed.put((name, *line.split())) for line in lines])
            thread.start()
            yield
        thread.join()

    def put(self):
        """Put ten records into each open shard."""
        shards = self.kinesis.list_shards(StreamName="orders", ShardFilter={"Type": "AT_LATEST"})["Shards"]
        for shard in shards:
            hash_key = shard["HashKeyRange"]["StartingHashKey"]
            for _ in range(10):
                data = b"%d" % self.count
                self.kinesis.put_record(StreamName="orders", PartitionKey="k", ExplicitHashKey=hash_key, Data=data)
                self.count += 1

    def split(self):
        self.kinesis.split_shard(StreamName="orders", ShardToSplit=FIRST, NewStartingHashKey=str(2**126))

    def merge(self):
        self.kinesis.merge_shards(StreamName="orders", ShardToMerge=CHILD, AdjacentShardToMerge=SECOND)

    def wait_until(self, condition):
        while not condition():
            name, shard, number = self._printed.get(timeout=SECONDS)
            self.found.append((name, shard, int(number)))

    def read_all(self):
        """Wait until every number was printed. Raises: queue.Empty when nothing comes for minutes."""
        self.wait_until(lambda: len({number for _, _, number in self.found}) == self.count)

    def numbers(self):
        """The numbers in order, also those printed again."""
        while not self._printed.empty():
            name, shard, number = self._printed.get()
            self.found.append((name, shard, int(number)))
        return sorted(number for _, _, number in self.found)

    def close(self):
        self.kinesis.close()
