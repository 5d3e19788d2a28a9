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
RACE_FOLDERS = ("high", "middle")
"""The folders of RACE's files, one per level of school, in the folder of each split."""
YES_NO = {"false": False, "true": True, "0": False, "1": True}
GRADES = {"0": "very negative", "1": "negative", "2": "neutral", "3": "positive", "4": "very positive"}
STARS = {"1": "1 star", **{str(stars): f"{stars} stars" for stars in range(2, 6)}}

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
    shape: Shape = "table"
    text: str = ""
    pair: tuple[str, ...] = ()
    """The column with the second text of a pair, or the columns with the choices that answer the text."""
    label: str = ""
    id: str = ""
    split: str = ""
    """The column that names the split, if one file holds several."""
    kept: tuple[str, ...] = ()
    """Columns that become metadata of the tree."""
    titles: tuple[str, ...] = ()
    """The names of the columns of files that do not name them."""
    hub: Mapping[str, str] = field(default_factory=dict)
    """A column -> its name in the set's tables on the Hugging Face hub, for columns with another name there."""
    marks: tuple[str, ...] = ()
    """Columns that together identify the set in any folder."""
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
        hub = {ours: self.hub.get(ours, ours) for ours in (self.text, *self.pair, self.label)}
        on_hub = replace(
            self,
            text=hub[self.text],
            pair=tuple(hub[name] for name in self.pair),
            label=hub[self.label],
            id="idx",
            marks=(),
            classes=self.hub_classes or self.classes,
            newlines="plain",
        )
        layouts = [layout for layout in (self, on_hub) if all(name in names for name in layout.needed)]
        return next((layout for layout in layouts if layout.label in names), next(iter(layouts), None))


def _counts(train: int = 0, dev: int = 0, test: int = 0, **more: int) -> dict[str, int]:
    return {name: rows for name, rows in {"train": train, "dev": dev, "test": test, **more}.items() if rows}


