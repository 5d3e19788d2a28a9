"""Shared parts of the readers of Reddit posts."""

import re
from typing import Any

from ramify.readers.base import MUTE_TEXTS, Policy, Report

NOBODY = "[deleted]"
"""The author of a post whose account was deleted."""

_PREFIX = re.compile("^t[0-9]_")


def author(name: Any) -> str | None:
    return name if isinstance(name, str) and name != NOBODY else None


def bare_id(name: Any) -> str | None:
    """An id without the prefix of its kind (t1_, t3_)."""
    return _PREFIX.sub("", name) or None if isinstance(name, str) else None


def resolve_parent(parent: str | None, submission: str, where: str, policy: Policy, report: Report) -> str | None:
    """The parent of a comment, or its submission if it names none. None if the policy drops such comments."""
    if parent is not None:
        return parent
    if policy.missing_parent == "drop":
        report.skip("missing_parent", where)
        return None
    report.repair("missing_parent", where)
    return submission


def submission_text(title: str, body: str) -> str:
    """The title, a blank line and the body. If one is empty, only the other."""
    if not title.strip():
        return body
    return title if body in MUTE_TEXTS or not body.strip() else f"{title}\n\n{body}"
