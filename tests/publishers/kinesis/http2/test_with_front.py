"""Fan-out over HTTP/2 through hypercorn before the embedded endpoint."""

import asyncio

from fanout_endpoint import Job, endpoint_with
from fast_time import run_fast
from http2_front import front_of


def test_a_stream_is_read_over_one_http2_connection():
    async def main():
        async with endpoint_with(3) as endpoint, front_of(endpoint.url) as front:
            job = Job(endpoint, **{"aws.endpoint": front.url, "aws.http.protocol.version": "HTTP2"})
            tasks = [asyncio.create_task(job.read(job.shard(f"shardId-00000000000{n}"))) for n in range(3)]
            for number in range(3):
                endpoint.stream("orders").put(b"%d" % number, "key", number * 2**126)
            await job.until(lambda: len(job.data) == 3)
            assert sorted(job.data) == ["0", "1", "2"]
            assert "2" in front.versions
            assert len(front.clients) == 3
            assert len(set(front.clients)) == 1
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await job.factory.close()

    run_fast(main())
