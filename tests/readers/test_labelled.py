import csv
import io
import json
import re
import zipfile
from collections import Counter

import pyarrow as pa
import pyarrow.parquet
import pytest

from ramify import RamifyError
from ramify.dataset import build
from ramify.dataset.labels import node_labels
from ramify.dataset.store import SPLITS
from ramify.readers import FORMATS, detect_format, labelled
from ramify.readers.base import Policy, ReadCounts
from ramify.readers.labelled_sets import DATASETS
from ramify.readers.quoting import detect_quote


def read(*paths, policy=None, **options):
    counts = ReadCounts()
    trees = list(labelled.read(list(paths), counts, policy=Policy(**policy or {}), **options))
    assert counts.read == sum(map(len, trees)) + counts.skipped.total()
    return trees, counts


def written(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def labels(trees):
    return [node.label for tree in trees for node in tree.nodes if node.label is not None]


ROWS = [{"review": "fine, really", "stars": "4"}, {"review": 'it "works"', "stars": "2.5"}, {"review": "no", "stars": "1"}]


def as_csv(rows, delimiter=","):
    stream = io.StringIO()
    writer = csv.DictWriter(stream, rows[0], delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet", "csv.bz2"])
def test_kinds_of_tables(tmp_path, kind):
    path = tmp_path / f"reviews.{kind}"
    if kind == "parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist([row | {"stars": float(row["stars"])} for row in ROWS]), path)
    elif kind == "jsonl":
        written(path, "".join(json.dumps(row) + "\n" for row in ROWS))
    else:
        text = as_csv(ROWS, "\t" if kind == "tsv" else ",")
        written(path, __import__("bz2").compress(text.encode()) if "bz2" in kind else text)
    trees, _ = read(path, text="review", label="stars")
    assert [tree.nodes[0].text for tree in trees] == [row["review"] for row in ROWS]
    assert labels(trees) == [4.0, 2.5, 1.0]
    assert all(type(label) is float for label in labels(trees))
    assert [tree.meta.keys() for tree in trees] == [{"group"}] * 3
    assert len({tree.id for tree in trees}) == 3


def test_pair_is_a_root_and_its_child(tmp_path):
    path = written(tmp_path / "pairs.tsv", "pairID\tpremise\thypothesis\tlabel\na7\tIt rains.\tIt is wet.\tyes\n")
    (tree,), _ = read(path)
    root, child = tree.nodes
    assert (tree.id, root.id, root.text, root.label) == ("pairs/a7", "a7", "It rains.", None)
    assert (child.text, child.parents, child.label) == ("It is wet.", (0,), "yes")
    (tree,), counts = read(path, text="hypothesis", label="label")
    assert [node.text for node in tree.nodes] == ["It is wet."]
    assert counts.unread_columns == {str(path): ["premise"]}


def test_texts_that_begin_alike_are_in_one_split(tmp_path):
    rows = "".join(f"premise {row % 40}\thypothesis {row}\t{row % 3}\n" for row in range(400))
    store = build([written(tmp_path / "nli.tsv", "premise\thypothesis\tlabel\n" + rows)], "labelled", tmp_path / "out")
    splits = {}
    for name in ("train", "dev", "test"):
        for tree in store.split(name).tolist():
            splits.setdefault(store.tree(tree).nodes[0].text, set()).add(name)
    assert len(splits) == 40
    assert all(len(names) == 1 for names in splits.values())
    assert len(set.union(*splits.values())) > 1


# --- labels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "label_type", "expected"),
    [
        (["3", "1"], "auto", [3, 1]),
        (["3", "1.5"], "auto", [3.0, 1.5]),
        (["3", "1"], "category", ["3", "1"]),
        (["001", "010"], "auto", ["001", "010"]),
        (["x", "nan"], "auto", ["x"]),
        (["1.0", "0.0", ""], "auto", [1, 0]),
        (["1.0", "0.0"], "category", ["1.0", "0.0"]),
        (["9e99", "1"], "auto", [9e99, 1.0]),
        (["3,5", "4", "-0,25"], "auto", [3.5, 4.0, -0.25]),
        (["2,0", "1,0"], "auto", [2, 1]),
        (["1,250", "12,000", "7"], "auto", [1250, 12000, 7]),
        (["1,250", "0,5"], "auto", [1.25, 0.5]),
        (["1,250", "2.5"], "number", [1250.0, 2.5]),
        (["3,5", "4"], "category", ["3,5", "4"]),
        (["1e3", "-.5"], "number", [1000.0, -0.5]),
    ],
)
def test_whole_column_decides_on_the_type_of_labels(tmp_path, column, label_type, expected):
    path = written(tmp_path / "t.csv", "text\tlabel\n" + "".join(f"words\t{value}\n" for value in column))
    trees, counts = read(path, label_type=label_type)
    assert counts.kept["number_with_comma"] == (label_type != "category") * sum("," in value for value in column)
    assert labels(trees) == expected
    assert [*map(type, labels(trees))] == [*map(type, expected)]


@pytest.mark.parametrize(
    ("delimiter", "column", "expected", "said"),
    [
        (";", ["1.307,25", "812", "2.450"], [1307.25, 812.0, 2450.0], 2),
        ("\t", ["3,115,020.5", "-1,200", "7.25"], [3115020.5, -1200.0, 7.25], 2),
        (";", ["4\u202f310,5", "12\xa0000", "9 100,25"], [4310.5, 12000.0, 9100.25], 3),
        ("\t", ["1’310.75", "2'020"], [1310.75, 2020.0], 2),
        ("\t", ["3 400", "815"], [3400, 815], 1),
        ("\t", ["2.450", "3.115"], [2.45, 3.115], 0),
        (";", ["3,125", "2,875"], [3.125, 2.875], 2),
        (";", ["3,125", "2.5"], [3125.0, 2.5], 1),
        (";", ["1,5E+03", "2,25"], [1500.0, 2.25], 2),
        (";", ["1.2.3", "4.5.6"], ["1.2.3", "4.5.6"], 0),
    ],
)
def test_numbers_follow_one_convention_of_marks(tmp_path, delimiter, column, expected, said):
    rows = "".join(f"words{delimiter}{value}\n" for value in column)
    trees, counts = read(written(tmp_path / "t.csv", f"text{delimiter}label\n{rows}"))
    assert [*map(repr, labels(trees))] == [*map(repr, expected)]
    assert counts.kept["number_with_comma"] == said


def test_numbers_of_two_conventions_are_refused(tmp_path):
    path = written(tmp_path / "t.tsv", "text\tlabel\na\t1.307,25\nb\t2,450.75\n")
    with pytest.raises(RamifyError, match=r"'2,450\.75' of the column 'label' is not a number, but '1\.307,25' in .*line 2 is"):
        read(path)
    assert labels(read(path, label_type="category")[0]) == ["1.307,25", "2,450.75"]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_floats_without_fractions_are_whole_numbers(tmp_path, kind):
    rows = [{"text": "words", "label": value} for value in (2.0, None, 1.0)]
    path = tmp_path / f"t.{kind}"
    if kind == "parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        written(path, "".join(json.dumps(row) + "\n" for row in rows))
    trees, counts = read(path)
    assert [*map(repr, labels(trees))] == ["2", "1"]
    assert counts.kept == {"no_label": 1}


def test_commas_that_are_no_numbers_are_refused_with_the_separator(tmp_path):
    path = written(tmp_path / "t.tsv", "text\tlabel\na\t1,2,3\nb\t3\n")
    with pytest.raises(RamifyError, match=r"or as lists with --option separator=','\."):
        read(path)
    assert labels(read(path, separator=",")[0]) == [["1", "2", "3"], ["3"]]


@pytest.mark.parametrize("mark", ["NA", "N/A", "NaN", "null", "None", "\\N", "<NA>"])
def test_labels_that_spell_a_missing_value_are_counted(tmp_path, mark):
    path = written(tmp_path / "t.tsv", f"text\tlabel\na\tnone\nb\t{mark}\nc\tsome\n")
    trees, counts = read(path)
    assert labels(trees) == ["none", "some"]
    assert counts.kept == {"no_label": 1, "missing_label": 1}
    assert counts.examples["missing_label"] == [
        f"{path}, line 3: the label {mark!r} is read as a missing one; --option missing=empty keeps it"
    ]
    trees, counts = read(path, missing="empty")
    assert (labels(trees), counts.kept) == (["none", mark, "some"], {})
    assert labels(read(written(path, f"text\tlabel\na\t1\nb\t{mark}\nc\t2.5\n"))[0]) == [1.0, 2.5]


def test_categories_of_pandas_spell_missing_values_too(tmp_path):
    table = pa.table({"text": ["a", "b"], "label": pa.array(["NA", "x"]).dictionary_encode()})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    trees, counts = read(tmp_path / "t.parquet")
    assert (labels(trees), counts.kept["missing_label"]) == (["x"], 1)


@pytest.mark.parametrize(("mark", "joined"), [("|", "cold|long"), (";", "cold; long"), (",", "cold, long")])
def test_labels_that_hold_another_label_are_said_and_may_be_parted(tmp_path, mark, joined):
    path = written(tmp_path / "t.tsv", f"text\tlabel\na\t{joined}\nb\tcold\nc\tnot|;,known\nd\t\n")
    trees, counts = read(path)
    assert labels(trees) == [joined, "cold", "not|;,known"]
    assert counts.examples["joined_label"] == [
        f"{path}, line 2: the label {joined!r} is one label, and 'cold' is another; --option separator={mark!r} parts it"
    ]
    trees, counts = read(path, separator=mark)
    assert labels(trees)[:2] == [["cold", "long"], ["cold"]]
    assert counts.kept == {"no_label": 1}
    with pytest.raises(RamifyError, match="option separator=' ' is invalid"):
        read(path, separator=" ")


@pytest.mark.parametrize("values", [[True, False], [1, 2.5], ["a", "b"]])
def test_typed_labels_keep_their_type(tmp_path, values):
    lines = "".join(json.dumps({"text": "words", "label": value}) + "\n" for value in values)
    trees, _ = read(written(tmp_path / "t.jsonl", lines))
    assert labels(trees) == values


def test_label_column_of_two_types_is_refused(tmp_path):
    first = written(tmp_path / "a.tsv", "text\tlabel\nx\t3.5\n\ny\t\n")
    second = written(tmp_path / "b.tsv", "text\tlabel\nx\t2\nbad row\nz\thigh\n")
    with pytest.raises(
        RamifyError, match=r"b\.tsv, line 4: the label 'high' .* not a number, but '3.5' in .*a\.tsv, line 2 is.*"
    ):
        read(first, second)
    trees, counts = read(first, second, label_type="category")
    assert labels(trees) == ["3.5", "2", "high"]
    assert counts.kept == {"no_label": 1}
    assert counts.skipped == {"bad_row": 1}
    with pytest.raises(RamifyError, match=r"b\.tsv, line 4: the label 'high' of the column 'label' is not a number"):
        read(first, second, label_type="number")


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("words\tlabel\na\tb\n", {}, r"no column for text: none of text, .*columns are words, label\. Choose .* --text NAME"),
        ("text\tkind\na\tb\n", {}, r"no column for label: .*columns are text, kind\. Choose one with --label NAME"),
        ("text\tlabel\na\tb\n", {"label": "mark"}, r"has no column 'mark' \(for label\)\. Its columns are text, label"),
        ("text\tlabel\na\tb\n", {"dataset": "glue"}, "dataset='glue' is invalid. Expected none, cola, sst2"),
        ("text\tlabel\na\tb\n", {"split": "file"}, r"the name of .*t\.tsv names no split"),
        ('text,label\n"a, b",c\n"d,e\nf,g\n', {}, r"t\.tsv, row at line 3: a field that begins with a quotation mark"),
        (b"PK\x03\x04 and more", {}, "not a complete ZIP file"),
        (b"PAR1 and more", {}, "not a complete Parquet file"),
        ("", {}, "is empty"),
    ],
)
def test_bad_input_is_refused(tmp_path, content, options, message):
    with pytest.raises(RamifyError, match=message):
        read(written(tmp_path / "t.tsv", content), **options)


