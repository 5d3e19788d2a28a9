"""Tags of words: from tables of tokens and from annotated spans, and words of texts in many scripts."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramify import Node, RamifyError, Tree
from ramify.dataset import Store, build
from ramify.dataset.token_tags import node_tags, scheme_of, words_of
from ramify.metrics.spans import score_spans


def store_of(*nodes):
    return Store.from_trees(Tree((node,), id=f"t{place}") for place, node in enumerate(nodes))


def table(text, tags=None, **more):
    ends = [place + len(word) for place, word in zip(starts_of(text), text.split(), strict=True)]
    label = {"tokens": [list(pair) for pair in zip(starts_of(text), ends, strict=True)]}
    return Node(text, label=label | ({} if tags is None else {"tags": tags.split()}) | more)


def starts_of(text):
    starts, at = [], 0
    for word in text.split():
        at = text.index(word, at)
        starts.append(at)
        at += len(word)
    return starts


def spans(text, *components):
    return Node(
        text, label=[{"kind": kind, "start": start, "end": end, "type": f"{kind[0]}1"} for kind, start, end in components]
    )


def cut(text, words):
    return [text[start:end] for start, end in words.tolist()]


def test_tables_of_tokens():
    tagged = node_tags(store_of(table("EU rejects it", "B-ORG O O"), Node("no label"), table("a b")), "all")
    assert tagged.nodes.tolist() == [0]
    assert tagged.tags == [["B-ORG", "O", "O"]]
    assert cut("EU rejects it", tagged.words[0]) == ["EU", "rejects", "it"]
    assert (tagged.scheme, tagged.unlabelled, tagged.notes) == ("spans", 2, ())


def test_iob1_is_rewritten_as_bio():
    tagged = node_tags(store_of(table("a b c d", "I-X I-X B-X O"), table("a", "B-X")), "all")
    assert tagged.tags == [["B-X", "I-X", "B-X", "O"], ["B-X"]]
    assert tagged.notes == ("1 text has tags of other schemes than BIO and is rewritten as BIO.",)


def test_other_tags_stay_as_they_are():
    store = store_of(table("the dog", "DT NN", chunks=["B-NP", "I-NP"]))
    assert (node_tags(store, "all").scheme, node_tags(store, "all").tags) == ("plain", [["DT", "NN"]])
    assert node_tags(store, "all", "chunks").scheme == "spans"
    assert scheme_of([["O", "O"]]) == "plain"


def test_spans_need_no_types():
    tagged = node_tags(store_of(table("a b c", "B I O")), "all")
    assert (tagged.scheme, tagged.tags) == ("spans", [["B", "I", "O"]])
    assert not any(name.startswith("f1_") for name in score_spans(tagged.tags, tagged.tags).scores())


def test_annotated_spans():
    text = "Say, EU rejects it."
    tagged = node_tags(store_of(spans(text, ("claim", 5, 15), ("premise", 16, 19)), Node("nothing", label=[])), "all")
    assert cut(text, tagged.words[0]) == ["Say", ",", "EU", "rejects", "it", "."]
    assert tagged.tags == [["O", "O", "B-claim", "I-claim", "B-premise", "I-premise"], ["O"]]
    assert (tagged.scheme, tagged.notes) == ("spans", ())
    assert node_tags(store_of(spans(text, ("claim", 5, 15))), "all", "claim.type").tags == [
        ["O", "O", "B-c1", "I-c1", "O", "O"]
    ]


def test_spans_that_tags_cannot_express_are_counted():
    text = "one two three"
    store = store_of(
        spans(text, ("premise", 4, 7), ("claim", 0, 7)),
        spans(text, ("claim", 5, 8), ("claim", 3, 4), ("claim", 9, 9)),
    )
    tagged = node_tags(store, "all")
    assert tagged.tags == [["B-claim", "I-claim", "O"], ["O", "B-claim", "O"]]
    assert tagged.faults == {"overlapping": 1, "empty": 2, "widened": 1}
    assert set(tagged.notes) == {
        "1 annotated span overlaps a longer one and is left out: a word has one tag.",
        "2 annotated spans hold no word and are left out.",
        "1 annotated span begins or ends inside a word and is widened to whole words.",
    }


def test_texts_that_were_changed_have_no_places(tmp_path):
    file = tmp_path / "trees.jsonl"
    file.write_text(Tree((spans("> a\none", ("claim", 4, 7)),), id="t").to_json() + "\n")
    store = build([file], "jsonl", tmp_path / "kept")
    assert node_tags(store, "all").tags == [["O", "O", "B-claim"]]
    changed = build([file], "jsonl", tmp_path / "changed", clean=["quotes"])
    with pytest.raises(RamifyError, match="--clean quotes changed the texts, but labels hold places in the original texts"):
        node_tags(changed, "all")


def test_texts_without_words_can_be_left_out():
    tagged = node_tags(store_of(spans("one", ("claim", 0, 3)), Node(" ", label=[])), "all")
    assert [len(row) for row in tagged.tags] == [1, 0]
    kept = tagged.with_words()
    assert (kept.nodes.tolist(), kept.tags, kept.faults) == ([0], [["B-claim"]], {"wordless": 1})
    assert kept.notes == ("1 text has no word and is left out.",)
    assert kept.with_words().faults == kept.faults


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([Node("a b", label="x")], "not a list of spans"),
        ([Node("a b")], "none has a label"),
        ([table("a b")], r"the tokens of 1 text have no tags\. Build the data from files with a column of tags"),
        ([table("a b", "O O"), Node("c", label=[])], "node '0': the label .* is no table of tokens"),
        ([table("a b", "O")], r"tags is \['O'\], not one tag for each of 2 tokens"),
        (
            [Node("a b", label={"tokens": [[0, 1], [2, 9]], "tags": ["O", "O"]})],
            r"places in its text of 3 characters",
        ),
        ([Node("a b", label={"tokens": [[2, 3], [0, 1]], "tags": ["O", "O"]})], "no ascending places"),
        ([Node("a b", label={"tokens": "ab", "tags": ["O", "O"]})], "no ascending places"),
        ([spans("a b", ("claim", 0, 9))], "the span from 0 to 9 does not lie in its text of 3 characters"),
    ],
)
def test_labels_that_are_no_tags(nodes, message):
    with pytest.raises(RamifyError, match=message):
        node_tags(store_of(*nodes), "all")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("don't stop", ["don't", "stop"]),
        ("'quoted' e.g. 3.5%", ["'", "quoted", "'", "e", ".", "g", ".", "3", ".", "5", "%"]),
        ("cafe\u0301s naïve", ["cafe\u0301s", "naïve"]),
        ("日本語のtext", ["日", "本", "語", "の", "text"]),
        ("हिन्दी 👍🏽👨\u200d👩\u200d👧!", ["हिन्दी", "👍🏽", "👨\u200d👩\u200d👧", "!"]),
        ("a\u200bb \u0301x", ["a", "b", "\u0301x"]),
        ("❤\ufe0f\u200d🔥", ["❤\ufe0f\u200d🔥"]),
        (" \n\x00", []),
    ],
)
def test_words(text, words):
    assert cut(text, words_of(text)) == words


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_words_cover_all_that_is_no_white_space(text):
    words = words_of(text)
    flat = words.ravel().tolist()
    assert flat == sorted(flat)
    assert (words[:, 0] < words[:, 1]).all()
    covered = {place for start, end in words.tolist() for place in range(start, end)}
    assert all(unicodedata.category(letter)[0] in "ZC" for place, letter in enumerate(text) if place not in covered)
