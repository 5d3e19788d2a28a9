"""Questions about passages, as they are read from a store."""

from dataclasses import replace

import numpy as np
import pytest

import ramify
from ramify.dataset.questions import Questions, read_questions
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.tree import Node, Tree


def tree(passage: str, *questions: tuple[str, object]) -> Tree:
    nodes = [Node(passage, id="p", kind="paragraph")]
    nodes += [Node(text, (0,), id=f"q{n}", kind="question", label=label) for n, (text, label) in enumerate(questions)]
    return Tree(tuple(nodes), f"t{passage}")


def answers(*found: tuple[str, int], impossible: bool = False) -> dict[str, object]:
    return {"texts": [text for text, _ in found], "starts": [start for _, start in found], "is_impossible": impossible}


def test_first_found_answers_are_learned_and_all_others_counted() -> None:
    store = Store.from_trees(
        [
            tree(
                "Rome is old.",
                ("Where?", answers(("Rome", 3), ("Rome", 0), ("old", 8))),
                ("Why?", answers(("because", 0))),
                ("When?", answers(impossible=True)),
                (" ", answers(("Rome", 0))),
                ("Secret?", None),
                ("Nothing?", answers((" ", 4))),
            ),
            tree("", ("Who?", answers(impossible=True))),
        ]
    )
    read = read_questions(store, "all")
    assert read.texts == ["Where?", "Why?", "When?", " ", "Nothing?", "Who?"]
    assert [read.passages[place] for place in read.passage] == ["Rome is old."] * 5 + [""]
    assert read.gold == [("Rome", "Rome", "old"), ("because",), (), ("Rome",), (" ",), ()]
    assert read.spans[read.has_span].tolist() == [[0, 4], [0, 4]]
    assert read.learnable.tolist() == [True, False, True, False, False, False]
    counts = read.counts
    assert (counts.questions, counts.passages, counts.impossible, counts.unlabelled) == (6, 2, 2, 1)
    assert (counts.empty, counts.moved) == (2, 3)
    assert counts.notes() == [
        "1 question without a label left out",
        "2 questions without words, or about an empty passage, left out of training",
        "3 answers not found in the passage left out of training",
    ]
    even = replace(counts, unlabelled=1, empty=1, moved=1)
    assert len(even.notes()) == 3
    assert store.texts(read.nodes) == list(read.texts)


def test_answers_that_a_label_gives_to_an_impossible_question_do_not_count() -> None:
    label = answers(("Rome", 0), impossible=True)
    read = read_questions(Store.from_trees([tree("Rome", ("Where?", label))]), "all")
    assert (read.gold, read.learnable.tolist()) == ([()], [True])


@pytest.mark.parametrize(
    "label",
    [
        "positive",
        {"texts": ["a"]},
        {"texts": "a", "starts": [0]},
        {"texts": ["a"], "starts": ["0"]},
        {"texts": ["a"], "starts": []},
    ],
)
def test_labels_of_another_form_are_refused(label: object) -> None:
    with pytest.raises(RamifyError, match=r"node 'q0': the label .* does not hold answers"):
        read_questions(Store.from_trees([tree("a", ("Where?", label))]), "all")


def test_a_split_without_questions_is_refused() -> None:
    with pytest.raises(RamifyError, match="no question with an answer in the split 'all'"):
        read_questions(Store.from_trees([tree("Rome", ("Where?", None))]), "all")


def test_questions_without_gold_share_passages() -> None:
    asked = Questions.about(["a?", "b?", "c?"], ["x", "y", "x"])
    assert (asked.passages, asked.passage.tolist()) == (["x", "y"], [0, 1, 0])
    some = asked.select(np.array([2, 0]))
    assert (some.texts, some.passage.tolist(), some.nodes.tolist()) == (["c?", "a?"], [0, 0], [2, 0])


def test_squad_files_are_read_through_the_store(tmp_path) -> None:
    file = tmp_path / "train.json"
    file.write_text(
        '{"version": "v2.0", "data": [{"title": "T", "paragraphs": [{"context": "Rome is old.", "qas": ['
        '{"id": "1", "question": "Where?", "answers": [{"text": "Rome", "answer_start": 0}], "is_impossible": false},'
        '{"id": "2", "question": "Who?", "answers": [], "plausible_answers": [{"text": "old", "answer_start": 8}],'
        ' "is_impossible": true}]}]}]}'
    )
    ramify.build([file], "labelled", tmp_path / "data")
    read = read_questions(Store.open(tmp_path / "data"), "all")
    assert (list(read.texts), read.gold, read.counts.impossible) == (["Where?", "Who?"], [("Rome",), ()], 1)