def test_unknown_option_is_refused():
    with pytest.raises(RamifyError, match="has no option 'txt'; its options are text, text_pair, label, id, split"):
        FORMATS["labelled"].check({"txt": "text"})


def test_repeated_and_missing_ids_are_counted(tmp_path):
    path = written(tmp_path / "t.csv", "id,text,label\n1,a,x\n2,b,x\n1,c,y\n,d,y\n")
    trees, counts = read(path)
    assert [tree.nodes[0].text for tree in trees] == ["a", "b"]
    assert counts.skipped == {"duplicate_id": 1, "bad_id": 1}
    assert "line 4: 1" in counts.examples["duplicate_id"][0]
    trees, _ = read(path, policy={"duplicate_id": "last"})
    assert [tree.nodes[0].text for tree in trees] == ["b", "c"]


STRAY = [
    ('"Never', "tab", 3),  # never closed
    ('"Fine," she said', "tab", 3),
    ('said "so"', "tab", 3),
    ('"all of it"', "tab", 3),
]


@pytest.mark.parametrize(("text", "delimiter", "rows"), STRAY)
def test_stray_quotation_marks_swallow_no_rows(tmp_path, text, delimiter, rows):
    between = {"tab": "\t", "comma": ","}[delimiter]
    if between in text:
        text = text.replace(between, ";")
    lines = [("text", "label"), ("one", "a"), (text, "b"), ('ends here"' if text == '"Never' else "three", "a")]
    path = written(tmp_path / "t.tsv", "".join(between.join(line) + "\n" for line in lines))
    trees, counts = read(path)
    assert [tree.nodes[0].text for tree in trees] == [line[0] for line in lines[1:]]
    assert len(trees) == rows
    assert not counts.skipped
    assert not counts.kept


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_a_well_formed_table_has_quoting_even_if_its_lines_are_rows(tmp_path, delimiter):
    rows = [["text", "label"], [f"two{delimiter} she\nor three", "a"], [f'so "four"{delimiter} said\nhe', "b"]]
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter).writerows(rows)
    trees, counts = read(written(tmp_path / "t.csv", stream.getvalue()))
    assert [tree.nodes[0].text for tree in trees] == [row[0] for row in rows[1:]]
    assert not counts.kept


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize(("first", "mark"), [("sep=;", ";"), ('"SEP=|"', "|"), ("sep=^", "^"), ("sep=\t", "\t")])
def test_excel_names_the_delimiter(tmp_path, encoding, first, mark):
    rows = f'text{mark}label\r\n"one,{mark} two;, ,"{mark}a\r\nthree{mark}b{mark}c\r\nfour{mark}b\r\n'
    path = written(tmp_path / "t.csv", f"{first}\r\n{rows}".encode(encoding))
    assert detect_format([path]) == "labelled"
    trees, counts = read(path)
    assert [(tree.id, tree.nodes[0].text, tree.nodes[0].label) for tree in trees] == [
        ("t/3", f"one,{mark} two;, ,", "a"), ("t/5", "four", "b")
    ]  # fmt: skip
    assert counts.examples == {"bad_row": [f"{path}, row 4: 3 columns, not 2"]}


def test_a_delimiter_that_gives_one_column_and_empty_lines_below_it(tmp_path):
    path = written(tmp_path / "t.csv", "sep=,\n\r\n\ntext;label\none, two;a\nbad\nthree;b\n")
    assert detect_format([path]) == "labelled"
    trees, counts = read(path)
    assert [(tree.id, tree.nodes[0].text, tree.nodes[0].label) for tree in trees] == [
        ("t/5", "one, two", "a"),
        ("t/7", "three", "b"),
    ]
    assert counts.skipped == {"bad_row": 1}


@pytest.mark.parametrize("delimiter", ["\t", ","])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
def test_quoted_tables_are_recognised(tmp_path, delimiter, quoting):
    rows = [("text", "label"), ('said "so"', "1"), (f"with{delimiter}delimiter", "2"), ("two\nlines", "3"), ("plain", "4")]
    with open(tmp_path / "t", "w", newline="") as file:
        csv.writer(file, delimiter=delimiter, quoting=quoting, lineterminator="\n").writerows(rows)
    assert detect_quote(tmp_path / "t", delimiter) == '"'
    trees, _ = read(tmp_path / "t", delimiter=delimiter)
    assert [tree.nodes[0].text for tree in trees] == [row[0] for row in rows[1:]]


