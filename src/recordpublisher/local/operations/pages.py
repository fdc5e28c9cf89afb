"""Pages of a listing by name, and the tokens that request the next page."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

import msgspec

from recordpublisher.publishers.service_limits import NEXT_TOKEN_SECONDS

from ..api_errors import ApiError, invalid_argument
from ..streams.account import Account


class Named(Protocol):
    """An item of a listing."""

    name: str


T = TypeVar("T", bound=Named)


class Page(msgspec.Struct, frozen=True, array_like=True, tag="n"):
    """The listing that a page belongs to, the name after which the page begins, and when the previous page was sent."""

    listing: str
    after: str
    issued_ms: int


def page_by_name(
    account: Account, listing: str, items: Iterable[T], token: str | None, most: int, after: str = ""
) -> tuple[list[T], dict[str, str]]:
    """Return the items of one page, and the field NextToken if there are more. The first page begins past `after`."""
    if token is not None:
        page = account.tokens.open(token, Page)
        if page is None or page.listing != listing:
            raise invalid_argument("NextToken is invalid.")
        check_age(account, page.issued_ms)
        after = page.after
    left = sorted((each for each in items if each.name > after), key=lambda each: each.name)
    if len(left) <= most:
        return left, {}
    next_page = Page(listing, left[most - 1].name, account.clock.now_ms())
    return left[:most], {"NextToken": account.tokens.seal(next_page)}


def check_age(account: Account, issued_ms: int) -> None:
    """Raise ExpiredNextTokenException if a token is too old."""
    if account.clock.now_ms() - issued_ms >= NEXT_TOKEN_SECONDS * 1000:
        raise ApiError("ExpiredNextTokenException", f"NextToken expired: it is older than {NEXT_TOKEN_SECONDS:.0f} s.")
