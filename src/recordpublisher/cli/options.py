"""Options that several commands share: the job's properties, and how to reach the service."""

import inspect
import re
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.job_properties import DEAD_LETTER_SINK, STREAMS
from recordpublisher.publishers.properties.properties import Properties, knows_any
from recordpublisher.publishers.properties.retry_properties import with_short_outages

from ..publishers.properties.declaration import is_secret
from ..publishers.properties.reading_properties import CREDENTIALS_PROVIDER, ENDPOINT, PROFILE_NAME, REGION
from ..publishers.safe_text import MASK
from .execution import run_to_end

_PROGRAM = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
Pairs = Annotated[
    list[str] | None,
    typer.Option(
        "-p",
        "--property",
        metavar="KEY=VALUE",
        help="A property, which overrides the file's; KEY= removes the file's. May be repeated.",
    ),
]
PropertiesFile = Annotated[
    Path | None, typer.Option("--properties", metavar="FILE", help="A Java properties file with the job's properties.")
]

Region = Annotated[str | None, typer.Option("--region", metavar="NAME", help="The AWS region (aws.region).")]
Endpoint = Annotated[str | None, typer.Option("--endpoint", metavar="URL", help="Another endpoint (aws.endpoint).")]
Profile = Annotated[str | None, typer.Option("--profile", metavar="NAME", help="A profile of the AWS configuration.")]


def with_properties(command: Callable[..., Coroutine[Any, Any, None] | None]) -> Callable[..., None]:
    """Return a command whose parameter for properties is replaced by command-line options.

    A parameter `properties` (`JobProperties`, `StreamProperties` or `ProducerProperties`) receives the properties that the options give.
    A parameter `options` receives the options as `PropertyOptions`.

    A command that is a coroutine is run to its end. A signal ends it with the exit code 128 plus the signal's number.
    """
    own = dict(inspect.signature(command, eval_str=True).parameters)
    name = "properties" if "properties" in own else "options"
    kind = own.pop(name).annotation

    @wraps(command)
    def with_options(**given: Any) -> None:
        options = PropertyOptions(*(given.pop(option, None) for option in _OPTIONS))
        if kind is PropertyOptions:
            work = command(options=options, **given)
        elif kind is JobProperties:
            work = command(properties=with_short_outages(options.read_job(given.pop("job"))), **given)
        else:
            read = options.read(given.pop("file"))
            work = command(properties=read if kind is ProducerProperties else with_short_outages(read), **given)
        if work is not None:
            run_to_end(work)

    others = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own.values()]
    if kind is JobProperties:
        others.insert(0, _parameter("job", Job, inspect.Parameter.empty))
    added = {**_OPTIONS, "file": PropertiesFile} if kind in (StreamProperties, ProducerProperties) else _OPTIONS
    options = [_parameter(option, annotation) for option, annotation in added.items()]
    with_options.__signature__ = inspect.Signature([*others, *options])  # type: ignore[attr-defined]
    return with_options


def _no_job(given: str) -> str:
    """Return the stream that was given. Raises: ConfigurationError if a job was given instead."""
    if is_job(given):
        valid = f"the name or ARN of a stream; with the properties of a job: STREAM --properties {given}"
        raise ConfigurationError("STREAM", given, valid, reason="a job was given instead of a stream")
    return given


def is_python_job(given: str) -> bool:
    """Return whether an argument looks like `module:name`. A path of Windows does not."""
    return _PROGRAM.fullmatch(given) is not None and not Path(given).exists()


def is_job(given: str) -> bool:
    """Return whether an argument names a job, by its properties file or its program, and not a stream."""
    return _names_a_file(given) or is_python_job(given) or Path(given).is_file()


def _names_a_file(given: str) -> bool:
    """Return whether an argument can only be a file's path, perhaps a misspelt one: streams have no slash, and ARNs have a colon."""
    suffix = Path(given).suffix.lower()
    return bool(get_close_matches(suffix, [".properties"], cutoff=0.75)) or ("/" in given and ":" not in given)


StreamName = Annotated[str, typer.Argument(help="The stream's name or ARN.", metavar="STREAM", callback=_no_job)]
StreamNames = Annotated[
    list[str],
    typer.Argument(
        help="Names or ARNs of streams.", metavar="STREAM", callback=lambda given: [_no_job(each) for each in given]
    ),
]
JobOrStream = Annotated[
    str, typer.Argument(help="A stream's name or ARN, or a job.", metavar="STREAM|JOB.properties|MODULE:NAME")
]
Job = Annotated[
    str, typer.Argument(metavar="JOB.properties|MODULE:NAME", help="The job's properties, or a program's DataFetcher.")
]
Port = Annotated[int, typer.Option(metavar="PORT", min=0, max=65_535, help="Listen on this port; 0 takes a free one.")]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the stream is ACTIVE.")]