# --- splits -----------------------------------------------------------------------------------------------------------


def splits(trees):
    return Counter(tree.meta.get("split") for tree in trees)


def test_names_of_files_give_splits(tmp_path):
    for name in ("train", "valid", "test"):
        text = "text\n" if name == "test" else "text\tlabel\n"
        written(tmp_path / f"{name}.tsv", text + ("a\n" if name == "test" else "a\tx\nb\ty\n"))
    trees, counts = read(tmp_path)
    assert splits(trees) == {"train": 2, "dev": 2, "test": 1}
    # The labels of test sets may be secret.
    assert counts.kept == {"no_label": 1}
    assert len({tree.id for tree in trees}) == 5
    assert splits(read(tmp_path / "train.tsv")[0]) == splits(read(tmp_path / "valid.tsv")[0]) == {None: 2}
    assert splits(read(tmp_path, split="none")[0]) == {None: 5}
    assert splits(read(tmp_path / "valid.tsv", split="file")[0]) == {"dev": 2}
    with pytest.raises(RamifyError, match="no column for label"):
        read(written(tmp_path / "train.tsv", "text\na\n"), tmp_path / "valid.tsv")


def test_column_gives_splits(tmp_path):
    path = written(tmp_path / "t.tsv", "text\tlabel\tsplit\tfold\na\tx\ttrain\tdev\nb\ty\tvalidation\tdev\n")
    trees, _ = read(path)
    assert splits(trees) == {"train": 1, "validation": 1}
    assert splits(read(path, split="fold")[0]) == {"dev": 2}
    store = build([path], "labelled", tmp_path / "out")
    assert {name: counts["trees"] for name, counts in store.info["splits"].items()} == {"train": 1, "dev": 1, "test": 0}


def test_files_of_one_name_have_different_trees(tmp_path):
    for folder in ("first", "second", "train", "dev"):
        written(tmp_path / folder / "rows.tsv", "id\ttext\tlabel\n1\ta\tx\n")
    trees, _ = read(tmp_path)
    assert {tree.id for tree in trees} == {"first/rows.tsv/1", "second/rows.tsv/1", "train/rows/1", "dev/rows/1"}
    store = build([tmp_path / "train", tmp_path / "dev"], "labelled", tmp_path / "out", split_by="file")
    assert store.num_trees == 2
    assert store.info["skipped"] == {}


# --- layouts of data sets ---------------------------------------------------------------------------------------------

