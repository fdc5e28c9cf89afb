"""Pages of ListQueues and ListChannels, and the stream that a queue or a channel is made for."""

from collections.abc import Callable
from typing import Any, TypeVar

from ..api_errors import invalid_argument
from ..queues.attached import Attached, AttachedTable
from ..requests.queues import ListAttached, StreamFilter
from ..streams.account import Account
from ..streams.stream import Stream
from .pages import page_by_name

T = TypeVar("T", bound=Attached)
MOST_ON_A_PAGE = 100


def on_demand_stream(account: Account, configurations: list[Any]) -> Stream:
    """Return the only stream of a request; raises for several, and for one that is provisioned."""
    if len(configurations) != 1:
        raise invalid_argument("StreamConfigurationList must have exactly one entry.")
    stream = account.find(arn=configurations[0].stream_arn)
    stream.require_active()
    if stream.mode != "ON_DEMAND":
        raise invalid_argument(f"Stream {stream.name} is {stream.mode}; queues and channels need ON_DEMAND.")
    return stream


def identity(account: Account, attached: Attached, kind: str) -> dict[str, object]:
    """Return what every description of a queue or a channel begins with."""
    return {
        f"{kind}Name": attached.name,
        f"{kind}ARN": attached.arn,
        f"{kind}Status": attached.status(account.clock.now_ms()),
        f"{kind}CreationTimestamp": attached.created_ms / 1000,
    }


def stream_of(attached: Attached) -> dict[str, object]:
    """Return the stream as summaries show it."""
    return {"StreamARN": attached.stream.arn, "StreamCreationTimestamp": attached.stream.created_ms / 1000}


def page_of(
    account: Account, table: AttachedTable[T], request: ListAttached, describe: Callable[[T], object], field: str
) -> object:
    """Return one page of a table under the name of `field`, and a token for the next one."""
    chosen = [each for each in table.all() if _is_wanted(each.stream, request.stream_filter)]
    most = min(request.max_results, MOST_ON_A_PAGE)
    page, token = page_by_name(account, field, chosen, request.next_token, most)
    return {field: [describe(each) for each in page], **token}


def _is_wanted(stream: Stream, wanted: list[StreamFilter] | None) -> bool:
    return wanted is None or any(
        each.stream_arn == stream.arn and each.stream_creation_timestamp in (None, stream.created_ms / 1000)
        for each in wanted
    )
