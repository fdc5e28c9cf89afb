"""The page of errors: symptoms, then by subject classes, remedy and the constant text of each message, then codes. Run by `make docs`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import recordpublisher as rp
from recordpublisher.publishers import errors
from recordpublisher.publishers.kinesis import error_mapping

PACKAGE = Path(__file__).parents[1] / "src/recordpublisher"
LEFT_OUT = ("local/", "demo/", "testing/", "cli/doctor/", "publishers/errors.py")
"""The embedded endpoint sends the service's codes; each line of the doctor says itself what to do."""
OWN = {name for name in vars(rp)["__all__"] if name.endswith("Error")} - {"ConfigurationError"}
WITH_CODE = {name for name in OWN if issubclass(getattr(rp, name), rp.KinesisError)}
LONGEST = 48
FEWEST_WORDS = 3
"""Nobody searches for a message with fewer words of its own; the classes are on the page."""
UNLISTED = ("Positions of another client", "Plugins", "Commands", "A mistake in the library")
"""Subjects whose messages are not shown: each says itself what to do, or nobody but us can do anything."""
VARIES = "…"


@dataclass(frozen=True)
class Subject:
    """Messages with one cause and one remedy: those of `errors` that are made below `paths`."""

    title: str
    cause: str
    remedy: str
    errors: frozenset[str]
    paths: tuple[str, ...] = ("",)
    further: tuple[str, ...] = ()
    """Messages that the class of the error itself makes."""


def _subject(title: str, cause: str, remedy: str, errors: str, *paths: str, further: tuple[str, ...] = ()) -> Subject:
    return Subject(title, cause, remedy, frozenset(errors.split()), paths or ("",), further)


