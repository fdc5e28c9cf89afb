"""The operations on tags, of streams and of consumers."""

from ..requests import settings as requests
from ..streams.account import Account
from ..streams.consumers import Consumer
from ..streams.stream import Stream


def find_resource(account: Account, arn: str) -> Stream | Consumer:
    """Return the stream or the consumer of that ARN; raises ResourceNotFoundException."""
    stream = account.find(arn=arn)
    return stream if arn == stream.arn else stream.consumers.find(arn=arn)


def tag_resource(account: Account, request: requests.TagResource) -> None:
    """Add tags to a stream or consumer."""
    find_resource(account, request.resource_arn).tags.add(request.tags)


def untag_resource(account: Account, request: requests.UntagResource) -> None:
    """Remove tags from a stream or consumer."""
    find_resource(account, request.resource_arn).tags.remove(request.tag_keys)


def list_tags_for_resource(account: Account, request: requests.ListTagsForResource) -> object:
    """List the tags of a stream or consumer."""
    return {"Tags": find_resource(account, request.resource_arn).tags.describe()}


def add_tags_to_stream(account: Account, request: requests.AddTagsToStream) -> None:
    """Add tags to a stream."""
    account.find(request.stream_name, request.stream_arn).tags.add(request.tags)


def remove_tags_from_stream(account: Account, request: requests.RemoveTagsFromStream) -> None:
    """Remove tags from a stream."""
    account.find(request.stream_name, request.stream_arn).tags.remove(request.tag_keys)


def list_tags_for_stream(account: Account, request: requests.ListTagsForStream) -> object:
    """List the tags of a stream by key, page by page."""
    tags = account.find(request.stream_name, request.stream_arn).tags.describe(request.exclusive_start_tag_key or "")
    return {"Tags": tags[: request.limit], "HasMoreTags": len(tags) > request.limit}
