"""The page of properties: a table for each group, from their declarations. Run by `make docs`."""

from __future__ import annotations

import re
from typing import Any

from recordpublisher.cli.commands.properties import all_properties, default_text, grouped
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.publishers.properties.declaration import Property

INTRODUCTION = """# Properties

Every setting of a job: look one up by its key, default or meaning.

Some defaults that you should know:

| property | default | what follows |
|---|---|---|
| `flink.stream.initpos` | LATEST | Only `consume` and `stream` with `stop_at_tip`, and `run` with an end, read older records. |
| `flink.state.uri` | not set | With the sinks `callback`, `map` and `kinesis` each start begins at `flink.stream.initpos` again. |
| `flink.deserializer.error` | FAIL | A bad record ends the job, and every start after it. |
| `flink.shard.idle.interval` | -1 | A shard without records holds back the watermark, and with alignment all other shards. |
| `flink.state.checkpoint.interval` | 10 s | How often positions, rows and files are stored; tables and object stores: each minute. |

Where properties come from:

- a Java properties file (`Properties.from_file`), a mapping, or options of Spark;
- keyword arguments in Python: the key without `flink.` or `aws.`, with `_` for each dot (`rp.consume("orders", request_timeout="10s")`), or
  the shorter name that a table gives. There a number that is a duration is in seconds, unless the name ends in `millis`; from 1000 on it
  needs a unit (`"30m"`, or a `timedelta`). A property of a plugin has no keyword argument: give it in the mapping,
  `rp.consume("orders", {"line-log.file": "log.db"})`.

How to read the tables:

- An empty default means: not set. Nothing under *Valid* means: a text.
- Where the default of Flink's connector differs, it is in parentheses.
- Numbers are whole, in the unit under *Valid*. *duration* and *size* may be texts such as `10s`, `5m` or `64mb`. Where
  seconds are usual, a number from 1 to 999 without a unit is refused: 30 ms are `30ms`.
- Keys are compared without case. A wrong value is a `ConfigurationError`, and so is a key that is nearly one of these, with that key in the
  message. Another unknown key is a warning in the log (for `doctor` a problem). Keys of another name space (`my.own.key`) are ignored.
"""
ORDER = (
    "Access", "Job", "Start", "Publisher", "Polling", "Fan-out", "DynamoDB Streams", "Queues", "Retries", "Discovery and state", "Memory",
    "Values and time", "Formats", "Sinks", "Kinesis sink", "Alarms", "Metrics", "Traces", "Spark",
)  # fmt: skip
"""The groups, whatever was imported first; others follow."""
SHORTER = (
    (r"^a text that is not empty$", ""),
    (r"^true or false$", "true, false"),
    (r", or a duration such as \w+", ", duration"),
    (r", or a size such as \w+", ", size"),
    (r"a (?:whole )?number of at least (\S+?)(?=,| |$)", r"from \1"),
    (r"a (?:whole )?number from ", "from "),
)
"""What error messages say in whole sentences, in the words of a table."""


def page() -> str:
    """The whole page."""
    groups = sorted(
        grouped(all_properties(load_registry())).items(),
        key=lambda group: (group[0] not in ORDER, [*ORDER, group[0]].index(group[0])),
    )
    tables = [
        f"## {group}\n\n{(_retries if group == 'Retries' else _table)(sorted(members, key=lambda one: one.spelling))}"
        for group, members in groups
    ]
    return "\n".join([INTRODUCTION, *tables])


def _table(members: list[Property[Any]]) -> str:
    head = "| Key | Default | Valid | Meaning |\n|---|---|---|---|\n"
    rows = ((f"`{one.spelling}`", _default(one), _valid(one), _meaning(one)) for one in members)
    return head + "".join(f"| {' | '.join(row)} |\n" for row in rows)


RETRIES = """Retries of Flink's connector, for a job that needs them. Where `maxretries` of a call is not set, the call is retried for
`flink.job.max.outage`, with pauses of up to 5 s. The key names the call.

- `maxretries` (from 0): failures in a row, without progress between them, before the job fails.
- `backoff.base`, `backoff.max` (from 0, duration): first and largest pause. `backoff.expconst` (from 1): how fast the pauses grow.
- `flink.stream.liststreamconsumers` of FLIP-128 is another spelling of `flink.stream.describestreamconsumer`, which finds a consumer.

| Key | Default |
|---|---|
"""


def _retries(members: list[Property[Any]]) -> str:
    return RETRIES + "".join(f"| `{one.spelling}` | {_default(one)} |\n" for one in members)


def _default(declared: Property[Any]) -> str:
    elsewhere = f"(connector: {_cell(declared.connector)})" if declared.connector else ""
    own = "" if declared.default is None else _cell(default_text(declared))
    return " ".join(filter(None, [own, elsewhere]))


def _valid(declared: Property[Any]) -> str:
    text = declared.valid
    for words, shorter in SHORTER:
        text = re.sub(words, shorter, text)
    return _cell(text)


def _meaning(declared: Property[Any]) -> str:
    also = "".join(f" Also spelt `{alias}`." for alias in declared.aliases if f"`{alias}`" not in declared.sentence)
    keyword = f" Keyword argument: `{declared.argument}`." if declared.argument else ""
    return _cell(declared.sentence) + also + keyword


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