SUBJECTS = (
    _subject(
        "A stream does not exist",
        "No stream, shard or consumer has this name in this account and region.",
        "Check the name, `aws.region` and the account. `recordpublisher list` shows the streams.",
        "StreamNotFoundError ResourceNotFoundError",
        further=(
            "stream '…' does not exist; existing streams: …",
            "stream '…' does not exist in …; existing streams: …",
        ),
    ),
    _subject(
        "A stream is being created",
        "The stream is CREATING; the job waits up to five minutes for it.",
        "Wait, or look at it with `recordpublisher describe STREAM`.",
        "StreamNotActiveError",
        further=("ListShards failed with StreamNotActive: stream '…' is CREATING",),
    ),
    _subject(
        "Fan-out consumers",
        "The consumer was deregistered or is used by another job, or the stream has no room for one more.",
        "Give each job its own `flink.stream.efo.consumername`. `recordpublisher consumers list STREAM` shows what is registered, "
        "`recordpublisher consumers deregister` removes one.",
        "ConsumerError",
    ),
    _subject(
        "A call failed",
        "The service, the network or a proxy did not give the answer that is documented. Transient errors are retried, expired "
        "iterators renewed, busy consumers waited for: you see these in logs, and as the cause of the last error.",
        "Throttling that lasts: poll less often (`flink.shard.getrecords.intervalmillis`), read by enhanced fan-out, or add shards. "
        "Otherwise find the code after `failed with` [below](#codes-of-the-service), and start the job again. "
        "Raise `maxOutage` of a Spark query if long outages are normal.",
        "TransientError ThrottledError FatalKinesisError ResourceInUseError ExpiredIteratorError KinesisError RetriesExhaustedError "
        "OutageError",
        further=("… failed with …: …",),
    ),
    _subject(
        "Records were lost before they were read",
        "The job was away, or slow, for longer than the stream keeps its records.",
        "`flink.state.dataloss` = `CONTINUE` continues with the oldest record there is. Increase the stream's retention, and watch the "
        "[lag](../operate/watch-a-job.md).",
        "DataLossError",
    ),
    _subject(
        "A record cannot be deserialized",
        "The record is not what `flink.deserializer` expects.",
        "Look at it, then skip such records or keep them as dead letters: [bad records](../how-to/bad-records.md).",
        "DeserializationError",
        further=("record … of … cannot be deserialized: …",),
    ),
    _subject(
        "A newer start has taken over",
        "Another process was started for the same job, or other processes of a group hold the shards now.",
        "Nothing, if you replaced the process. Otherwise give each job its own `flink.job.name` or place of state.",
        "FencedError ConflictError",
        further=("… in … was not written: … stored there",),
    ),
    _subject(
        "The store does not answer",
        "S3, DynamoDB, the database or the folder of the state did not answer, or refused again and again.",
        "Check that it is reachable and that its [rights](iam-policies.md) are there; then start the job again. `recordpublisher run` "
        "waits for a quarter of an hour before it ends so.",
        "StoreUnavailableError",
        further=(
            "the folder … cannot be used: …",
            "… at … failed with …: …",
            "… at … failed: …",
            "the response of … at … is not as documented: …",
        ),
    ),
    _subject(
        "Positions of another client",
        "The imported positions and the job do not fit, or one of the two programs is running.",
        "Stop what the message names. [Take the checkpoints over](../migrate/from-kcl.md#take-the-checkpoints-over) says what the "
        "command refuses, and what `--force` is for.",
        "StateError",
        "plugins/positions/",
        "cli/commands/positions.py",
    ),
    _subject(
        "Processes that share the shards (GROUP)",
        "A document of the group is damaged or of another version, or the processes do not read the same streams and write to the "
        "same place.",
        "Start all processes of the group with the same properties and the same version. To change streams or sink, "
        "[stop all of them first](../operate/share-shards-between-processes.md#change-streams-or-sink). A group whose "
        "documents are damaged needs another `flink.job.name`; it begins at `flink.stream.initpos`.",
        "StateError",
        "fetcher/elastic/",
        "fetcher/leases/",
    ),
    _subject(
        "Checkpoint and metadata of a Spark query",
        "`checkpointLocation` and `metadataLocation` are not those that the query began with, or one of them was deleted or is of "
        "another version.",
        "Give the query both places that it began with. To begin again, give it two new ones. If the claims are lost, "
        "the query continues with `onMetadataLoss=REPLAY`, and the last batch may come twice.",
        "StateError",
        "plugins/spark/",
    ),
    _subject(
        "The stored state",
        "The state is missing, damaged, of another version, or of a job with other settings.",
        "Check `flink.state.uri` and `flink.job.name`. Use the version of the library that wrote it, or give the job another name: it "
        "then begins at `flink.stream.initpos`. If the job's last sink kept the positions with its rows, the message names the "
        "commands that take them along.",
        "StateError",
        further=("the positions of … are not in …: …",),
    ),
    _subject(
        "Your function, observer or callback failed",
        "Your own code raised an error, or returned what the sink cannot use.",
        "Look at the cause in the traceback. [Call a function for each record](../how-to/handle-each-record.md) says what happens to "
        "records that fail.",
        "SinkError",
        "plugins/sinks/map/",
        "plugins/sinks/reactive.py",
    ),
    _subject(
        "A sink cannot write",
        "The database, the folder or the stream refused a record, or may have lost a write.",
        "Correct what the message names, and start the job again. A row that the table rejects is a "
        "[bad record](../how-to/bad-records.md).",
        "SinkError",
    ),
    _subject(
        "A record that the service would reject",
        "The data or the key of a record that is put is too long for the stream, or the key is empty.",
        "Shorten the data, or give the stream a larger `MaxRecordSizeInKiB`. The sink did not accept the record, and stays usable.",
        "InvalidRecordError",
        further=("a record with the partition key … and … bytes of data was not put into …: ValidationException: …",),
    ),
    _subject(
        "Plugins",
        "A package with an entry point `recordpublisher` cannot be used, two packages register one name, or a publisher breaks its "
        "contract.",
        "`recordpublisher plugins` lists them. Repair or uninstall the package that the message names.",
        "PluginError",
    ),
    _subject(
        "Commands",
        "A command could not do what it was asked for.",
        "The message says what is wrong; `--help` of the command shows an example.",
        "RecordPublisherError",
    ),
    _subject(
        "A mistake in the library",
        "A mistake in this library, in a plugin, or in a server that is not Kinesis.",
        "Report it with the whole traceback. The job can be started again.",
        "ImpossibleStateError",
    ),
)
"""The first one that fits has the message."""

INTRODUCTION = (
    "Search this page for a few words of the message, the name of the error, or its code. `…` stands for a name, a number or a cause; "
    "long messages are cut. A job that is started again continues at its last checkpoint. `recordpublisher doctor job.properties` finds "
    "most errors before a job starts."
)
SYMPTOMS = Path(__file__).with_name("errors_symptoms.txt")
"""The part of the page that is written by hand."""


def messages() -> dict[str, Subject]:
    """Every message by its constant text; `…` stands for what varies."""
    found = {text: subject for subject in SUBJECTS for text in subject.further}
    for file in sorted(PACKAGE.rglob("*.py")):
        path = file.relative_to(PACKAGE).as_posix()
        if not path.startswith(LEFT_OUT):
            found |= {text: subject_of(error, path) for error, text in _made_in(file)}
    return found


def subject_of(error: str, path: str) -> Subject:
    """The subject of the messages of an error class that are made in a file."""
    return next(each for each in SUBJECTS if error in each.errors and path.startswith(each.paths))


def _made_in(file: Path) -> Iterator[tuple[str, str]]:
    source = file.read_text(encoding="utf-8")
    if "Error(" not in source:
        return
    tree = ast.parse(source)
    for node in ast.walk(tree):
        name = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and name in OWN and node.args:
            text = _with_code(node.args, tree) if name in WITH_CODE else _constant_text(node.args[0], tree)
            if re.search(r"\w", text):  # without a word of its own it hands another message on
                yield name, _shortened(text)


def _with_code(arguments: list[ast.expr], tree: ast.Module) -> str:
    """An error of a call with a code of ours; the service's codes are on another page."""
    code = arguments[1] if len(arguments) > 1 else None
    return f"{VARIES} failed with {code.value}: {VARIES}" if isinstance(code, ast.Constant) else ""


