"""The second hundred of chat layouts: distinct, repeatable, unlike the first set, and true to its own truth."""

import pytest
from chat_layout_base import Layout, judge, judge_decoy
from chat_layout_checks import check_continuations, check_lines, check_times, digest
from chat_layouts import layouts as first_layouts
from chat_layouts_second import COUNT, decoys, layouts, programs

FROZEN = "7eeb225aff6b7e5d4f281b50dc87fa3d146a076b00b1902e3cf5be47d1622d75"


def family(layout: Layout) -> str:
    return layout.name.partition("-")[2]


def test_layouts_are_distinct_and_of_the_right_size():
    found = layouts()
    assert len(found) == COUNT == len({layout.text for layout in found})
    assert all(30 <= len(layout.messages()) <= 80 for layout in found)
    assert len({plan.family for plan in programs()}) == len(programs())
    assert not {family(layout) for layout in found} & {family(layout) for layout in first_layouts()}
    assert len(decoys()) == 8 == len({decoy.text for decoy in decoys()})
    assert all(decoy.text.count("\n") >= 30 for decoy in decoys())


def test_nothing_changes():
    assert digest(layouts(), decoys()) == FROZEN


def test_a_third_has_long_messages_and_a_tenth_is_ambiguous():
    long = sum(any("\n" in message.readings[0][1] for message in layout.messages()) for layout in layouts())
    assert (0.3 <= long / COUNT <= 0.4, sum(layout.axes["doubt"] == "refuse" for layout in layouts())) == (True, COUNT // 10)


@pytest.mark.parametrize("layout", layouts(), ids=lambda layout: layout.name)
def test_layouts_agree_with_their_truth(layout):
    check_lines(layout)
    check_times(layout)
    if layout.axes["doubt"] == "clear":
        check_continuations(layout)


@pytest.mark.parametrize("layout", layouts(), ids=lambda layout: layout.name)
def test_the_judge_accepts_the_truth_and_nothing_near_it(layout):
    read = [(*message.readings[0], message.time) for message in layout.messages()]
    assert judge(layout, read).right
    assert not judge(layout, read[1:]).right
    author, text, time = read[20]
    assert judge(layout, [*read[:20], (f"{author}x", text, time), *read[21:]]).part == "author"
    assert not judge(layout, [*read[:20], (author, f"{text} x", time), *read[21:]]).right


def test_decoys_must_not_be_read():
    assert all(judge_decoy(decoy, None).right for decoy in decoys())
    assert not judge_decoy(decoys()[0], [("ann", "text", None)]).right
