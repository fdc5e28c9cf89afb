"""How many fetchers there may be: each keeps a slot of the cluster for as long as it lives, and the query needs one."""

from __future__ import annotations

import os
import re
from typing import Any

from recordpublisher.publishers.errors import ConfigurationError

PARALLELISM = "spark.default.parallelism"


def checked_tasks(tasks: int | None, context: Any) -> int:
    """The number of fetchers, half of the slots where nobody says. Raises: ConfigurationError for what cannot run beside a query."""
    valid = "a whole number of at least 1"
    if tasks is not None and (isinstance(tasks, bool) or not isinstance(tasks, int) or tasks < 1):
        raise ConfigurationError("tasks", tasks, valid)
    slots = _slots(context)
    if is_local(context) and slots == 1:
        reason = "this Spark has one slot: a fetcher would keep it, and the query needs one"
        raise ConfigurationError("tasks", tasks, "mode=driver, or a master of at least local[2]", reason=reason)
    if tasks is None and slots is None:
        reason = f"{PARALLELISM} is set, so that Spark does not tell its slots"
        raise ConfigurationError("tasks", None, valid, reason=reason)
    if is_local(context) and slots is not None and tasks is not None and tasks >= slots:
        raise ConfigurationError(
            "tasks", tasks, f"fewer than the {slots} slots: every fetcher keeps one, the query needs one"
        )
    return tasks if tasks is not None else max(1, (slots or 1) // 2)


def is_local(context: Any) -> bool:
    """Whether everything runs in the driver's process."""
    return str(context.master).partition("[")[0] == "local"


def _slots(context: Any) -> int | None:
    """Slots as far as Spark tells; a cluster that just starts tells of fewer. None: what it tells is something else."""
    conf = context.getConf()
    cores = int(context.defaultParallelism)
    if conf.get(PARALLELISM) is not None:
        if not is_local(context):
            return None
        found = re.match(r"local\[(\d+)", str(context.master))
        cores = int(found.group(1)) if found else (os.cpu_count() or 1) if "[" in str(context.master) else 1
    return max(1, cores // int(conf.get("spark.task.cpus") or 1))
