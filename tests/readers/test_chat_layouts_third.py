"""The third set of chat layouts: distinct, repeatable, unlike the other sets, and true to its own truth."""

import pytest
from chat_layout_base import Layout, judge, judge_decoy
from chat_layout_checks import digest
from chat_layouts_third import PLANS, decoys, layouts

FROZEN = "72e547120ffcf20e3a6411574b804aede3f39aa13cb9232c7daa56f96af6658e"


def test_layouts_are_distinct_and_enough():
    found = layouts()
    assert len(found) == len(PLANS) >= 120
    assert len({plan.name for plan in PLANS}) == len({layout.text for layout in found}) == len(found)
    assert len(decoys()) >= 50
    assert all(decoy.text.count("\n") >= 40 for decoy in decoys())


def test_nothing_changes():
    assert digest(layouts(), decoys()) == FROZEN


@pytest.mark.parametrize("layout", layouts(), ids=lambda layout: layout.name)
def test_layouts_agree_with_their_truth(layout: Layout):
    assert len(layout.lines) == len(layout.truth)
    read = [(*message.readings[0], message.time) for message in layout.messages()]
    assert judge(layout, read).right
    assert not judge(layout, read[1:]).right
    author, text, time = read[10]
    assert judge(layout, [*read[:10], (f"{author}x", text, time), *read[11:]]).part == "author"
    assert not judge(layout, [*read[:10], (author, f"{text} x", time), *read[11:]]).right


def test_decoys_must_not_be_read():
    assert all(judge_decoy(decoy, None).right for decoy in decoys())
    assert not judge_decoy(decoys()[0], [("ann", "text", None)]).right