TABLES = {
    "CoLA/dev.tsv": ('gj04\t1\t\tShe ate.\ngj04\t0\t*\tAte "she.\n', ["acceptable", "unacceptable"], "dev"),
    "CoLA/test.tsv": ("index\tsentence\n0\tShe ate.\n", [], "test"),
    "SST-2/dev.tsv": ("sentence\tlabel\na \"bad film \t0\ngood \t1\n", ["negative", "positive"], "dev"),
    "MRPC/test.tsv": ("\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tA b.\tA c.\n", ["equivalent"], "test"),
    "QQP/dev.tsv": ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n3\t1\t2\tA?\tB?\t0\n", ["not_duplicate"], "dev"),
    "STS-B/dev.tsv": ("index\tgenre\tsentence1\tsentence2\tscore\n0\tx\tA\tB\t3\n1\tx\tA\tC\t2.5\n", [3.0, 2.5], "dev"),
    "MNLI/dev_matched.tsv": ("index\tpairID\tgenre\tsentence1\tsentence2\tlabel1\tgold_label\n"
                             "0\t5c\tx\tA.\tB.\tneutral\t-\n1\t6c\tx\tA.\tC.\tneutral\tneutral\n", ["neutral"], "dev"),
    "QNLI/dev.tsv": ("index\tquestion\tsentence\tlabel\n0\tWhen?\tThen.\tentailment\n", ["entailment"], "dev"),
    "RTE/dev.tsv": ("index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\tnot_entailment\n", ["not_entailment"], "dev"),
    "WNLI/dev.tsv": ("index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\t1\n", ["entailment"], "dev"),
    "AX/AX_test.tsv": ("index\tsentence1\tsentence2\n0\tA.\tB.\n", [], "test"),
    "BoolQ/val.jsonl": ('{"question": "is it", "passage": "It is.", "idx": 0, "label": true}\n', [True], "dev"),
    "CB/val.jsonl": ('{"premise": "A", "hypothesis": "B", "label": "neutral", "idx": 0}\n', ["neutral"], "dev"),
    "COPA/val.jsonl": ('{"premise": "A", "choice1": "B", "choice2": "C", "question": "cause", "label": 1, "idx": 0}\n',
                       [False, True], "dev"),
    "COPA/test.jsonl": ('{"premise": "A", "choice1": "B", "choice2": "C", "question": "cause", "idx": 0}\n', [], "test"),
    "RTE/val.jsonl": ('{"premise": "A", "hypothesis": "B", "label": "entailment", "idx": 0}\n', ["entailment"], "dev"),
    "WiC/val.jsonl": ('{"word": "go", "sentence1": "Go on.", "sentence2": "I go.", "idx": 0, "label": false, "start1": 0, '
                      '"start2": 2, "end1": 2, "end2": 4, "version": 1.1}\n', [False], "dev"),
    "WSC/val.jsonl": ('{"text": "He ate it.", "target": {"span1_index": 0, "span2_index": 2, "span1_text": "He", "span2_text": '
                      '"it"}, "idx": 0, "label": false}\n', [False], "dev"),
    "AX-b/AX-b.jsonl": ('{"sentence1": "A", "sentence2": "B", "label": "entailment", "logic": "Negation", "idx": 0}\n',
                        ["entailment"], None),
    "AX-g/AX-g.jsonl": ('{"premise": "A", "hypothesis": "B", "label": "entailment", "pair_id": 3, "idx": 0}\n', ["entailment"],
                        None),
    "snli_1.0/snli_1.0_dev.jsonl": ('{"gold_label": "-", "sentence1": "A", "sentence2": "B", "captionID": "c", "pairID": "p", '
                                    '"annotator_labels": ["neutral"]}\n', [], "dev"),
    "snli/pairs.tsv": ("a b\tb \"c\t2\na b\tc d\t0\n", ["contradiction", "entailment"], None),
    "any/SICK_trial.txt": ("pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n4\tA\tB\t3.6\tNEUTRAL\n",
                           ["NEUTRAL"], "dev"),
    "any/SICK.txt": ("pair_ID\tsentence_A\tsentence_B\tentailment_label\trelatedness_score\tSemEval_set\n"
                     "4\tA\tB\tNEUTRAL\t3.6\tTRIAL\n", ["NEUTRAL"], "TRIAL"),
    "yelp_review_polarity_csv/test.csv": ('"2","Good, and ""cheap"".\\nWill return."\n"1","No."\n', ["positive", "negative"],
                                          "test"),
    "yelp_review_full_csv/test.csv": ('"5","Good."\n"1","No."\n', ["5 stars", "1 star"], "test"),
    "semeval-2017/twitter-2016dev-A.txt": ('7\tneutral\tIt "is" out\n8\tpositive\tYes\n', ["neutral", "positive"], "dev"),
    "semeval-2017/twitter-2016devtest-A.txt": ("7\tnegative\tNo\n", ["negative"], "dev"),
    "any/SemEval2017-task4-test.subtask-A.english.txt": ("7\tnegative\tNo\n", ["negative"], "test"),
    "sst5/dev.tsv": ("3\tIt 's fun .\n0\tNo .\n", ["positive", "very negative"], "dev"),
    "trees/dev.txt": ("(3 (2 It) (4 (4 (2 's) (4 fun)) (2 .)))\n(0 (1 No) (2 -LRB-))\n", ["positive", "very negative"], "dev"),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_published_layouts(tmp_path, name):
    content, expected, split = TABLES[name]
    path = written(tmp_path / name, content)
    assert detect_format([path]) == "labelled"
    trees, counts = read(path)
    assert labels(trees) == expected
    assert splits(trees).keys() == {split}
    assert not counts.skipped
    assert not counts.unread_columns
    assert counts.kept.keys() <= {"missing_rows", "no_label"}


HUB = {
    "mrpc": ({"sentence1": "A b.", "sentence2": "A c.", "label": 1, "idx": 7}, "equivalent"),
    "qqp": ({"question1": "A?", "question2": "B?", "label": 0, "idx": 7}, "not_duplicate"),
    "stsb": ({"sentence1": "A", "sentence2": "B", "label": 2.5, "idx": 7}, 2.5),
    "mnli": ({"premise": "A.", "hypothesis": "B.", "label": 1, "idx": 7}, "neutral"),
    "ax": ({"premise": "A.", "hypothesis": "B.", "label": -1, "idx": 7}, None),
    "snli": ({"premise": "A.", "hypothesis": "B.", "label": 2}, "contradiction"),
    "cola": ({"sentence": "She ate.", "label": 1, "idx": 7}, "acceptable"),
    "boolq": ({"question": "is it", "passage": "It is.", "idx": 7, "label": 1}, True),
    "copa": ({"premise": "A", "choice1": "B", "choice2": "C", "question": "cause", "idx": 7, "label": 0}, [True, False]),
    "swag": ({"sent1": "A.", "sent2": "B", "ending0": "c", "ending1": "d", "ending2": "e", "ending3": "f", "label": 2},
             [False, False, True, False]),
    "imdb": ({"text": "A film.", "label": 1}, "positive"),
    "yelp_polarity": ({"text": "A\\nb.", "label": 1}, "positive"),
    "yelp_review_full": ({"text": "A b.", "label": 1}, "2 stars"),
    "sst5": ({"text": "A b.", "label": 1}, "negative"),
    "wsc.fixed": ({"text": "He ate it.", "span1_index": 0, "span2_index": 2, "span1_text": "He", "span2_text": "it", "idx": 7,
                   "label": 0}, False),
}  # fmt: skip
"""Folder on the Hugging Face hub -> a row, and its label."""


def parquet(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("name", HUB)
def test_layouts_of_the_hub(tmp_path, name):
    """Columns have other names there, classes are numbers, and -1 means that there is no label."""
    row, expected = HUB[name]
    path = parquet(tmp_path / name / "test-00000-of-00001.parquet", [row])
    assert detect_format([path]) == "labelled"
    (tree,), counts = read(path)
    assert labels([tree]) == (expected if isinstance(expected, list) else [] if expected is None else [expected])
    assert tree.meta["split"] == "test"
    assert not counts.skipped
    assert not counts.unread_columns


def test_questions_of_the_hub(tmp_path):
    """One row per question: the rows about a text become the tree that the publisher's file has."""

    def hub(name, rows):
        path = parquet(tmp_path / name / "train-00000-of-00001.parquet", rows)
        assert detect_format([path]) == "labelled"
        trees, counts = read(path)
        assert not counts.skipped
        return [[(node.kind, node.parents, node.text, node.label) for node in tree.nodes] for tree in trees], trees

    context = "The tea is green, and tea is hot."
    answers = [{"text": ["green"], "answer_start": [11]}, {"text": [], "answer_start": []}]
    found, trees = hub("squad_v2", [
        {"id": f"{title}{text}{n}", "title": title, "context": text, "question": f"q{n}?", "answers": answers[n]}
        for title, text in (("Tea", context), ("Tea", "Tea is green."), ("Pot", context)) for n in (0, 1)
    ])  # fmt: skip
    assert found[0] == [
        ("paragraph", (), context, None),
        ("question", (0,), "q0?", {"texts": ["green"], "starts": [11], "is_impossible": False}),
        ("question", (0,), "q1?", {"texts": [], "starts": [], "is_impossible": True}),
    ]
    assert [tree.id.partition("/")[2] for tree in trees] == ["Tea/0001", "Tea/0002", "Pot/0001"]

    found, trees = hub("multirc", [
        {"paragraph": f"p{n // 4}", "question": f"q{n // 2}", "answer": f"a{n}", "label": n % 2 - (n == 7),
         "idx": {"paragraph": n // 4, "question": n // 2, "answer": n}}
        for n in range(8)
    ])  # fmt: skip
    assert [[text for _, _, text, _ in nodes] for nodes in found] == [
        ["p0", "q0", "a0", "a1", "q1", "a2", "a3"], ["p1", "q2", "a4", "a5", "q3", "a6", "a7"],
    ]  # fmt: skip
    assert [(parents, label) for _, parents, _, label in found[0]] == [
        ((), None), ((0,), None), ((1,), False), ((1,), True), ((0,), None), ((4,), False), ((4,), True),
    ]  # fmt: skip
    assert trees[1].nodes[-1].id.endswith("/1/3/7")

    spans = {"text": ["Ann", "Bob", "Ann"], "start": [0, 8, 16], "end": [3, 11, 19]}
    rows = [
        {"passage": "Ann met Bob and Ann", "query": f"@placeholder {n}", "entities": ["Ann", "Bob"], "answers": ["Ann"][n:],
         "entity_spans": spans, "idx": {"passage": 0, "query": n}}
        for n in (0, 1)
    ]  # fmt: skip
    (found,), (tree,) = hub("record", rows)
    assert [label for *_, label in found] == [None, {"texts": ["Ann", "Ann"], "starts": [0, 16]}, None]
    assert tree.meta["entities"] == [[0, 2], [8, 10], [16, 18]]
    (without,), (tree,) = hub(
        "early/record", [{key: value for key, value in row.items() if key != "entity_spans"} for row in rows]
    )
    assert [label for *_, label in without] == [None, {"texts": ["Ann"], "starts": [0]}, None]


@pytest.mark.parametrize("wrap", ["lines", "list", "data"])
def test_questions_as_datasets_writes_them(tmp_path, wrap):
    """One question per line of JSON, with the texts and the starts of its answers in two lists."""
    context = "Tea is green, and tea is hot."
    answers = [
        {"text": ["green", "Tea"], "answer_start": [7, 0]},
        {"text": [], "answer_start": []},
        None,
        ["hot"],
        {"text": ["hot"]},
    ]
    rows = [
        {"id": f"i{n}", "title": "Tea", "context": context, "question": f"q{n}?", "answers": answer}
        for n, answer in enumerate(answers)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows) + "3\n"
    path = written(tmp_path / "t.jsonl", {"list": json.dumps(rows), "data": json.dumps({"data": rows})}.get(wrap, text))
    assert detect_format([path]) == "labelled"
    (tree,), counts = read(path)
    assert [(node.id, node.text, node.label) for node in tree.nodes[1:]] == [
        ("i0", "q0?", {"texts": ["green", "Tea"], "starts": [7, 0], "is_impossible": False}),
        ("i1", "q1?", {"texts": [], "starts": [], "is_impossible": True}),
        ("i2", "q2?", None),
        ("i3", "q3?", {"texts": [], "starts": [], "is_impossible": False}),
        ("i4", "q4?", {"texts": [], "starts": [], "is_impossible": False}),
    ]
    assert (tree.nodes[0].text, tree.meta["title"], counts.kept) == (context, "Tea", {"bad_answer": 2})
    assert counts.skipped == ({"not_a_post": 1} if wrap == "lines" else {})
    # As a table, where the columns are named.
    trees, _ = read(path, text="question", label="context")
    assert trees[0].nodes[0].text == "q0?"


def test_a_training_file_without_labels_is_refused(tmp_path):
    path = written(tmp_path / "QQP" / "train.tsv", "id\tquestion1\tquestion2\n3\tA?\tB?\n")
    with pytest.raises(RamifyError, match=r"train\.tsv has no column 'is_duplicate', which holds the labels of qqp"):
        read(path)
    assert labels(read(path.rename(path.with_name("test.tsv")))[0]) == []


def test_every_published_table_is_tested():
    tested = {re.sub("[^a-z0-9]", "", name.split("/")[0].lower()) for name in [*TABLES, *HUB]}
    assert {folder for dataset in DATASETS if dataset.shape == "table" for folder in dataset.folders[:1]} <= tested | {"sick"}


def test_metadata_of_data_sets(tmp_path):
    def meta(name):
        ((tree, *_), _) = read(written(tmp_path / name, TABLES[name][0]))
        return {key: value for key, value in tree.meta.items() if key not in ("split", "group")}

    assert meta("WiC/val.jsonl") == {"word": "go", "start1": 0, "end1": 2, "start2": 2, "end2": 4}
    assert meta("WSC/val.jsonl")["target"]["span2_text"] == "it"
    assert meta("any/SICK_trial.txt") == {"relatedness_score": 3.6}
    assert meta("COPA/val.jsonl") == {"question": "cause"}


def test_rows_are_compared_with_the_published_number(tmp_path):
    text = "sentence\tlabel\n" + "fine\t1\n" * 872
    _, counts = read(written(tmp_path / "sst2" / "dev.tsv", text))
    assert not counts.kept
    _, counts = read(written(tmp_path / "sst2" / "dev.tsv", text[:-7] + "fine\n"))
    assert counts.kept == {"missing_rows": 1}
    assert counts.skipped == {"bad_row": 1}
    assert counts.examples["missing_rows"] == ["sst2, dev: 871 rows; 872 are published"]
    _, counts = read(written(tmp_path / "sst2" / "dev.tsv", text + "fine\t0\n"))
    assert counts.kept == {"surplus_rows": 1}


def test_named_column_keeps_its_values_and_unknown_classes_are_counted(tmp_path):
    path = written(tmp_path / "sst2" / "rows.tsv", "sentence\tlabel\na\t1\nb\t7\n")
    assert labels(read(path, text="sentence", label="label")[0]) == [1, 7]
    trees, counts = read(path)
    assert labels(trees) == ["positive", "7"]
    assert counts.kept == {"unknown_label": 1}
    assert labels(read(path, dataset="none")[0]) == [1, 7]


def test_titles_name_the_columns_of_a_file_without_header(tmp_path):
    trees, _ = read(written(tmp_path / "t.csv", "x,one\ny,two\n"), titles="label,text")
    assert [(tree.nodes[0].text, tree.nodes[0].label) for tree in trees] == [("one", "x"), ("two", "y")]


# --- nested records ---------------------------------------------------------------------------------------------------


def article(*questions, context="The tea is green, and tea is hot."):
    return {"title": "Tea", "paragraphs": [{"context": context, "qas": list(questions)}]}


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ('tea is green,good\n"tea, hot",bad\ntea,bad\n', "text,label"),
        ("1\tgood\ttea is green\n2\tbad\ttea is hot\n3\tbad\ttea\n", "column1,label,text"),
    ],
)
def test_a_table_without_header_gets_titles_to_paste(tmp_path, text, titles):
    path = written(tmp_path / "t.csv", text)
    with pytest.raises(RamifyError, match=rf"name the columns: --option titles={titles}$"):
        read(path)
    with pytest.raises(RamifyError, match=f"if it is no header: --format labelled --option titles={titles}\n"):
        detect_format([path])
    trees, _ = read(path, titles=titles)
    assert [tree.nodes[0].label for tree in trees] == ["good", "bad", "bad"]
    assert trees[0].nodes[0].text == "tea is green"


def test_squad(tmp_path):
    questions = (
        {"id": "q1", "question": "Which colour?", "is_impossible": False, "answers": [{"text": "green", "answer_start": 11}]},
        {
            **{"id": "q2", "question": "Which cup?", "is_impossible": True, "answers": []},
            "plausible_answers": [{"text": "hot", "answer_start": 29}],
        },
        {"id": "q1", "question": "Again?", "answers": []},
        {"id": "q3", "question": "Where?", "answers": [{"text": "tea", "answer_start": 5}, {"text": "tea"}]},
        {"question": "No id?"},
        {"id": "q4", "question": "Of a test set?"},
    )
    data = {"version": "v2.0", "data": [article(*questions), {"title": "Bad", "paragraphs": [{"qas": [{}]}]}]}
    path = written(tmp_path / "dev-v2.0.json", json.dumps(data))
    assert detect_format([path]) == "labelled"
    (tree,), counts = read(path)
    assert [(node.id, node.kind, node.parents) for node in tree.nodes[1:]] == [
        (name, "question", (0,)) for name in ("q1", "q2", "q3", f"{tree.id}/4", "q4")
    ]
    assert tree.nodes[1].label == {"texts": ["green"], "starts": [11], "is_impossible": False}
    assert tree.nodes[2].label == {
        **{"texts": [], "starts": [], "is_impossible": True},
        **{"plausible_texts": ["hot"], "plausible_starts": [29]},
    }
    assert tree.nodes[5].label is None
    assert tree.meta == {"split": "dev", "title": "Tea", "group": "Tea"}
    assert tree.nodes[0].kind == "paragraph"
    assert counts.skipped == {"duplicate_id": 1, "not_a_post": 2}
    assert counts.kept == {"moved_answer": 1, "bad_answer": 1, "no_id": 1, "missing_rows": 11_873 - 5}
    # Pretty-printed, on many lines.
    assert read(written(path, json.dumps(data, indent=1)))[0] == [tree]
    with pytest.raises(RamifyError, match='no SQuAD data, which is an object with a list "data"'):
        read(written(path, json.dumps({"data": 3})), dataset="squad")
    with pytest.raises(RamifyError, match=r"dev-v2\.0\.json is not a table, so it has no column 'question'"):
        read(written(path, json.dumps(data)), text="question")


@pytest.mark.parametrize("layout", ["lines", "list"])
def test_rows_of_questions_without_titles_and_ids(tmp_path, layout):
    rows = [
        {"context": "Tea is green.", "question": "What?", "answers": [{"text": "Tea", "answer_start": 0, "answer_id": 7}]},
        {"context": "Tea is green.", "question": "Why?", "answers": []},
        {"context": "Pots are hot.", "question": "How?", "answers": {"text": ["hot"], "answer_start": [9]}},
    ]
    text = json.dumps(rows) if layout == "list" else "".join(json.dumps(row) + "\n" for row in rows)
    path = written(tmp_path / "asked.json", text)
    assert detect_format([path]) == "labelled"
    trees, counts = read(path)
    assert [[node.text for node in tree.nodes] for tree in trees] == [
        ["Tea is green.", "What?", "Why?"],
        ["Pots are hot.", "How?"],
    ]
    assert [label["texts"] for label in labels(trees)] == [["Tea"], [], ["hot"]]
    assert [tree.meta["group"] for tree in trees] == ["asked/article 1", "asked/article 2"]
    assert counts.kept == {"no_id": 3, "no_title": 2}
    table = written(tmp_path / "asked.csv", as_csv([row | {"answers": str(row["answers"])} for row in rows]))
    with pytest.raises(RamifyError, match=r"holds questions and answers as SQuAD.* Export JSON lines or Parquet"):
        read(table)
    assert labels(read(table, text="question", label="context")[0])[2] == "Pots are hot."


SQUAD = {
    "dev-v1.1.json": ("1.1", [("One", "q1"), ("Two", "q2"), ("Three", "q3")]),
    "dev-v2.0.json": ("2.0", [("Two", "q2"), ("Three", "q4")]),
}


def squad_files(folder):
    folder.mkdir()
    for name, (version, questions) in SQUAD.items():
        articles = [article({"id": id, "question": f"{id}?", "answers": []}) | {"title": title} for title, id in questions]
        (folder / name).write_text(json.dumps({"version": version, "data": articles}))
    return folder


def test_shares_divide_a_set_with_one_split(tmp_path):
    """Both files are called dev. Articles of both versions stay together."""
    folder = squad_files(tmp_path / "squad")
    store = build([folder], "labelled", tmp_path / "a")
    assert len(store.split("dev")) == 5
    store = build([folder], "labelled", tmp_path / "b", split=(0.4, 0.3, 0.3))
    titles = [{meta["title"] for meta in store.metas(store.split(name))} for name in ("train", "dev", "test")]
    assert [len(each) for each in titles] == [1, 1, 1]
    assert set.union(*titles) == {"One", "Two", "Three"}
    (folder / "train-v1.1.json").write_text((folder / "dev-v1.1.json").read_text())
    told = []
    store = build([folder], "labelled", tmp_path / "c", split=(0.4, 0.3, 0.3), tell=told.append)
    assert len(store.split("dev")) == 5
    assert any(line.startswith("note: --split 0.4,0.3,0.3 has no effect") for line in told)


def published(folder, rows=60):
    """Tables of train and test. Two rows of train begin with each text."""
    pairs = [(f"text {number // 2}", f"reply {number}", "xy"[number % 2]) for number in range(rows)]
    for name, part in {"train": pairs, "test": [("text 0", "other", "x"), ("text t", "other", "y")]}.items():
        written(folder / f"{name}.csv", "text,text_pair,label\n" + "".join(",".join(row) + "\n" for row in part))
    return folder


def test_dev_is_taken_out_of_train(tmp_path):
    """Test stays as the files give it, and rows with equal texts stay together."""
    folder = published(tmp_path / "set")
    told: list[str] = []
    whole = build([folder], "labelled", tmp_path / "a", tell=told.append)
    assert [len(whole.split(name)) for name in SPLITS] == [60, 0, 2]
    (note,) = (line for line in told if "split" in line)
    assert note.startswith("note: there is no dev split, because the data give train and test only.")
    assert "give --split, such as --split 0.9,0.1,0; the test split stays" in note
    told.clear()
    divided = build([folder], "labelled", tmp_path / "b", split=(0.6, 0.2, 0.2), tell=told.append)
    (note,) = (line for line in told if "split" in line)
    num_dev = len(divided.split("dev"))
    assert f"so --split 0.6,0.2,0.2 takes dev out of train: {num_dev} trees of 60, by a share of 0.25." in note
    assert [*divided.tree_ids(divided.split("test"))] == [*whole.tree_ids(whole.split("test"))]
    assert 0 < num_dev < 30
    roots = {name: Counter(divided.texts(divided.offsets[divided.split(name)])) for name in ("train", "dev")}
    assert not roots["train"].keys() & roots["dev"].keys()
    assert {*roots["train"].values(), *roots["dev"].values()} == {2}
    assert len(roots["train"] | roots["dev"]) == 30
    # The share of test says nothing.
    again = build([folder], "labelled", tmp_path / "c", split=(0.75, 0.25, 0))
    assert again.split_hash == divided.split_hash
    told.clear()
    whole = build([folder], "labelled", tmp_path / "d", split=(0.8, 0, 0.2), tell=told.append)
    assert [len(whole.split(name)) for name in SPLITS] == [60, 0, 2]
    (note,) = (line for line in told if "split" in line)
    assert "and --split 0.8,0,0.2 gives dev no share. To take dev out of train, give it one" in note


def test_dev_is_taken_out_of_the_training_files_of_a_known_set(tmp_path):
    """The files of reviews name the split in the folder above."""
    for number in range(40):
        part, kind = "test" if number < 4 else "train", "pos" if number % 2 else "neg"
        written(tmp_path / "aclImdb" / part / kind / f"{number}_7.txt", f"Review {number}.")
    store = build([tmp_path / "aclImdb"], "labelled", tmp_path / "a", split=(0.5, 0.4, 0.1))
    assert set(store.texts(store.offsets[store.split("test")])) == {f"Review {number}." for number in range(4)}
    assert len(store.split("train")) + len(store.split("dev")) == 36
    assert len(store.split("dev")) > 0


def test_shares_that_train_and_test_files_refuse(tmp_path):
    folder = published(tmp_path / "set")
    with pytest.raises(RamifyError, match=r"--split 0,0,1 leaves nothing for train and dev, .* give --split, such as"):
        build([folder], "labelled", tmp_path / "a", split=(0, 0, 1))
    with pytest.raises(RamifyError, match=r"--fold 1/5 makes another part .* which mixes the given test split into train"):
        build([folder], "labelled", tmp_path / "a", fold="1/5")
    told: list[str] = []
    store = build([folder], "labelled", tmp_path / "b", split=(0, 0, 1), split_by="file", tell=told.append)
    assert [len(store.split(name)) for name in SPLITS] == [60, 0, 2]
    assert any("leave out --split-by file, which mixes the given test split into train." in line for line in told)


def test_dev_is_taken_out_of_the_train_rows_of_a_column(tmp_path):
    """As with the names of files: rows that begin alike stay together, and test stays as it is."""
    folder = published(tmp_path / "set")
    rows = {name: (folder / f"{name}.csv").read_text().splitlines() for name in ("train", "test")}
    table = "\n".join([f"{rows['train'][0]},split", *(f"{row},{name}" for name, part in rows.items() for row in part[1:])])
    path = written(tmp_path / "all" / "rows.csv", table + "\n")
    told: list[str] = []
    whole = build([path], None, tmp_path / "a", tell=told.append)
    assert [len(whole.split(name)) for name in SPLITS] == [60, 0, 2]
    assert any("there is no dev split, because the data give train and test only" in line for line in told)
    store = build([path], None, tmp_path / "b", split=(0.6, 0.2, 0.2))
    roots = {name: store.texts(store.offsets[store.split(name)]) for name in SPLITS}
    assert 0 < len(roots["dev"]) < 30
    assert not {*roots["train"]} & {*roots["dev"]}
    assert sorted(roots["test"]) == ["text 0", "text t"]
    named = build([folder], None, tmp_path / "c", split=(0.6, 0.2, 0.2))
    assert sorted(named.texts(named.offsets[named.split("dev")])) == sorted(roots["dev"])
    # Whatever names the source of the splits.
    other = written(tmp_path / "part" / "rows.csv", table.replace("label,split", "label,part") + "\n")
    for place, (inputs, source) in enumerate((([other], "part"), ([folder], "file"))):
        again = build(inputs, "labelled", tmp_path / f"e{place}", split=(0.6, 0.2, 0.2), options={"split": source})
        assert sorted(again.texts(again.offsets[again.split("dev")])) == sorted(roots["dev"])
    with_dev = build([written(path, table + "\nlast,other,x,dev\n")], None, tmp_path / "d", split=(0.6, 0.2, 0.2))
    assert [len(with_dev.split(name)) for name in SPLITS] == [60, 1, 2]


def test_shares_have_no_effect_on_a_set_with_a_dev_split(tmp_path):
    folder = published(tmp_path / "set")
    written(folder / "dev.csv", "text,text_pair,label\na,b,x\n")
    told: list[str] = []
    store = build([folder], "labelled", tmp_path / "a", split=(0.6, 0.2, 0.2), tell=told.append)
    assert [len(store.split(name)) for name in SPLITS] == [60, 1, 2]
    (note,) = (line for line in told if "split" in line)
    assert note.startswith("note: --split 0.6,0.2,0.2 has no effect")
    assert note.endswith("give --option split=none, which mixes the given test split into train.")


def test_articles_that_files_divide_are_counted(tmp_path):
    """Train of one version and dev of the other hold passages of two articles."""
    folder = squad_files(tmp_path / "squad")
    (folder / "dev-v1.1.json").rename(folder / "train-v1.1.json")
    untitled = {"version": "1.1", "data": [{key: value for key, value in article().items() if key != "title"}]}
    for name in ("train-more.json", "dev-more.json"):
        (folder / name).write_text(json.dumps(untitled))
    told: list[str] = []
    store = build([folder], "labelled", tmp_path / "a", tell=told.append)
    assert (len(store.split("train")), len(store.split("dev"))) == (4, 3)
    assert store.info["kept"]["divided_group"] == 2
    assert {*store.info["examples"]["divided_group"]} == {"Two", "Three"}
    (note,) = (line for line in told if "groups" in line)
    assert re.match(r"note: 2 groups of trees, such as '(Two|Three)', lie in several splits, because the data give them", note)
    assert note.endswith("To keep groups whole, give --option split=none.")
    whole = build([folder], "labelled", tmp_path / "b", options={"split": "none"}, split=(0.4, 0.3, 0.3))
    titles = [{meta["title"] for meta in whole.metas(whole.split(name)) if meta["title"] != "article 1"} for name in SPLITS]
    assert sum(map(len, titles)) == len(set.union(*titles)) == 3
    assert "divided_group" not in whole.info["kept"]


def test_titles_give_splits(tmp_path):
    table = tmp_path / "titles.json"
    table.write_text(json.dumps({"dev": ["Two"], "train": ["*"]}))
    store = build([squad_files(tmp_path / "squad")], "labelled", tmp_path / "a", split_by=str(table))
    assert {meta["title"] for meta in store.metas(store.split("dev"))} == {"Two"}
    assert (len(store.split("dev")), len(store.split("train"))) == (2, 3)


def test_line_aligned_questions(tmp_path):
    files = {
        "context": "tea is green .\nwater is clear .\ntea is green .\n",
        "question": "which ?\nhow ?\nwhat ?\n",
        "answer": "green\nwater\ntea\n",
        "span": "2 2\n1 1\n0 9\n",
    }
    for name, text in files.items():
        written(tmp_path / f"part.{name}", text)
    for inputs in ([tmp_path], [tmp_path / "part.span"]):
        trees, counts = read(*inputs)
        assert [len(tree) for tree in trees] == [2, 2]
        assert trees[0].nodes[1].label == {
            **{"texts": ["green"], "starts": [7], "is_impossible": False},
            "token_spans": [[2, 2]],
        }
        assert counts.kept == {"moved_answer": 1}
        assert counts.skipped == {"not_a_post": 1}
    written(tmp_path / "part.answer", "green\n")
    with pytest.raises(RamifyError, match=r"part\.answer ends before line 2, but the files beside it go on"):
        read(tmp_path)


def test_passages_with_questions_and_answers(tmp_path):
    answers = [{"text": "green", "idx": 0, "label": 1}, {"text": "red", "idx": 1, "label": 0}, {"text": "blue", "idx": 2}]
    questions = [{"question": "Which colour?", "idx": 4, "answers": answers}]
    record = {"idx": 7, "passage": {"text": "Tea is green.", "questions": questions}}
    (tree,), counts = read(written(tmp_path / "MultiRC" / "val.jsonl", json.dumps(record) + "\n{}\n"))
    assert [(node.kind, node.parents, node.label) for node in tree.nodes] == [
        ("passage", (), None), ("question", (0,), None),
        ("answer", (1,), True), ("answer", (1,), False), ("answer", (1,), None),
    ]  # fmt: skip
    assert tree.id == "val/7"
    assert counts.skipped == {"not_a_post": 1}
    assert counts.kept == {"missing_rows": 4_848 - 3}


def test_passages_with_queries(tmp_path):
    passage = {"text": "Ann met Bob.", "entities": [{"start": 0, "end": 2}, {"start": 8, "end": 10}]}
    query = {"query": "@placeholder met Bob", "idx": 1, "answers": [{"start": 0, "end": 2, "text": "Ann"}]}
    path = written(tmp_path / "ReCoRD" / "train.jsonl", json.dumps({"idx": 0, "passage": passage, "qas": [query]}) + "\n")
    assert detect_format([path]) == "labelled"
    (tree,), _ = read(path)
    assert tree.nodes[1].label == {"texts": ["Ann"], "starts": [0]}
    assert tree.meta["entities"] == [[0, 2], [8, 10]]


def test_reviews_and_sentences_in_archives(tmp_path):
    def archive(name, files):
        with zipfile.ZipFile(tmp_path / name, "w") as file:
            for member, data in files.items():
                file.writestr(member, data)
        return tmp_path / name

    files = {
        "movie_reviews/pos/a.txt": "fine .\nreally .\n",
        "movie_reviews/neg/b.txt": b"caf\xe9 .\n",
        "movie_reviews/README": "",
    }
    path = archive("reviews.zip", files)
    assert detect_format([path]) == "labelled"
    trees, counts = read(path)
    assert [(tree.id, tree.nodes[0].text, tree.nodes[0].label) for tree in trees] == [
        ("neg/b", "café .\n", "negative"), ("pos/a", "fine .\nreally .\n", "positive"),
    ]  # fmt: skip
    assert counts.skipped == {"other_file": 1}
    assert counts.kept == {"encoding": 1, "missing_rows": 1_998}
    with zipfile.ZipFile(path) as file:
        file.extractall(tmp_path / "unpacked")
    assert [tree.nodes for tree in read(tmp_path / "unpacked")[0]] == [tree.nodes for tree in trees]
    lines = {"s/plot.tok.gt9.5000": "one\x85 two\nthree\n", "s/quote.tok.gt9.5000": "four\n"}
    trees, _ = read(archive("sentences.zip", lines))
    assert [(tree.nodes[0].text, tree.nodes[0].label) for tree in trees] == [
        ("one\x85 two", "objective"), ("three", "objective"), ("four", "subjective"),
    ]  # fmt: skip
    plays = archive("plays.zip", {"shakespeare/play.dtd": "", "shakespeare/dream.xml": "<PLAY/>"})
    with pytest.raises(RamifyError, match=r"plays\.zip holds plays in XML, which are documents, not labelled texts"):
        read(plays)
    with pytest.raises(RamifyError, match=r"labelled +plays in XML"):
        detect_format([plays])
    folder = written(tmp_path / "all" / "reviews.xml", "<package/>").parent
    for file in tmp_path.glob("*.zip"):
        file.rename(folder / file.name)
    assert detect_format([folder]) == "labelled"
    trees, counts = read(folder)
    assert len(trees) == 5
    assert counts.skipped == {"other_file": 3}
    assert counts.examples["other_file"][:2] == [f"{folder / 'plays.zip'}", f"{folder / 'reviews.xml'}"]
    written(folder / "notes.csv", "text,label\na,b\n")
    assert labelled.refuses(folder, b"").endswith("notes.csv: no table of a known data set, in a folder with other files")


def test_text_of_yelp(tmp_path):
    """Line breaks are escaped, and quotation marks are doubled. A hub's table has its texts as they are."""
    content = TABLES["yelp_review_polarity_csv/test.csv"][0]
    trees, _ = read(written(tmp_path / "yelp_review_polarity_csv" / "test.csv", content))
    assert [tree.nodes[0].text for tree in trees] == ['Good, and "cheap".\nWill return.', "No."]
    (tree,), _ = read(parquet(tmp_path / "yelp_polarity" / "test.parquet", [{"text": "A\\nb.", "label": 1}]))
    assert tree.nodes[0].text == "A\\nb."


def test_sentences_as_trees(tmp_path):
    """Phrases are no texts, and the words are those that were annotated."""
    path = written(
        tmp_path / "trees" / "train.txt", "(4 (2 -LRB-) (3 (2 Good\\/bad) (2 -RRB-)))\n\n(5 (2 A))\n(1 (2 B)\n(2 C)\n"
    )
    trees, counts = read(path)
    assert [(tree.nodes[0].text, tree.nodes[0].label) for tree in trees] == [
        ("( Good/bad )", "very positive"),
        ("C", "neutral"),
    ]
    assert counts.skipped == {"not_a_post": 2}
    assert counts.datasets == {"sst5": 2}


def test_reviews_of_imdb(tmp_path):
    root = tmp_path / "aclImdb"
    for name in ("train/pos/0_9", "train/neg/1_1", "test/pos/0_9", "train/unsup/0_0", "train/urls_pos", "imdbEr"):
        written(root / f"{name}.txt", f"{name} .")
    written(root / "imdb.vocab", "the\n")
    assert detect_format([root]) == "labelled"
    trees, counts = read(root)
    assert sorted((tree.id, tree.nodes[0].text, tree.nodes[0].label, tree.meta.get("split")) for tree in trees) == [
        ("test/pos/0_9", "test/pos/0_9 .", "positive", "test"),
        ("train/neg/1_1", "train/neg/1_1 .", "negative", "train"),
        ("train/pos/0_9", "train/pos/0_9 .", "positive", "train"),
    ]
    assert counts.skipped == {"other_file": 4}
    assert counts.datasets == {"imdb": 3}
    root.rename(tmp_path / "mine")
    assert read(tmp_path / "mine")[1].datasets == {"": 3}


def test_store_remembers_its_data_sets(tmp_path):
    name = "SST-2/dev.tsv"
    store = build([written(tmp_path / name, TABLES[name][0])], "labelled", tmp_path / "store")
    assert store.info["datasets"] == {"sst2": 2}


# --- real data --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rows", "counted"),
    [
        ("cola", 7_250, {"missing_rows": 1_301}),
        ("sst2", 68_221, {}),
        ("rte", 2_490, {}),
        ("sick", 5_000, {}),
        ("snli", 7_290, {}),
    ],
)
def test_real_tables(data_dir, name, rows, counted):
    trees, counts = read(data_dir(name))
    assert len(trees) == len(labels(trees)) == rows
    assert counts.kept == counted
    assert not counts.skipped
    assert all(isinstance(label, str) and not label.isdigit() for label in labels(trees))


@pytest.mark.parametrize(
    ("name", "questions", "impossible", "missing"),
    [("dev-v1.1.part.json", 7_456, 0, 10_570 - 7_456), ("dev-v2.0.part.json", 9_644, 4_891, 11_873 - 9_644)],
)
def test_real_questions(data_dir, name, questions, impossible, missing):
    trees, counts = read(data_dir("squad") / name)
    assert len(labels(trees)) == questions
    assert counts.kept == {"missing_rows": missing}
    assert sum(label["is_impossible"] for label in labels(trees)) == impossible
    for tree in trees:
        for node in tree.nodes[1:]:
            assert bool(node.label["texts"]) != node.label["is_impossible"]
            for text, start in zip(node.label["texts"], node.label["starts"], strict=True):
                assert tree.nodes[0].text[start : start + len(text)] == text


def test_real_line_aligned_questions(data_dir):
    trees, counts = read(data_dir("squad") / "v1.1-train-part")
    assert len(trees) == 875
    assert len(labels(trees)) == 4_285
    assert counts.kept == {"moved_answer": 32}
    assert not counts.skipped


@pytest.mark.data
@pytest.mark.parametrize("name", ["snli", "rte", "sick", "cola", "sst2"])
def test_real_premises_are_in_one_split(data_dir, tmp_path, name):
    store = build([data_dir(name)], "labelled", tmp_path / "out", split=(0.7, 0.15, 0.15), options={"split": "none"})
    roots = [set(store.texts(store.offsets[store.split(split)])) for split in ("train", "dev", "test")]
    assert sum(map(len, roots)) == len(set.union(*roots)) > 1_000
    assert all(len(each) > 100 for each in roots)


@pytest.mark.data
def test_real_articles_are_in_one_split(data_dir, tmp_path):
    store = build([data_dir("squad")], "labelled", tmp_path / "out", split=(0.7, 0.15, 0.15))
    titles = [
        {meta["title"] for meta in store.metas(store.split(name)) if "title" in meta} for name in ("train", "dev", "test")
    ]
    contexts = [set(store.texts(store.offsets[store.split(name)])) for name in ("train", "dev", "test")]
    for parts in (titles, contexts):
        assert sum(map(len, parts)) == len(set.union(*parts))
        assert all(parts)
    assert len(set.union(*titles)) == 37


@pytest.mark.parametrize(("name", "rows"), [("movie_reviews", 2_000), ("sentence_polarity", 10_662), ("subjectivity", 10_000)])
def test_real_reviews(data_dir, name, rows):
    trees, counts = read(data_dir("pang-lee") / f"{name}.zip")
    assert sorted(Counter(labels(trees)).values()) == [rows / 2, rows / 2]
    assert not counts.kept
    with pytest.raises(RamifyError, match="plays in XML"):
        read(data_dir("pang-lee") / "shakespeare.zip")


def test_real_folder_of_reviews_and_plays(data_dir):
    assert detect_format([data_dir("pang-lee")]) == "labelled"
    trees, counts = read(data_dir("pang-lee"))
    assert len(trees) == 22_662
    assert counts.skipped == {"other_file": 8}  # the plays, four descriptions, and a file in each archive


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_lists_are_several_classes(tmp_path, kind):
    path = tmp_path / f"topics.{kind}"
    rows = [{"text": "a", "topics": ["tea", "bread"]}, {"text": "b", "topics": []}, {"text": "c", "topics": None}]
    if kind == "parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        written(path, "".join(json.dumps(row) + "\n" for row in rows))
    trees, counts = read(path, label="topics")
    assert labels(trees) == [["tea", "bread"], []]
    assert counts.kept == {"no_label": 1}


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    "values",
    [[{"tone": "x", "size": 2}, {"tone": "y", "size": None}], [[{"kind": "claim", "start": 0}], []], [[1, 2], [3]]],
)
def test_objects_and_lists_are_kept(tmp_path, kind, values):
    path = tmp_path / f"set.{kind}"
    rows = [{"text": f"t{place}", "label": value} for place, value in enumerate([*values, None])]
    if kind == "parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        written(path, "".join(json.dumps(row) + "\n" for row in rows))
    trees, counts = read(path)
    assert labels(trees) == values
    assert counts.kept == {"no_label": 1}


