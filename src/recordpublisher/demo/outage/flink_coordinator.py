"""The coordinator of the model as a process of its own: one JSON line with a watermark in, one with the global watermark out."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import time

from .flink_rule import FlinkCoordinator


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--timeout-ms", type=int, required=True)
    given = parser.parse_args()
    asyncio.run(_serve(given.port, FlinkCoordinator(given.timeout_ms)))


async def _serve(port: int, coordinator: FlinkCoordinator) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            async for line in reader:
                told = json.loads(line)
                value = coordinator.update(told["subtask"], told["watermark"], round(time.time() * 1000))
                writer.write(json.dumps({"global": value}).encode() + b"\n")
                await writer.drain()

    async with await asyncio.start_server(answer, "127.0.0.1", port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    main()