@dataclass(frozen=True, slots=True)
class PropertyOptions:
    """The values of the options `-p`, `--region`, `--endpoint` and `--profile`."""

    pairs: list[str] | None = None
    region: str | None = None
    endpoint: str | None = None
    profile: str | None = None

    def given(self) -> dict[str, str]:
        """Return the pairs of `-p`, overridden by the other options. Raises: ConfigurationError if a pair is malformed."""
        options = {REGION.key: self.region, ENDPOINT.key: self.endpoint, PROFILE_NAME.key: self.profile}
        if self.profile is not None:
            options[CREDENTIALS_PROVIDER.key] = "PROFILE"
        above = dict(_split(pair) for pair in self.pairs or ())
        return above | {key: value for key, value in options.items() if value is not None}

    def read(self, job: Path | str | None = None) -> Properties:
        """Return the properties of the job's file or program, overridden by the options.

        An option without a value (`-p flink.metrics.exporters=`) removes the property of the file, so that the default holds.

        Raises: ConfigurationError if an option is malformed, or if the file or program cannot be used.
        """
        return self._read(job, _check_content)

    def read_job(self, job: Path | str | None) -> Properties:
        """Return the same as `read`, for a command that cannot be used for a query on Spark.

        Raises: the errors of `read`; ConfigurationError if the file has the options of a query.
        """
        return self._read(job, _check_job)

    def read_job_or_query(self, job: Path | str | None) -> Properties:
        """Return the same as `read`, even if the file has only options of a query on Spark. Raises: the errors of `read`."""
        return self._read(job, lambda path, given: None if _has_query(given) else _check_content(path, given))

    def _read(self, job: Path | str | None, check: Callable[[str, Properties], None]) -> Properties:
        above = self.given()
        search_current_folder()  # Properties may name functions there, which the check of a plugin's property may import.
        if job is not None and is_python_job(str(job)):
            # Imported here because it loads the AWS SDK.
            from ..plugins.runtime.job_of_program import describe_program

            return describe_program(str(job), above)[0]
        given = Properties() if job is None else Properties.from_file(job)
        check(str(job), given)
        return given.merged({key: value or None for key, value in above.items()})


_FILE = "a Java properties file with the job's properties"


def _check_content(path: str, given: Properties) -> None:
    """Check that a file has properties of this package. Raises: ConfigurationError if it has something else."""
    first = next(iter(given), "")
    if first.startswith("{"):
        raise ConfigurationError("file", path, f"{_FILE}, one key=value a line", reason="it is JSON")
    # A first key with a bracket is a table of TOML.
    if given and (first.startswith("[") or not knows_any(given)):
        reason = f"the file has no property of this package; its first key is {first!r:.100}"
        raise ConfigurationError("file", path, _FILE, reason=reason)


def _check_job(path: str, given: Properties) -> None:
    """Check that a file has the properties of a job. Raises: ConfigurationError if it has something else."""
    if given and not given.is_set(STREAMS) and not given.is_set(DEAD_LETTER_SINK) and _has_query(given):
        reason = "it has the options of a Spark query, whose positions are in its checkpoint, and its lag in query.lastProgress"
        valid = f"the properties of a job, with {STREAMS.key}; to check a query: recordpublisher doctor {path}"
        raise ConfigurationError("file", path, valid, reason=reason)
    _check_content(path, given)


def _has_query(given: Properties) -> bool:
    # Imported here because most files name `flink.streams`, and need no options of Spark.
    from ..plugins.spark.options.spark_options import is_query

    return is_query(given)


JobProperties = Annotated[Properties, "job"]
"""The type of a command's parameter that receives the properties of a job: those of the file in the argument `job`, and of the options."""
StreamProperties = Annotated[Properties, "stream"]
"""The type of a command's parameter that receives properties without a job: those of the file in `--properties`, and of the options."""
ProducerProperties = Annotated[Properties, "producer"]
"""The same as `StreamProperties`, for a command that puts records and retries as long as a job does."""
_OPTIONS = {"pairs": Pairs, "region": Region, "endpoint": Endpoint, "profile": Profile}


def _parameter(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def read_job_or_stream(given: str, file: Path | None, options: PropertyOptions) -> tuple[list[str], Properties]:
    """Return the streams and the properties of a job.

    If `given` is not a job, it is the only stream, and the properties are those of `options` and `file`. Calls are retried for 30 s, unless
    the properties say how long.

    Raises: ConfigurationError if `file` is given in addition to a job, or if the properties cannot be read.
    """
    if not is_job(given):
        return [given], with_short_outages(options.read(file))
    if file is not None:
        raise ConfigurationError.conflict("--properties", given, reason="a job has its own properties")
    from ..plugins.runtime.stream_names import streams_of  # Imported here because it loads the AWS SDK.

    search_current_folder()  # The properties may name a function there.
    properties = with_short_outages(options.read_job(given))
    return streams_of(properties), properties


def _split(pair: str) -> tuple[str, str]:
    key, sign, value = pair.partition("=")
    if not sign or not key.strip():
        # What follows another sign, as in KEY:VALUE, may be the secret of a plugin.
        is_hidden = is_secret(pair) or re.search(r"[:\s]", pair)
        raise ConfigurationError("-p", MASK if is_hidden else pair, "KEY=VALUE, for example aws.region=eu-west-1")
    return key.strip(), value


def search_current_folder() -> None:
    """Add the current folder to the module search path, so that properties can name its functions, as with `python -m recordpublisher`.

    The folder comes last, so that no file in it replaces an installed module.
    """
    folder = str(Path.cwd())
    if not sys.flags.safe_path and not {"", folder} & set(sys.path):
        sys.path.append(folder)