def test_fields_of_objects_are_labels_of_a_store(tmp_path):
    rows = [{"text": "a", "label": {"tone": "x"}}, {"text": "b", "label": {"tone": ["y", 3], "é": {}}}]
    path = written(tmp_path / "set.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    store = build([path], "labelled", tmp_path / "out", split=(1, 0, 0))
    assert store.info["kept"] == {}
    assert sorted(map(json.loads, store.column("label", range(2)).to_pylist()), key=len) == [row["label"] for row in rows]
    assert node_labels(store, "train", "tone.1").values == [3]
    with pytest.raises(RamifyError, match=r"--label size: no label of .* has this field\. The fields are tone"):
        node_labels(store, "train", "size")
    with pytest.raises(RamifyError, match=r"the label is an object, .* Choose one of its fields with --label FIELD: "):
        node_labels(store, "train")


def test_objects_in_a_csv_file_are_text(tmp_path):
    path = written(tmp_path / "set.csv", 'text,label\na,"{""tone"": 1}"\n')
    assert labels(read(path)[0]) == ['{"tone": 1}']


def test_objects_beside_single_labels_are_refused(tmp_path):
    rows = [{"text": "a", "label": {"tone": "x"}}, {"text": "b", "label": 3}]
    path = written(tmp_path / "mixed.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(
        RamifyError, match=r"line 1: 'label' holds an object, but 3 in line 2 is not\. Write objects in all lines"
    ):
        read(path)


def test_a_known_set_without_any_class_is_refused(tmp_path):
    row = {"premise": "a", "hypothesis": "b", "label": {"tone": "x"}, "idx": 0}
    path = written(tmp_path / "CB" / "train.jsonl", json.dumps(row) + "\n")
    with pytest.raises(RamifyError, match=r"train\.jsonl: no label of .* is a class of cb; .* with --label label"):
        read(path, dataset="cb")
    assert labels(read(path, dataset="cb", label="label")[0]) == [{"tone": "x"}]
    # One odd label among others is counted.
    written(path, json.dumps(row) + "\n" + json.dumps({**row, "label": "entailment", "idx": 1}) + "\n")
    trees, counts = read(path, dataset="cb")
    assert labels(trees) == ["entailment"]
    assert (counts.kept["odd_json"], counts.kept["no_label"]) == (1, 1)


def test_lists_beside_single_labels_are_refused(tmp_path):
    rows = [{"text": "a", "label": ["tea"]}, {"text": "b", "label": "tea"}]
    path = written(tmp_path / "mixed.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(
        RamifyError, match=r"line 1: 'label' holds a list, but 'tea' in line 2 is not\. Write lists in all lines"
    ):
        read(path)
    files = [written(tmp_path / f"{name}.jsonl", json.dumps(row) + "\n") for name, row in zip("ab", rows, strict=True)]
    with pytest.raises(RamifyError, match=r"is a list or an object, but that of .*b\.jsonl.* is not"):
        read(*files)
    with pytest.raises(RamifyError, match=r"is a list or an object, not a number"):
        read(files[0], label_type="number")


def test_labels_can_be_left_unread(tmp_path):
    table = written(tmp_path / "t.csv", "text,label\na,1\nb,x y\n")
    for path in (table, written(tmp_path / "bare.csv", "text\na\nb\n")):
        for option in ({"labels": "none"}, {"label": ""}):
            trees, _ = read(path, **option)
            assert [(tree.nodes[0].text, tree.nodes[0].label) for tree in trees] == [("a", None), ("b", None)]
    with pytest.raises(RamifyError, match="label='label' names the column of labels, but labels=none reads none"):
        read(table, labels="none", label="label")
