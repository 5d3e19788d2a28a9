import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramify import Node, RamifyError, Tree
from ramify.dataset import Store, build
from ramify.dataset.labels import MAX_CLASSES, Span, check_kind, class_names, label_kind, node_labels, node_spans


def texts(*labels):
    return Store.from_trees(Tree((Node(f"text {place}", label=label),), id=f"t{place}") for place, label in enumerate(labels))


def chain(*labels):
    """One tree, in which each text answers the one before it."""
    nodes = (Node(f"text {place}", (place - 1,) if place else (), label=label) for place, label in enumerate(labels))
    return Store.from_trees([Tree(tuple(nodes), id="t")])


CLAIM = {"kind": "claim", "id": "1", "type": "rational", "start": 0, "end": 4}
PREMISE = {"kind": "premise", "id": "2", "type": "logos", "start": 5, "end": 6}


def test_values_of_texts():
    labels = node_labels(texts("good", None, "bad", "good"), "all")
    assert labels.nodes.tolist() == [0, 2, 3]
    assert labels.values == ["good", "bad", "good"]
    assert labels.unlabelled == 1


def test_labels_of_a_split_only(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("text,label,split\na b,x,train\nc d,y,dev\ne f,x,dev\n")
    store = build([table], "labelled", tmp_path / "store", options={"split": "split"})
    assert node_labels(store, "train").values == ["x"]
    dev = node_labels(store, "dev")
    assert sorted(zip(store.texts(dev.nodes), dev.values)) == [("c d", "y"), ("e f", "x")]
    with pytest.raises(RamifyError, match=r"no trees in the split 'test' \(trees: 1 in train, 2 in dev, 0 in test\)\."):
        node_labels(store, "test")


def test_premises_are_not_unlabelled_hypotheses():
    pairs = [Tree((Node("p", kind="premise"), Node("h", (0,), kind="hypothesis", label=label))) for label in ("x", None, "y")]
    assert node_labels(Store.from_trees(pairs), "all").unlabelled == 1


def test_fields_of_objects():
    store = chain(None, {"chain": "a", "ad_hominem": True}, {"chain": "b", "ad_hominem": False}, {"chain": "c"})
    labels = node_labels(store, "all", "ad_hominem")
    assert (labels.nodes.tolist(), labels.values, labels.unlabelled) == ([1, 2], [True, False], 1)


def test_nested_fields():
    assert node_labels(texts({"a": {"b": [3, {"c": 0.5}]}}), "all", "a.b.1.c").values == [0.5]


def test_fields_of_lists():
    store = chain(
        None, [{"parent": "0", "type": "Question"}], [{"parent": "1", "type": "Answer"}, {"parent": "0", "type": "QA"}]
    )
    labels = node_labels(store, "all", "0.type")
    assert (labels.nodes.tolist(), labels.values, labels.unlabelled) == ([1, 2], ["Question", "Answer"], 0)
    assert node_labels(store, "all", "type").values == [["Question"], ["Answer", "QA"]]
    assert node_labels(store, "all", "1.type").nodes.tolist() == [2]


def test_values_of_components():
    store = texts([CLAIM, PREMISE, CLAIM], [PREMISE], [])
    assert node_labels(store, "all", "claim.type").values == [["rational"], [], []]
    assert node_labels(store, "all", "kind").values == [["claim", "premise"], ["premise"], []]


def test_lists_of_classes():
    assert node_labels(texts(["b", "a", "b"], []), "all").values == [["b", "a"], []]
    assert node_labels(texts([1, 2]), "all").values == [["1", "2"]]


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (
            {"ad_hominem": True, "delta": False},
            r"is an object, .* one of its fields with --label FIELD: ad_hominem, delta\.",
        ),
        ([{"parent": "0", "type": "QA"}], r"is a list, .* --label FIELD: 0\.parent, 0\.type\."),
        ([CLAIM], r"is a list, .* --label FIELD: claim\.end, claim\.id, claim\.start, claim\.type, kind\."),
        ([[1]], r"is a list, .* Write a class, a number or a list"),
        ([0.5], "is a list"),
    ],
)
def test_labels_that_need_a_field(label, message):
    with pytest.raises(RamifyError, match=message):
        node_labels(texts(label), "all")


