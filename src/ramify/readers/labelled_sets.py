"""The published layouts of labelled data sets: one table of specifications, and recognition of their files."""

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ramify.files import STANDARD
from ramify.readers.split_names import in_name, named

Shape = Literal["table", "multirc", "record", "wsc", "squad", "squad-lines", "race", "documents", "sentences", "sentence-trees"]

ENTAILMENT = {"0": "entailment", "1": "neutral", "2": "contradiction"}
TWO_WAY = {"0": "entailment", "1": "not_entailment"}
TONES = {"0": "negative", "1": "positive"}
YES_NO = {"false": False, "true": True, "0": False, "1": True}
GRADES = {"0": "very negative", "1": "negative", "2": "neutral", "3": "positive", "4": "very positive"}
STARS = {"1": "1 star", **{str(stars): f"{stars} stars" for stars in range(2, 6)}}
INFERENCE = ("premise", "hypothesis")
INFERENCE_ON_HUB = {"sentence1": "premise", "sentence2": "hypothesis", "gold_label": "label"}

RACE_FOLDERS = ("high", "middle")
"""The folders of RACE's files, one per level of school, in the folder of each split."""

ANSWERED: tuple[Shape, ...] = ("squad", "squad-lines", "record")
"""The shapes whose labels are spans that answer a question."""

Grouping = Literal["none", "parent", "pair_id"]
"""The labelled texts that a metric takes together: those below one text, or those with one number in the trees' metadata."""


@dataclass(frozen=True)
class Dataset:
    """The layout of a data set, and its metrics.

    Columns that a file lacks, such as the label in test files, are absent from its nodes. Tables with
    tabs have no quoting: a quotation mark is text.
    """

    name: str
    folders: tuple[str, ...]
    """Names of folders and beginnings of names of files that hold the set, in lower case and without punctuation."""
    text: str = ""
    pair: tuple[str, ...] = ()
    """The column with the second text of a pair, or the columns with the choices that answer the text."""
    label: str = "label"
    id: str = "idx"
    shape: Shape = "table"
    split: str = ""
    """The column that names the split, if one file holds several."""
    kept: tuple[str, ...] = ()
    """Columns that become metadata of the tree."""
    titles: tuple[str, ...] = ()
    """The names of the columns of files that do not name them."""
    hub: Mapping[str, str] = field(default_factory=dict)
    """A column -> its name in the set's tables on the Hugging Face hub, for columns with another name there."""
    marks: tuple[str, ...] = ()
    """Columns that, with the texts, identify the set in any folder."""
    classes: Mapping[str, Any] = field(default_factory=dict)
    """A label in the file -> its name. Names may occur in the file, too."""
    hub_classes: Mapping[str, Any] = field(default_factory=dict)
    """`classes` of the set's tables on the hub, if they number the classes otherwise."""
    newlines: Literal["plain", "escaped"] = "plain"
    """`escaped`: a backslash and an n stand for a line break."""
    is_number: bool = False
    unlabelled: tuple[str, ...] = ("-1", "-1.0")
    """Values in the label's column that mean that there is none."""
    kinds: tuple[str, str] = ("", "")
    """The kinds of the root and of its children."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """Part of the set (train, dev, test, dev_matched …) -> its published number of labelled texts."""
    metrics: tuple[str, ...] = ("accuracy",)
    """The published metrics, by their names in `ramify.metrics`. The first one chooses among models."""
    positive: str = ""
    """The name of the class that F1 is about."""
    groups: Grouping = "none"

    @property
    def label_kind(self) -> Literal["classes", "numbers", "answers"]:
        """The kind of a whole label."""
        return "numbers" if self.is_number else "answers" if self.shape in ANSWERED else "classes"

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that every file of the set has."""
        return (self.text, *self.pair)

    def fitting(self, names: Container[str]) -> "Dataset | None":
        """The layout with the names of a table's columns: those of the publisher or of the hub. None: neither fits."""
        text, *pair, label = (self.hub.get(ours, ours) for ours in (*self.needed, self.label))
        on_hub = replace(
            self, text=text, pair=tuple(pair), label=label, id="idx", newlines="plain", classes=self.hub_classes or self.classes
        )
        layouts = [layout for layout in (self, on_hub) if all(name in names for name in layout.needed)]
        return next((layout for layout in layouts if layout.label in names), next(iter(layouts), None))


