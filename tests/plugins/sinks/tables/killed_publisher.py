"""A process that stages rows, says what, and is killed inside publish: KIND FOLDER BEFORE|AFTER (the table's own commit)."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import lake_tables

from fakes.batches import batch


def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)


async def main(kind, folder, when):
    sink = await lake_tables.opened(getattr(lake_tables, kind)(Path(folder)))
    await sink.write(batch(b"a", b"b"))
    staged = await sink.stage(lake_tables.number(1))
    print(json.dumps(staged.content), flush=True)
    if when == "BEFORE":
        sink._table.commit = kill
    else:
        sink._table.folder().__class__.delete = kill
    await sink.publish([staged])


asyncio.run(main(*sys.argv[1:]))