@pytest.mark.parametrize("field", ["claims", "0.kinds", "ad_hominem.x", "²"])
def test_unknown_fields(field):
    with pytest.raises(RamifyError, match=rf"--label {field}: no label of .* has this field\. The fields are "):
        node_labels(texts([CLAIM]), "all", field)
    with pytest.raises(RamifyError, match=rf"--label {field}: the labels of .* have no fields; one is \"good\""):
        node_labels(texts("good"), "all", field)


def test_field_that_holds_an_object():
    with pytest.raises(RamifyError, match=r"node '0': the field 'a' of the label is an object, .* --label FIELD: a\.b\."):
        node_labels(texts({"a": {"b": 1}}), "all", "a")


def test_no_labels():
    with pytest.raises(RamifyError, match=r"2 texts, and none has a label\. Choose another split"):
        node_labels(texts(None, None), "all")


def test_spans():
    store = texts([CLAIM, PREMISE], [], None)
    spans = node_spans(store, "all")
    assert spans.nodes.tolist() == [0, 1]
    assert spans.spans == [[Span(0, 4, "claim"), Span(5, 6, "premise")], []]
    assert spans.unlabelled == 1
    assert node_spans(store, "all", "type").spans == [[Span(0, 4, "rational"), Span(5, 6, "logos")], []]
    assert node_spans(store, "all", "claim").spans == [[Span(0, 4, "claim")], []]
    assert node_spans(store, "all", "premise.type").spans == [[Span(5, 6, "logos")], []]


@pytest.mark.parametrize("label", ["good", [{"start": 0}], [{"start": 0, "end": "4"}], {"start": 0, "end": 4}])
def test_labels_that_are_not_spans(label):
    with pytest.raises(RamifyError, match="is not a list of spans"):
        node_spans(texts(label), "all")


def test_unknown_field_of_spans():
    with pytest.raises(RamifyError, match=r"--label clam: no label of .* The fields are claim\.end"):
        node_spans(texts([CLAIM]), "all", "clam")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["b", "a"], "classes"),
        ([True, False], "classes"),
        ([0, 1, 1], "classes"),
        ([0.5, 1.0], "numbers"),
        ([1, 2.0], "numbers"),
        (range(MAX_CLASSES), "classes"),
        (range(MAX_CLASSES + 1), "numbers"),
        ([["a"], []], "several"),
    ],
)
def test_kinds(values, kind):
    assert label_kind(list(values)) == kind


@pytest.mark.parametrize("values", [["a", 1], [True, 1], [["a"], "a"], [True, "true"]])
def test_two_kinds(values):
    with pytest.raises(RamifyError, match=r"the labels are of two kinds: .* and .* Correct the labels"):
        label_kind(values)


def test_chosen_kinds():
    check_kind([1, 2], "numbers")
    check_kind([0.5], "classes")
    check_kind([["a"]], "several")
    for values, kind in (["a"], "numbers"), ([True], "numbers"), (["a"], "several"), ([["a"]], "classes"):
        with pytest.raises(RamifyError, match=f"label_kind={kind} does not fit the labels"):
            check_kind(values, kind)


@given(st.lists(st.integers(-20, 20), min_size=1))
def test_names_of_classes(values):
    assert class_names(values, "classes") == tuple(str(value) for value in sorted(set(values)))
    assert class_names(values, "numbers") == ()


def test_names_of_truth_values_and_lists():
    assert class_names([True, False, True], "classes") == ("false", "true")
    assert class_names([["b"], ["c", "a"], []], "several") == ("a", "b", "c")
