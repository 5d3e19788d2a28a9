"""Checks of chat layouts against their own truth, shared by the tests of both sets."""

import hashlib
import re
from collections.abc import Sequence

from chat_layout_base import Decoy, Layout


def digest(layouts: Sequence[Layout], decoys: Sequence[Decoy]) -> str:
    """Changes with any layout or decoy."""
    found = hashlib.sha256()
    for one in (*layouts, *decoys):
        found.update(repr(one).encode())
    return found.hexdigest()


def check_lines(layout: Layout) -> None:
    """Each line has what its truth says."""
    assert len(layout.lines) == len(layout.truth), layout.name
    for line, known in zip(layout.lines, layout.truth):
        here = (layout.name, line, known)
        if known.kind == "blank":
            assert not line.strip(), here
        elif known.kind == "message":
            texts = [known.text, *(text for _, text in known.others)]
            assert any(line.strip().endswith(text) or ("[" in line and text in line) for text in texts), here
            assert (known.author or "?") in line, here
        elif known.kind == "action":
            assert (known.author or "?") in line, here
            assert known.text in line, here
        elif known.kind in ("continuation", "extra"):
            assert line.strip() == known.text.strip(), here
        elif known.kind == "header":
            assert (bool(known.author), known.text) == (True, ""), here
        else:
            assert known.kind == "system", here
        assert known.time is None or layout.clock in ("day", "full"), here


def check_continuations(layout: Layout) -> None:
    """No line within a message looks like the opening of another."""

    def shape(line: str) -> str:
        return re.sub(r"\d+", "0", re.sub(r"[a-f0-9]{8}", "0", line))[:9]

    openings = {shape(line) for line, known in zip(layout.lines, layout.truth) if known.kind in ("message", "action")}
    for line, known in zip(layout.lines, layout.truth):
        assert known.kind != "continuation" or shape(line) not in openings, (layout.name, line)


LENGTHS = {
    **{("day", "minute"): 5, ("day", "second"): 8, ("day", "milli"): 12},
    **{("full", "minute"): 16, ("full", "second"): 19, ("full", "milli"): 23},
}


def check_times(layout: Layout) -> None:
    """Times are in order and as precise as the layout."""
    times = [message.time for message in layout.messages(optional=True)]
    if layout.clock in ("none", "elapsed"):
        assert set(times) == {None}, layout.name
        return
    plain = [re.sub(r"[+-]\d\d:\d\d$", "", time or "") for time in times]
    assert {len(time) for time in plain} == {LENGTHS[layout.clock, layout.precision]}, layout.name
    assert layout.clock == "day" or plain == sorted(plain), layout.name
