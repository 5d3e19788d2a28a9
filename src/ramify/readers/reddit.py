"""What the formats of Reddit's posts have in common."""

import re
from typing import Any

from ramify.readers.base import MUTE_TEXTS, Policy, Report

NOBODY = "[deleted]"
"""The author of a post whose account is gone."""

_PREFIX = re.compile("^t[0-9]_")


def author(name: Any) -> str | None:
    return name if isinstance(name, str) and name != NOBODY else None


def bare_id(name: Any) -> str | None:
    """An id without the prefix that tells its kind (t1_, t3_)."""
    return _PREFIX.sub("", name) or None if isinstance(name, str) else None


def answered(parent: str | None, submission: str, where: str, policy: Policy, report: Report) -> str | None:
    """What a comment hangs on that may name no parent; None: it is left out, and counted."""
    if parent is not None:
        return parent
    if policy.missing_parent == "drop":
        report.skip("missing_parent", where)
        return None
    report.mend("missing_parent", where)
    return submission


def submission_text(title: str, body: str) -> str:
    """Title, blank line, body; one of them where the other says nothing."""
    if not title.strip():
        return body
    return title if body in MUTE_TEXTS or not body.strip() else f"{title}\n\n{body}"