# fmt: off
DATASETS = (
    # GLUE, Wang et al. 2018.
    Dataset(
        "cola", ("cola",), text="sentence", label="label", titles=("source", "label", "mark", "sentence"), kept=("source",),
        classes={"0": "unacceptable", "1": "acceptable"}, rows=_counts(8_551, 1_043, 1_063),
        metrics=("matthews", "accuracy"),
    ),
    Dataset(
        "sst2", ("sst2",), text="sentence", label="label",
        classes={"0": "negative", "1": "positive"}, rows=_counts(67_349, 872, 1_821),
    ),
    Dataset(
        "mrpc", ("mrpc", "msrparaphrase"), text="#1 String", pair=("#2 String",), label="Quality",
        hub={"#1 String": "sentence1", "#2 String": "sentence2", "Quality": "label"},
        marks=("#1 String", "#2 String"), classes={"0": "not_equivalent", "1": "equivalent"}, rows=_counts(3_668, 408, 1_725),
        metrics=("f1", "accuracy"), positive="equivalent",
    ),
    Dataset(
        "qqp", ("qqp",), text="question1", pair=("question2",), label="is_duplicate",
        marks=("question1", "question2", "is_duplicate"), hub={"is_duplicate": "label"},
        classes={"0": "not_duplicate", "1": "duplicate"}, rows=_counts(363_846, 40_430, 390_965),
        metrics=("f1", "accuracy"), positive="duplicate",
    ),
    Dataset(
        "stsb", ("stsb",), text="sentence1", pair=("sentence2",), label="score", id="index", kept=("genre",), is_number=True,
        hub={"score": "label"}, rows=_counts(5_749, 1_500, 1_379),
        metrics=("pearson", "spearman"),
    ),
    Dataset(
        "mnli", ("mnli", "multinli"), text="sentence1", pair=("sentence2",), label="gold_label", id="pairID", kept=("genre",),
        marks=("sentence1", "sentence2", "genre", "pairID"), classes=ENTAILMENT, unlabelled=("-", "-1", "hidden"),
        hub={"sentence1": "premise", "sentence2": "hypothesis", "gold_label": "label"},
        kinds=("premise", "hypothesis"),
        rows=_counts(392_702, dev_matched=9_815, dev_mismatched=9_832, test_matched=9_796, test_mismatched=9_847),
    ),
    Dataset(
        "qnli", ("qnli",), text="question", pair=("sentence",), label="label", id="index", kinds=("question", "sentence"),
        classes=TWO_WAY, rows=_counts(104_743, 5_463, 5_463),
    ),
    Dataset(
        "rte", ("rte",), text="sentence1", pair=("sentence2",), label="label", id="index", kinds=("premise", "hypothesis"),
        classes=TWO_WAY, rows=_counts(2_490, 277, 3_000),
    ),
    Dataset(
        "wnli", ("wnli",), text="sentence1", pair=("sentence2",), label="label", id="index", kinds=("premise", "hypothesis"),
        classes={"0": "not_entailment", "1": "entailment"}, rows=_counts(635, 71, 146),
    ),
    Dataset(
        "ax", ("ax", "diagnostic"), text="sentence1", pair=("sentence2",), label="label", id="index",
        hub={"sentence1": "premise", "sentence2": "hypothesis"}, kinds=("premise", "hypothesis"), classes=ENTAILMENT,
        rows=_counts(test=1_104),
        metrics=("matthews",),
    ),
    # SuperGLUE, Wang et al. 2019.
    Dataset(
        "boolq", ("boolq",), text="passage", pair=("question",), label="label", id="idx", kinds=("passage", "question"),
        classes=YES_NO, rows=_counts(9_427, 3_270, 3_245),
    ),
    Dataset(
        "cb", ("cb", "commitmentbank"), text="premise", pair=("hypothesis",), label="label", id="idx",
        kinds=("premise", "hypothesis"), classes={"0": "entailment", "1": "contradiction", "2": "neutral"},
        rows=_counts(250, 56, 250),
        metrics=("accuracy", "macro_f1"),
    ),
    Dataset(
        "copa", ("copa",), text="premise", pair=("choice1", "choice2"), label="label", id="idx", kept=("question",),
        marks=("premise", "choice1", "choice2"), kinds=("premise", "choice"), rows=_counts(400, 100, 500),
    ),
    Dataset(
        "multirc", ("multirc",), "multirc", rows=_counts(27_243, 4_848, 9_693), metrics=("f1", "exact_match"),
        positive="true", groups="parent",
    ),
    Dataset("record", ("record",), "record", rows=_counts(100_730, 10_000, 10_000), metrics=("f1", "exact_match")),
    Dataset(
        "rte-superglue", ("rte",), text="premise", pair=("hypothesis",), label="label", id="idx",
        kinds=("premise", "hypothesis"), classes=TWO_WAY, rows=_counts(2_490, 277, 3_000),
    ),
    Dataset(
        "wic", ("wic",), text="sentence1", pair=("sentence2",), label="label", id="idx",
        kept=("word", "start1", "end1", "start2", "end2"), marks=("word", "sentence1", "sentence2", "start1", "start2"),
        classes=YES_NO, rows=_counts(5_428, 638, 1_400),
    ),
    Dataset("wsc", ("wsc",), "wsc", classes=YES_NO, rows=_counts(554, 104, 146)),
    Dataset(
        "ax-b", ("axb",), text="sentence1", pair=("sentence2",), label="label", id="idx", kept=("logic",),
        kinds=("premise", "hypothesis"), classes=TWO_WAY, rows=_counts(test=1_104),
        metrics=("matthews",),
    ),
    Dataset(
        "ax-g", ("axg",), text="premise", pair=("hypothesis",), label="label", id="idx", kept=("pair_id",),
        kinds=("premise", "hypothesis"), classes=TWO_WAY, rows=_counts(test=356),
        metrics=("accuracy", "parity"), groups="pair_id",
    ),
    # Bowman et al. 2015: as published, and as bare pairs.
    Dataset(
        "snli", ("snli",), text="sentence1", pair=("sentence2",), label="gold_label", id="pairID",
        marks=("gold_label", "sentence1", "sentence2", "captionID"), kinds=("premise", "hypothesis"), classes=ENTAILMENT,
        hub={"sentence1": "premise", "sentence2": "hypothesis", "gold_label": "label"},
        unlabelled=("-", "-1"), rows=_counts(550_152, 10_000, 10_000),
    ),
    Dataset(
        "snli-pairs", ("snli",), text="premise", pair=("hypothesis",), label="label",
        titles=("premise", "hypothesis", "label"), kinds=("premise", "hypothesis"), classes=ENTAILMENT,
    ),
    # Marelli et al. 2014: the files of the SemEval task, and the whole set in one file.
    Dataset(
        "sick", ("sick",), text="sentence_A", pair=("sentence_B",), label="entailment_judgment", id="pair_ID",
        kept=("relatedness_score",), marks=("sentence_A", "sentence_B", "relatedness_score", "entailment_judgment"),
        rows=_counts(4_500, 500, 4_927),
    ),
    Dataset(
        "sick-all", ("sick",), text="sentence_A", pair=("sentence_B",), label="entailment_label", id="pair_ID",
        split="SemEval_set", kept=("relatedness_score",), marks=("sentence_A", "sentence_B", "entailment_label"),
        rows=_counts(4_500, 500, 4_927),
    ),
    # Zellers et al. 2018, with the beginning of the endings in a column of its own; Lai et al. 2017.
    Dataset(
        "swag", ("swag",), text="sent1", pair=("ending0", "ending1", "ending2", "ending3"), label="label", kept=("sent2",),
        marks=("sent1", "sent2", "ending0", "ending3"), kinds=("context", "choice"), rows=_counts(73_546, 20_006, 20_005),
    ),
    Dataset("race", ("race",), "race", rows=_counts(87_866, 4_887, 4_934)),
    # Rajpurkar et al. 2016 and 2018.
    Dataset("squad", ("squad",), "squad", rows=_counts(87_599, 10_570), metrics=("f1", "exact_match")),
    Dataset("squad2", ("squad2",), "squad", rows=_counts(130_319, 11_873), metrics=("f1", "exact_match")),
    Dataset("squad-lines", ("squad",), "squad-lines", metrics=("f1", "exact_match")),
    # Pang and Lee 2004 and 2005.
    Dataset("movie-reviews", ("moviereviews",), "documents", rows={"all": 2_000}),
    Dataset("sentence-polarity", ("sentencepolarity",), "sentences", rows={"all": 10_662}),
    Dataset("subjectivity", ("subjectivity",), "sentences", rows={"all": 10_000}),
    # Maas et al. 2011: a folder of reviews, one per file, and the hub's tables.
    Dataset("imdb", ("imdb", "aclimdb"), "documents", rows=_counts(25_000, 0, 25_000)),
    Dataset(
        "imdb-table", ("imdb", "aclimdb"), text="text", label="label", classes={"0": "negative", "1": "positive"},
        rows=_counts(25_000, 0, 25_000),
    ),
    # Zhang et al. 2015.
    Dataset(
        "yelp-polarity", ("yelpreviewpolaritycsv", "yelpreviewpolarity", "yelppolarity"), text="text", label="class",
        titles=("class", "text"), hub={"class": "label"}, classes={"1": "negative", "2": "positive"},
        hub_classes={"0": "negative", "1": "positive"}, newlines="escaped", rows=_counts(560_000, 0, 38_000),
    ),
    Dataset(
        "yelp-full", ("yelpreviewfullcsv", "yelpreviewfull", "yelpfull"), text="text", label="class",
        titles=("class", "text"), hub={"class": "label"}, classes=STARS,
        hub_classes={str(number): name for number, name in enumerate(STARS.values())}, newlines="escaped",
        rows=_counts(650_000, 0, 50_000),
    ),
    # Rosenthal et al. 2017, subtask A: the files of several years.
    Dataset(
        "semeval-2017-4a", ("semeval2017", "semeval20174a", "semeval2017task4", "twitter"), text="text", label="label", id="id",
        titles=("id", "label", "text"), classes={name: name for name in ("negative", "neutral", "positive")},
        metrics=("macro_recall", "accuracy"),
    ),
    # Socher et al. 2013, with five classes: parsed sentences, and a table of sentences.
    Dataset("sst5", ("sst5", "trees"), "sentence-trees", rows=_counts(8_544, 1_101, 2_210)),
    Dataset(
        "sst5-table", ("sst5",), text="sentence", label="label", titles=("label", "sentence"), hub={"sentence": "text"},
        classes=GRADES, rows=_counts(8_544, 1_101, 2_210),
    ),
)
# fmt: on

