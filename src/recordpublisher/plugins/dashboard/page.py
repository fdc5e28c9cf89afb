"""The dashboard's page: one HTML document with style and script inside, which loads nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from ..metrics.http_pages import Page


def dashboard_page() -> Page:
    """The page. A browser runs only this script, and lets the page connect only to its own server."""
    folder = files(__package__) / "web"
    html, style, script = ((folder / f"page.{kind}").read_text("utf-8") for kind in ("html", "css", "js"))
    policy = (
        "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        f"style-src 'unsafe-inline'; script-src '{_hash_of(script)}'"
    )
    body = html.replace("{style}", style).replace("{script}", script).encode()
    return Page(body, content_type="text/html; charset=utf-8", headers={"Content-Security-Policy": policy})


def _hash_of(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
