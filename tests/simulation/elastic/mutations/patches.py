"""Patches: what a mutation replaces, each as an owner, the name of an attribute, and its value."""

from __future__ import annotations

from typing import Any

Patches = list[tuple[Any, str, Any]]