BY_NAME = {dataset.name: dataset for dataset in DATASETS}


def of_table(path: Path, names: Sequence[str], first_row: Sequence[str]) -> Dataset | None:
    """The data set that a table belongs to, by its columns and the names of the file and its folders.

    `first_row` holds the fields of the first line of a delimited table, and is empty for others.
    """
    tables = [dataset for dataset in DATASETS if dataset.shape == "table"]
    # The longest name first: AX-g before AX.
    inside = sorted((dataset for dataset in tables if _name_in(path, dataset)), key=lambda each: -len(_name_in(path, each)))
    for dataset in tables:
        if dataset.marks and {*dataset.needed, *dataset.marks} <= set(names):
            return dataset
    for dataset in inside:
        if fitting := dataset.fitting(names):
            return fitting
    return next((dataset for dataset in inside if lacks_header(dataset, first_row)), None)


def lacks_header(dataset: Dataset, first_row: Sequence[str]) -> bool:
    """Whether the first row of a file of this set is data: it has the right width and a known label."""
    if len(first_row) != len(dataset.titles):
        return False
    return bool(dataset.titles) and first_row[dataset.titles.index(dataset.label)] in dataset.classes


def _name_in(path: Path, dataset: Dataset) -> str:
    """The longest name of the data set that the file, or one of the two folders around it, has; "" without one."""
    if path == STANDARD:
        return ""
    whole = path.resolve()
    words = [word for word in re.split(r"[^a-z0-9]+", whole.name.lower()) if word]
    names = {"".join(words[:count]) for count in range(1, len(words) + 1)}
    names |= {re.sub(r"[^a-z0-9]", "", folder.name.lower()) for folder in list(whole.parents)[:2]}
    return max((name for name in dataset.folders if name in names), key=len, default="")


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
