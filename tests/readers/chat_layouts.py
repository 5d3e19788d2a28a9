"""Three hundred invented layouts of chat logs with their truth, twenty texts that are no chats, and a judge of readers.

Names of authors, texts and formats come from a fixed seed, so that two runs are equal.
"""

from collections import Counter
from functools import cache
from random import Random

from chat_layout_base import Decoy, Layout, Line, Message, Verdict, judge, judge_decoy
from chat_layout_composed import composed
from chat_layout_decoys import make_decoys
from chat_layout_exporters import make_layout, rows

SEED = "chat layouts 1"
COUNT = 300

__all__ = [
    "COUNT",
    "Decoy",
    "Layout",
    "Line",
    "Message",
    "Verdict",
    "decoys",
    "distribution",
    "judge",
    "judge_decoy",
    "layouts",
]


@cache
def _layouts() -> tuple[Layout, ...]:
    known = rows()
    plans = [*known, *composed(Random(f"{SEED}:axes"), COUNT - len(known))]
    return tuple(
        make_layout(f"{number:03}-{plan.family}", plan, Random(f"{SEED}:{number}"))
        for number, plan in enumerate(plans, start=1)
    )


def layouts() -> list[Layout]:
    return list(_layouts())


def decoys() -> list[Decoy]:
    return make_decoys(SEED)


def distribution() -> dict[str, Counter[str]]:
    """The number of layouts with each value of each axis."""
    found: dict[str, Counter[str]] = {}
    for layout in layouts():
        for axis, value in layout.axes.items():
            found.setdefault(axis, Counter())[value] += 1
    return found