def _rows(train: int = 0, dev: int = 0, test: int = 0, **more: int) -> dict[str, int]:
    return {name: rows for name, rows in {"train": train, "dev": dev, "test": test, **more}.items() if rows}


# fmt: off
DATASETS = (
    # GLUE, Wang et al. 2018.
    Dataset("cola", ("cola",), "sentence", titles=("source", "label", "mark", "sentence"), kept=("source",),
            rows=_rows(8_551, 1_043, 1_063), classes={"0": "unacceptable", "1": "acceptable"},
            metrics=("matthews", "accuracy")),
    Dataset("sst2", ("sst2",), "sentence", classes=TONES, rows=_rows(67_349, 872, 1_821)),
    Dataset("mrpc", ("mrpc", "msrparaphrase"), "#1 String", ("#2 String",), "Quality", marks=("#1 String", "#2 String"),
            hub={"#1 String": "sentence1", "#2 String": "sentence2", "Quality": "label"},
            classes={"0": "not_equivalent", "1": "equivalent"}, rows=_rows(3_668, 408, 1_725),
            metrics=("f1", "accuracy"), positive="equivalent"),
    Dataset("qqp", ("qqp",), "question1", ("question2",), "is_duplicate", marks=("is_duplicate",),
            hub={"is_duplicate": "label"}, classes={"0": "not_duplicate", "1": "duplicate"},
            rows=_rows(363_846, 40_430, 390_965), metrics=("f1", "accuracy"), positive="duplicate"),
    Dataset("stsb", ("stsb",), "sentence1", ("sentence2",), "score", "index", kept=("genre",), is_number=True,
            hub={"score": "label"}, rows=_rows(5_749, 1_500, 1_379), metrics=("pearson", "spearman")),
    Dataset("mnli", ("mnli", "multinli"), "sentence1", ("sentence2",), "gold_label", "pairID", kept=("genre",),
            marks=("genre", "pairID"), hub=INFERENCE_ON_HUB, classes=ENTAILMENT, kinds=INFERENCE,
            unlabelled=("-", "-1", "hidden"),
            rows=_rows(392_702, dev_matched=9_815, dev_mismatched=9_832, test_matched=9_796, test_mismatched=9_847)),
    Dataset("qnli", ("qnli",), "question", ("sentence",), id="index", kinds=("question", "sentence"), classes=TWO_WAY,
            rows=_rows(104_743, 5_463, 5_463)),
    Dataset("rte", ("rte",), "sentence1", ("sentence2",), id="index", kinds=INFERENCE, classes=TWO_WAY,
            rows=_rows(2_490, 277, 3_000)),
    Dataset("wnli", ("wnli",), "sentence1", ("sentence2",), id="index", kinds=INFERENCE,
            classes={"0": "not_entailment", "1": "entailment"}, rows=_rows(635, 71, 146)),
    Dataset("ax", ("ax", "diagnostic"), "sentence1", ("sentence2",), id="index", hub=INFERENCE_ON_HUB, kinds=INFERENCE,
            classes=ENTAILMENT, rows=_rows(test=1_104), metrics=("matthews",)),
    # SuperGLUE, Wang et al. 2019.
    Dataset("boolq", ("boolq",), "passage", ("question",), kinds=("passage", "question"), classes=YES_NO,
            rows=_rows(9_427, 3_270, 3_245)),
    Dataset("cb", ("cb", "commitmentbank"), "premise", ("hypothesis",), kinds=INFERENCE,
            classes={"0": "entailment", "1": "contradiction", "2": "neutral"}, rows=_rows(250, 56, 250),
            metrics=("accuracy", "macro_f1")),
    Dataset("copa", ("copa",), "premise", ("choice1", "choice2"), kept=("question",), marks=("choice1",),
            kinds=("premise", "choice"), rows=_rows(400, 100, 500)),
    Dataset("multirc", ("multirc",), shape="multirc", rows=_rows(27_243, 4_848, 9_693), metrics=("f1", "exact_match"),
            positive="true", groups="parent"),
    Dataset("record", ("record",), shape="record", rows=_rows(100_730, 10_000, 10_000), metrics=("f1", "exact_match")),
    Dataset("rte-superglue", ("rte",), "premise", ("hypothesis",), kinds=INFERENCE, classes=TWO_WAY,
            rows=_rows(2_490, 277, 3_000)),
    Dataset("wic", ("wic",), "sentence1", ("sentence2",), kept=("word", "start1", "end1", "start2", "end2"),
            marks=("word", "start1", "start2"), classes=YES_NO, rows=_rows(5_428, 638, 1_400)),
    Dataset("wsc", ("wsc",), shape="wsc", classes=YES_NO, rows=_rows(554, 104, 146)),
    Dataset("ax-b", ("axb",), "sentence1", ("sentence2",), kept=("logic",), kinds=INFERENCE, classes=TWO_WAY,
            rows=_rows(test=1_104), metrics=("matthews",)),
    Dataset("ax-g", ("axg",), "premise", ("hypothesis",), kept=("pair_id",), kinds=INFERENCE, classes=TWO_WAY,
            rows=_rows(test=356), metrics=("accuracy", "parity"), groups="pair_id"),
    # Bowman et al. 2015: as published, and as bare pairs.
    Dataset("snli", ("snli",), "sentence1", ("sentence2",), "gold_label", "pairID", marks=("gold_label", "captionID"),
            hub=INFERENCE_ON_HUB, classes=ENTAILMENT, unlabelled=("-", "-1"), kinds=INFERENCE,
            rows=_rows(550_152, 10_000, 10_000)),
    Dataset("snli-pairs", ("snli",), "premise", ("hypothesis",), titles=("premise", "hypothesis", "label"), kinds=INFERENCE,
            classes=ENTAILMENT),
    # Marelli et al. 2014: the files of the SemEval task, and the whole set in one file.
    Dataset("sick", ("sick",), "sentence_A", ("sentence_B",), "entailment_judgment", "pair_ID", kept=("relatedness_score",),
            marks=("relatedness_score", "entailment_judgment"), rows=_rows(4_500, 500, 4_927)),
    Dataset("sick-all", ("sick",), "sentence_A", ("sentence_B",), "entailment_label", "pair_ID", kept=("relatedness_score",),
            split="SemEval_set", marks=("entailment_label",), rows=_rows(4_500, 500, 4_927)),
    # Zellers et al. 2018, with the beginning of the endings in a column of its own; Lai et al. 2017.
    Dataset("swag", ("swag",), "sent1", ("ending0", "ending1", "ending2", "ending3"), kept=("sent2",), marks=("sent2",),
            kinds=("context", "choice"), rows=_rows(73_546, 20_006, 20_005)),
    Dataset("race", ("race",), shape="race", rows=_rows(87_866, 4_887, 4_934)),
    # Rajpurkar et al. 2016 and 2018.
    Dataset("squad", ("squad",), shape="squad", rows=_rows(87_599, 10_570), metrics=("f1", "exact_match")),
    Dataset("squad2", ("squad2",), shape="squad", rows=_rows(130_319, 11_873), metrics=("f1", "exact_match")),
    Dataset("squad-lines", ("squad",), shape="squad-lines", metrics=("f1", "exact_match")),
    # Pang and Lee 2004 and 2005.
    Dataset("movie-reviews", ("moviereviews",), shape="documents", rows={"all": 2_000}),
    Dataset("sentence-polarity", ("sentencepolarity",), shape="sentences", rows={"all": 10_662}),
    Dataset("subjectivity", ("subjectivity",), shape="sentences", rows={"all": 10_000}),
    # Maas et al. 2011: a folder of reviews, one per file, and the hub's tables.
    Dataset("imdb", ("imdb", "aclimdb"), shape="documents", rows=_rows(25_000, 0, 25_000)),
    Dataset("imdb-table", ("imdb", "aclimdb"), "text", classes=TONES, rows=_rows(25_000, 0, 25_000)),
    # Zhang et al. 2015.
    Dataset("yelp-polarity", ("yelpreviewpolaritycsv", "yelpreviewpolarity", "yelppolarity"), "text", label="class",
            titles=("class", "text"), hub={"class": "label"}, classes={"1": "negative", "2": "positive"}, hub_classes=TONES,
            newlines="escaped", rows=_rows(560_000, 0, 38_000)),
    Dataset("yelp-full", ("yelpreviewfullcsv", "yelpreviewfull", "yelpfull"), "text", label="class", titles=("class", "text"),
            hub={"class": "label"}, classes=STARS, newlines="escaped", rows=_rows(650_000, 0, 50_000),
            hub_classes={str(number): name for number, name in enumerate(STARS.values())}),
    # Rosenthal et al. 2017, subtask A: the files of several years.
    Dataset("semeval-2017-4a", ("semeval2017", "semeval20174a", "semeval2017task4", "twitter"), "text", id="id",
            titles=("id", "label", "text"), classes={name: name for name in ("negative", "neutral", "positive")},
            metrics=("macro_recall", "accuracy")),
    # Socher et al. 2013, with five classes: parsed sentences, and a table of sentences.
    Dataset("sst5", ("sst5", "trees"), shape="sentence-trees", rows=_rows(8_544, 1_101, 2_210)),
    Dataset("sst5-table", ("sst5",), "sentence", titles=("label", "sentence"), hub={"sentence": "text"}, classes=GRADES,
            rows=_rows(8_544, 1_101, 2_210)),
)
# fmt: on