def _constant_text(node: ast.expr, tree: ast.Module) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else VARIES for part in node.values)
    if isinstance(node, ast.BinOp):
        return _constant_text(node.left, tree) + _constant_text(node.right, tree)
    if isinstance(node, ast.Call):  # of a function of the same file that writes the message
        written = [
            each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == ast.unparse(node.func)
        ]
        last = written[0].body[-1] if written else None
        if isinstance(last, ast.Return) and last.value is not None:
            return _constant_text(last.value, tree)
    return VARIES


def _shortened(text: str) -> str:
    text = re.sub(rf"{VARIES}[{VARIES} ]*{VARIES}", VARIES, " ".join(text.replace("`", "").split()))
    return text if len(text) <= LONGEST else text[:LONGEST].rsplit(" ", 1)[0].rstrip(VARIES + " :;,") + VARIES


def page() -> str:
    """The whole page."""
    found = messages()
    parts = [
        "# Errors: find the text that you see",
        INTRODUCTION,
        SYMPTOMS.read_text(encoding="utf-8").rstrip(),
    ]
    seen: set[str] = set()
    for subject in SUBJECTS:
        texts = sorted(text for text in found if found[text] == subject and _is_listed(text, subject))
        lines = [f"- `{text}`" for text in texts if not any(_covers(other, text) for other in texts)]
        parts += [
            f"## {subject.title}",
            f"{_classes(subject, seen)} {subject.cause}",
            f"**What to do.** {subject.remedy}",
            *(["\n".join(lines)] if lines else []),
        ]
    parts += [
        CODES.format(codes=_codes()),
        _classification(),
        "<!-- made by docs/errors_page.py (make docs): change that file, not this page -->",
    ]
    return "\n\n".join(parts) + "\n"


def _is_listed(text: str, subject: Subject) -> bool:
    is_told_apart = text in subject.further or len(re.findall(r"[a-zA-Z]{2,}", text)) >= FEWEST_WORDS
    return is_told_apart and subject.title not in UNLISTED


def _covers(other: str, text: str) -> bool:
    """Whether `other` is enough for who sees `text`; a code is a word that people search for."""
    return (
        other != text
        and "failed with" not in text
        and re.fullmatch(".*".join(map(re.escape, other.split(VARIES))), text) is not None
    )


def _classes(subject: Subject, seen: set[str]) -> str:
    """The names of the classes of a subject; the first subject of a class has its anchor."""
    names = [name for name in vars(rp)["__all__"] if name in subject.errors]
    anchors = "".join(f'<a id="{name.lower()}"></a>' for name in names if name not in seen)
    seen.update(names)
    return f"{anchors}Class: {', '.join(f'`{name}`' for name in names)}."


CODES = """## Codes of the service

The message of a `FatalKinesisError` has the code and what to do. *Check the credentials*: `aws.credentials.provider` and its keys.

| code | what to do |
|---|---|
{codes}"""


TOLD_ABOVE = " (aws.credentials.provider and its keys)"


def _codes() -> str:
    """A line for each remedy, with all its codes."""
    by_words: dict[str, list[str]] = {}
    for code, words in error_mapping.HINTS.items():
        by_words.setdefault(words.replace(TOLD_ABOVE, ""), []).append(f"`{code}`")
    lines = [f"| {', '.join(codes)} | {words} |" for words, codes in by_words.items()]
    return "\n".join([*lines, f"| a status alone, for example `404` or `501` | {error_mapping.NOT_KINESIS} |"])


def _classification() -> str:
    """What helps against which error, from the tables that the code decides by."""
    exact = sorted(
        error_mapping.ERRORS_BY_CODE,
        key=lambda code: list(errors.Remedy).index(error_mapping.ERRORS_BY_CODE[code].remedy),
    )
    retry = errors.Remedy.RETRY
    network = "the network: time-outs, resets, lost connections, truncated or malformed responses"
    own = "errors of the service itself, and every status from 500, except 501 without a code"
    rows = [
        ("throttling", error_mapping.THROTTLED, "`ThrottledError`", retry),
        (f"{network}; {own}", error_mapping.TRANSIENT, "`TransientError`", retry),
        *(
            ("", [code], f"`{error_mapping.ERRORS_BY_CODE[code].__name__}`", error_mapping.ERRORS_BY_CODE[code].remedy)
            for code in exact
        ),
        ("every other code", [], "`FatalKinesisError`", errors.Remedy.ACT),
    ]
    lines = [
        f"| {': '.join(filter(None, [what, ', '.join(f'`{code}`' for code in sorted(codes))]))} | {name} | {remedy.name}: {remedy.value} |"
        for what, codes, name, remedy in rows
    ]
    head = "## What happens on which error\n\n| what was raised | error | what happens (`Remedy`) |\n|---|---|---|\n"
    return head + "\n".join(lines)
