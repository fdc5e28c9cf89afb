"""Samples every path and draws it (`make flames`): writes flame-*.svg here and stores the shares of layers."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures.results import keep_shares
from benchmarks.flames.layers import shares_of
from benchmarks.flames.svg import flame_graph
from benchmarks.processes import ENVIRONMENT, HERE, put_server, replay_server

IMAGES = Path(__file__).parent
ROUNDS = 4
Folded = list[tuple[tuple[str, ...], int]]


@dataclass(frozen=True)
class Sampled:
    """A server, and the client script that is run against its URL."""

    name: str
    title: str
    server: AbstractContextManager[str]
    script: str
    arguments: tuple[object, ...]


def bulk() -> AbstractContextManager[str]:
    return replay_server(16, 60_000, 2_500, 200)


def paths() -> list[Sampled]:
    reads = "clients/pipeline_client.py"
    large, small = replay_server(8, 30_000, 500, 1_024), replay_server(100, 2_000, 250, 200)
    return [
        Sampled("polling-200", "polling, 200 B x 10,000", bulk(), reads, ("POLLING", "off", 960_000)),
        Sampled("polling-1024", "polling, 1 KiB x 10,000", large, reads, ("POLLING", "off", 240_000)),
        Sampled("fan-out-200", "fan-out, 200 B x 2,500", bulk(), reads, ("EFO", "off", 960_000)),
        Sampled(
            "small-bodies", "polling, 200 B x 100", small, "clients/growth_client.py", ("POLLING", "off", 2_000, 100)
        ),
        Sampled("sink-put", "Kinesis sink, put", put_server(), "clients/sinks/sink_client.py", ("put", 150_000)),
    ]


def sampled(path: Sampled, url: str) -> Folded:
    with tempfile.NamedTemporaryFile("r") as file:
        command = [
            str(HERE / "flames" / "sampled.py"),
            file.name,
            str(HERE / path.script),
            url,
            *map(str, path.arguments),
        ]
        subprocess.run([sys.executable, *command], env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL, timeout=200)
        lines = [line.rpartition(" ") for line in Path(file.name).read_text().splitlines()]
    return [(tuple(stack.split(";")), int(samples)) for stack, _, samples in lines]


def main() -> None:
    wanted = sys.argv[1:]
    for path in paths():
        if wanted and path.name not in wanted:
            continue
        samples: Counter[tuple[str, ...]] = Counter()
        with path.server as url:
            for _ in range(ROUNDS):
                for stack, count in sampled(path, url):
                    samples[stack] += count
        folded = sorted(samples.items())
        picture = IMAGES / f"flame-{path.name}.svg"
        picture.write_text(flame_graph(path.title, folded))
        keep_shares(path.title, shares_of(folded))
        sys.stdout.write(f"{picture.name}: {sum(samples.values())} samples, {os.path.getsize(picture) // 1000} kB\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