BY_NAME = {dataset.name: dataset for dataset in DATASETS}


def of_table(path: Path, names: Sequence[str], first_row: Sequence[str]) -> Dataset | None:
    """The data set that a table belongs to, by its columns and the names of the file and its folders.

    `first_row` holds the fields of the first line of a delimited table, and is empty for others.
    """
    tables = [dataset for dataset in DATASETS if dataset.shape == "table"]
    if marked := [each for each in tables if each.marks and {*each.needed, *each.marks} <= set(names)]:
        return marked[0]
    # The longest name first: AX-g before AX.
    lengths = {dataset.name: _length_of_name(path, dataset) for dataset in tables}
    inside = sorted((each for each in tables if lengths[each.name]), key=lambda each: -lengths[each.name])
    fitting = [layout for each in inside if (layout := each.fitting(names))]
    return next(iter(fitting or [each for each in inside if lacks_header(each, first_row)]), None)


def lacks_header(dataset: Dataset, first_row: Sequence[str]) -> bool:
    """Whether the first row of a file of this set is data: it has the right width and a known label."""
    titles = dataset.titles
    return bool(titles) and len(first_row) == len(titles) and first_row[titles.index(dataset.label)] in dataset.classes


def _length_of_name(path: Path, dataset: Dataset) -> int:
    """The length of the longest name of the data set that the file, or one of the two folders around it, has."""
    if path == STANDARD:
        return 0
    whole = path.resolve()
    words = [word for word in re.split(r"[^a-z0-9]+", whole.name.lower()) if word]
    names = {"".join(words[:count]) for count in range(1, len(words) + 1)}
    names |= {re.sub(r"[^a-z0-9]", "", folder.name.lower()) for folder in whole.parents[:2]}
    return max((len(name) for name in dataset.folders if name in names), default=0)


def split_of(path: Path) -> str | None:
    """The split that the name of a file, or else of its folder, stands for; of a RACE file, that of the folder above."""
    if path == STANDARD:
        return None
    whole = path.resolve()
    folder = whole.parents[1] if whole.parent.name in RACE_FOLDERS else whole.parent
    return in_name(path) or named(folder.name)


def part_of(path: Path, split: str | None) -> str:
    """The part of a data set that a file holds: its split, and for MNLI the kind of genres; `all` without a split."""
    kind = re.search(r"(mis)?matched", path.name.lower())
    return "all" if split is None else f"{split}_{kind[0]}" if kind else split
