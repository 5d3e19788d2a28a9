"""The generator of chat layouts: distinct, repeatable, balanced, and true to its own truth."""

import re
from dataclasses import replace

import pytest
from chat_layout_checks import check_continuations, check_lines, check_times, digest
from chat_layouts import COUNT, Layout, decoys, distribution, judge, judge_decoy, layouts

FROZEN = "ec18753716d035bea422c75e46e72de17727dfb9a1d223be71be3482fb2399ed"

Reading = tuple[str, str, str | None]


def truth(layout: Layout) -> list[Reading]:
    return [(*message.readings[0], message.time) for message in layout.messages()]


def test_layouts_are_distinct_and_of_the_right_size():
    found = layouts()
    assert len(found) == COUNT == len({layout.name for layout in found}) == len({layout.text for layout in found})
    assert all(30 <= len(layout.messages()) <= 80 for layout in found)
    assert len({tuple(layout.axes.items()) for layout in found}) > 0.8 * COUNT
    assert len({decoy.name for decoy in decoys()}) == 20
    assert all(decoy.text.count("\n") >= 30 for decoy in decoys())


def test_nothing_changes():
    assert digest(layouts(), decoys()) == FROZEN


def test_each_value_of_an_axis_occurs_five_times():
    rare = [(axis, value, count) for axis, values in distribution().items() for value, count in values.items() if count < 5]
    assert not rare


def test_each_line_agrees_with_its_truth():
    for layout in layouts():
        check_lines(layout)


def test_times_are_in_order_and_as_precise_as_the_layout():
    for layout in layouts():
        check_times(layout)


def test_thirty_lines_decide_the_order_of_day_and_month():
    for layout in layouts():
        days = [int(line.time[8:10]) for line in layout.truth[:30] if line.time and layout.clock == "full"]
        if layout.axes["date"] in ("day first", "month first"):
            assert max(days) > 12, layout.name
        if layout.either_order:
            assert all(int(line.time[8:10]) <= 12 for line in layout.truth if line.time), layout.name


def test_continuations_do_not_look_like_openings():
    for layout in layouts():
        check_continuations(layout)


@pytest.mark.parametrize("layout", layouts(), ids=lambda layout: layout.name)
def test_the_judge_accepts_the_truth_and_nothing_near_it(layout):
    read = truth(layout)
    assert judge(layout, read).right
    assert not judge(layout, read[:-1]).right
    assert not judge(layout, [*read, read[-1]]).right
    assert not judge(layout, []).right
    author, text, time = read[20]
    for part, wrong in (("author", (author + "x", text, time)), ("text", (author, text + " x", time))):
        verdict = judge(layout, [*read[:20], wrong, *read[21:]])
        assert not verdict.right
        assert verdict.part in (part, "empty")
    if layout.clock in ("day", "full"):
        assert judge(layout, [*read[:20], (author, text, None), *read[21:]]).part == "time"
    if layout.clock == "full":
        late = [(who, said, f"{int(at[:4]) + 1}{at[4:]}".replace("-02-29", "-02-28") if at else at) for who, said, at in read]
        assert judge(layout, late).part == "date"


def test_the_judge_allows_notices_actions_and_either_order():
    kinds = {"system": 0, "action": 0, "order": 0}
    for layout in layouts():
        read = truth(layout)
        extra = [(*message.readings[0], message.time) for message in layout.messages(optional=True) if message.kind != "notice"]
        kinds["action"] += len(extra) > len(read)
        assert judge(layout, extra).right, layout.name
        notices = [("someone", "joined", None, "system"), (None, "joined", None)]
        kinds["system"] += judge(layout, [*notices, *read, *notices]).right
        if layout.either_order:
            swapped = [(who, said, f"{at[:5]}{at[8:10]}-{at[5:7]}{at[10:]}") for who, said, at in read if at]
            assert judge(layout, swapped).right, layout.name
            assert not judge(layout, [*swapped[:20], *read[20:]]).right, layout.name
            kinds["order"] += 1
    assert kinds["system"] == COUNT
    assert kinds["action"] > 30
    assert kinds["order"] >= 5


def test_the_judge_names_what_differs():
    layout = next(layout for layout in layouts() if layout.axes["lines"] == "flush" and layout.axes["empty"] == "some")
    read = truth(layout)
    long = next(place for place, (_, text, _) in enumerate(read) if "\n" in text)
    author, text, time = read[long]
    cut = judge(layout, [*read[:long], (author, text.split("\n")[0], time), *read[long + 1 :]])
    assert (cut.part, layout.name in cut.difference) == ("text", True)
    full = [reading for reading in read if reading[1]]
    assert judge(layout, full).part == "empty"
    assert "expected" in str(judge(layout, full))
    assert str(judge(layout, read)) == "right"
    assert not judge(replace(layout, truth=layout.truth[:-30], text="\n".join(layout.lines[:-30])), read).right


def test_decoys_must_not_be_read():
    decoy = decoys()[0]
    assert judge_decoy(decoy, None).right
    assert judge_decoy(decoy, [(None, "text", None)]).right
    assert not judge_decoy(decoy, [("ann", "text", None)]).right


@pytest.mark.parametrize(
    ("family", "pattern"),
    [
        ("znc", r"\[(?P<time>[\d:]+)\] <(?P<author>\S+)> (?P<text>.*)"),
        ("thelounge", r"\[(?P<time>[^\]]+)\] <[@+]?(?P<author>[^ ]+)> (?P<text>.*)"),
        ("zoom", r"(?P<time>[\d:]+) From (?P<author>.+?) to Everyone: (?P<text>.+)"),
        ("gtalk", None),
        ("supybot", r"(?P<time>\d{4}-\d\d-\d\dT[\d:]+)  <(?P<author>\S+)> (?P<text>.*)"),
        ("ii", r"(?P<time>\d{4}-\d\d-\d\d [\d:]+) <(?P<author>\S+)> (?P<text>.*)"),
    ],
)
def test_a_pattern_reads_the_simplest_layouts(family, pattern):
    """The truth of simple layouts, read from the text without the generator's help."""
    if pattern is None:
        pattern = r"(?P<hour>\d+):(?P<minute>\d\d) (?P<half>[AP])M (?P<author>\S+): (?P<text>.*)"
    matched = 0
    for layout in layouts():
        found = [re.fullmatch(pattern, line) for line in layout.lines]
        if f"-{family}" not in layout.name or not any(found):
            continue
        read = []
        for match in filter(None, found):
            parts = match.groupdict()
            if "half" in parts:
                parts["time"] = f"{int(parts['hour']) % 12 + 12 * (parts['half'] == 'P'):02}:{parts['minute']}"
            read.append((parts["author"], parts["text"], parts["time"]))
        if len(read) >= 30:
            assert judge(layout, read).right, str(judge(layout, read))
            matched += 1
    assert matched
