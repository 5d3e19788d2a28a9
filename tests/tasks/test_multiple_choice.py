"""Questions with choices: what a row of each published set holds, the softmax over a question's choices, and runs."""

import csv
import json
import math
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import ramify
from fixtures import WORDS, tokenizer
from fixtures.choices import COPA, RACE, built, copa, race, swag
from fixtures.commands import call, refusal
from ramify import hub
from ramify.batching.choice_batch import ChoiceCollator
from ramify.batching.views.choices import ChoiceExample, ChoiceInput, row_texts
from ramify.dataset.choices import ChoiceSets, choice_sets, labelled_choices
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.inference import label_files
from ramify.inference.choose import Chooser, choice_scores, view_of
from ramify.metrics.choices import ChoicePredictions
from ramify.models.bert import BertConfig
from ramify.tasks.multiple_choice import MultipleChoice, MultipleChoiceConfig, rows_of
from ramify.training.config import TrainConfig
from ramify.training.stage import Stage
from ramify.training.trainer import Trainer
from ramify.tree import Node, Tree


def texts_of(store, question="connective"):
    sets = labelled_choices(store, "train").sets
    return [list(zip(*rows, strict=True)) for rows in zip(*row_texts(store, sets, question), strict=True)]


def test_copa_asks_for_a_cause_or_an_effect(tmp_path):
    store = built(copa(tmp_path / "COPA"), tmp_path / "data")
    labelled = labelled_choices(store, "train")
    assert (len(labelled.sets), labelled.unlabelled, labelled.unclear) == (12, 0, 0)
    rows = {first: [second for _, second in row] for row in texts_of(store) for first in [row[0][0]]}
    assert rows["My body cast a shadow. 0"] == ["because The sun rose.", "because The grass was cut."]
    assert rows["The man woke up. 1"] == ["so He slept.", "so He went to work."]
    asked = {first: [second for _, second in row] for row in texts_of(store, "text") for first in [row[0][0]]}
    assert asked["The man woke up. 1"][1] == "What happened as a result? He went to work."
    assert asked["My body cast a shadow. 0"][0] == "What was the cause of this? The sun rose."
    first = store.texts(labelled.sets.questions)
    assert [int(text.split()[-1]) % 2 for text in first] == labelled.right.tolist()


def test_swag_endings_begin_alike(tmp_path):
    store = built(swag(tmp_path / "swag"), tmp_path / "data")
    rows = {row[0][0]: [second for _, second in row] for row in texts_of(store)}
    assert rows["Someone sits alone."] == ["He reads, quietly.", "He flies.", "He sinks.", "He burns."]
    assert rows["A dog runs."] == ["It sings.", "It barks.", "It melts.", "It votes."]
    labelled = labelled_choices(store, "train")
    right = dict(zip(store.texts(labelled.sets.questions), labelled.right.tolist(), strict=True))
    assert right == {"Someone sits alone.": 0, "A dog runs.": 1}


def test_race_options_stand_in_the_gap_or_behind_the_question(tmp_path):
    store = built(race(tmp_path / "RACE"), tmp_path / "data")
    assert [len(store.split(split)) for split in ("train", "dev", "test")] == [2, 2, 0]
    labelled = labelled_choices(store, "train")
    assert labelled.right.tolist() == [1, 0] * 2
    gap, asked = texts_of(store)[:2]
    assert [second for _, second in gap] == [f"Tom has {count} apples." for count in ("two", "three", "four", "five")]
    assert [second for _, second in asked] == [f"What does he own? {what}" for what in ("a cat", "a dog", "an ox", "a hen")]
    assert {first for first, _ in (*gap, *asked)} <= {
        f"Tom has three apples and a cat. It is train in {level} school." for level in ("high", "middle")
    }


def test_a_gap_is_filled_however_long_it_is():
    asked = {"is ____ here, and _?": "is an ox here, and _?", "about_.": "aboutan ox.", "what?": "what? an ox"}
    for question, expected in asked.items():
        nodes = (Node("p", parents=()), Node(question, parents=(0,)), *(Node(text, parents=(1,)) for text in ("an ox", "us")))
        store = Store.from_trees([Tree(nodes)])
        _, ((second, _),) = row_texts(store, choice_sets(store, np.arange(4)), "connective")
        assert second == expected


def test_questions_of_several_trees_have_distinct_ids():
    trees = [replace(tree("aa", ["ba", "be"]), id=name) for name in ("t1", "t2")]
    nodes = [replace(each, nodes=(replace(each.nodes[0], id="q"), *each.nodes[1:])) for each in trees]
    assert [answer.id for answer in chooser().predict(nodes)] == ["t1/q", "t2/q"]
    assert [answer.id for answer in chooser().predict(nodes[:1])] == ["q"]


@pytest.mark.parametrize("mode", ["finetune", "features"])
def test_fine_tuning_starts_from_features_and_the_other_way_round(mode):
    old, new = (chooser(mode=each).task for each in (mode, "features" if mode == "finetune" else "finetune"))
    hub.start_from(new, hub.own_tensors(old), "old")
    assert torch.equal(new.output.weight, old.output.weight)


def test_damaged_race_files_are_counted(tmp_path):
    (tmp_path / "RACE/train/high").mkdir(parents=True)
    entries = [
        {
            "article": "A b.",
            "questions": ["Q?", "R?", 7],
            "options": [["a", "b"], ["c"], ["d", "e"]],
            "answers": ["C", "A", "A"],
        },
        {"article": "C d.", "questions": ["Q?"], "options": [["a", "b"]], "answers": ["A"]},
        {"article": 3, "questions": [], "options": []},
    ]
    for number, entry in enumerate(entries):
        (tmp_path / f"RACE/train/high/{number}.txt").write_text(json.dumps(entry), "utf-8")
    shown = call("data", "build", tmp_path / "RACE", "--format", "labelled", "--out", tmp_path / "data").stdout
    assert "not_a_post 4" in shown
    store = Store.open(tmp_path / "data")
    assert len(labelled_choices(store, "train").sets) == 1


def tree(question, choices, right=None):
    labels = [None if right is None else number in np.atleast_1d(right) for number in range(len(choices))]
    nodes = [Node(text, parents=(0,), label=label) for text, label in zip(choices, labels, strict=True)]
    return Tree((Node(question, parents=(), id=question), *nodes), question)


def test_only_questions_with_one_right_choice_are_read():
    trees = [
        tree("q", ["a", "b", "c"], 2),
        tree("several", ["a", "b"], [0, 1]),
        tree("none", ["a", "b"], []),
        tree("unlabelled", ["a", "b"]),
        Tree((Node("lone", parents=()), Node("reply", parents=(0,), label=True))),
        Tree((Node("passage", parents=()), *(Node("x", parents=(0,)) for _ in range(2)), Node("y", parents=(1,)))),
    ]
    found = labelled_choices(Store.from_trees(trees), "all")
    assert (len(found.sets), found.right.tolist(), found.unlabelled, found.unclear) == (1, [2], 1, 2)
    with pytest.raises(RamifyError, match=r"the label 'x' is neither true nor false, so the texts are no choices"):
        labelled_choices(Store.from_trees([Tree((Node("a", parents=(), label="x"),))]), "all")
    with pytest.raises(RamifyError, match=r"1 question with choices, and none has exactly one right choice"):
        labelled_choices(Store.from_trees(trees[1:2]), "all")


def chooser(dtype=torch.float64, **settings):
    torch.manual_seed(0)
    words = tokenizer()
    model = BertConfig(words.vocab_size, dim=16, num_layers=1, num_heads=2, ffn_dim=16, max_tokens=32, dropout=0.0)
    task = MultipleChoice(model.build(), words, ChoiceInput(32), MultipleChoiceConfig(dropout=0.0, choices=4, **settings))
    with torch.no_grad():
        for parameter in task.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return Chooser(task.to(dtype).eval())


def questions(count=9, seed=0):
    random = np.random.default_rng(seed)

    def text(size):
        return " ".join(random.choice(WORDS, size=size))

    return [
        tree(text(1 + number % 7), [text(1 + place + number % 3) for place in range(2 + number % 3)], number % 2)
        for number in range(count)
    ]


def view(model, trees, right=True):
    store = Store.from_trees(trees)
    if right:
        labelled = labelled_choices(store, "all")
        return view_of(model.task, store, labelled.sets, labelled.right)
    return view_of(model.task, store, choice_sets(store, np.arange(store.num_nodes)), None)


@pytest.mark.parametrize("mode", ["finetune", "features"])
def test_scores_are_those_of_each_choice_alone(mode):
    """Questions have different numbers of choices, in rows sorted by length. The loss is that of a softmax over each."""
    model = chooser(mode=mode)
    task, trees = model.task, questions()
    examples = view(model, trees)
    batch = ChoiceCollator.of(examples)([examples.example(number) for number in range(len(examples))])
    table = task.scores(batch)
    loss = 0.0
    for number, each in enumerate(trees):
        rows = []
        for node in each.nodes[1:]:
            # A row of one choice: a pair of texts.
            ids = [task.tokenizer.encode(text) for text in (each.nodes[0].text, node.text)]
            alone = ChoiceCollator.of(examples)([ChoiceExample([np.array(ids[0])], [np.array(ids[1])], None)])
            rows.append(float(task.output(task.row_vectors(alone)).detach()))
        found = table[number, : len(rows)]
        assert found.tolist() == pytest.approx(rows, abs=1e-10)
        assert torch.isneginf(table[number, len(rows) :]).all()
        loss += math.log(sum(map(math.exp, rows))) - rows[number % 2]
    assert float(task.loss(table, batch)) == pytest.approx(loss, abs=1e-9)
    assert task.counts(batch, "main") == {"choice": 9.0}
    assert batch.num_targets == sum(examples.sizes)


def test_a_choice_beside_others_has_no_effect_on_their_rows():
    model = chooser()
    one = choice_scores(model.task, view(model, [tree("aa ab", ["ba", "be bi"], 0)]))[0]
    more = choice_scores(model.task, view(model, [tree("aa ab", ["ba", "be bi", "ca co cu"], 0)]))[0]
    np.testing.assert_allclose(more[:2], one, rtol=0, atol=1e-12)


def test_long_texts_are_cut_and_counted():
    model = chooser()
    long = tree(" ".join(WORDS[:40]), ["aa ab", " ".join(WORDS[:50])], 0)
    examples = view(model, [long, tree("aa", ["ab", "ba"], 1)])
    batch = ChoiceCollator.of(examples)([examples.example(0), examples.example(1)])
    assert batch.input.rows.max_length == 32
    assert (examples.counts.questions, examples.counts.choices, examples.counts.cut) == (2, 4, 2)
    assert examples.costs.tolist() == [64, int(batch.input.rows.host_lengths.sum()) - 64]


def test_predictions_name_the_choices(near):
    model = chooser()
    answers = model.predict([("aa ab", ["ba", "be bi", "ba"]), ("co", ["cu", "da"])])
    assert [answer.id for answer in answers] == ["0", "1"]
    first = answers[0]
    assert list(first.probabilities) == ["ba", "be bi", "ba (2)"]
    assert sum(first.probabilities.values()) == pytest.approx(1)
    near(first.probabilities["ba"], first.probabilities["ba (2)"])
    assert first.label == max(first.probabilities, key=first.probabilities.get)
    assert first.to_json().keys() == {"id", "label", "probabilities"}
    near(model.predict(("aa ab", ["ba", "be bi", "ba"])), first)
    # A tree may have a passage above its questions.
    passage = Tree(
        (
            Node("aa ab ac", parents=(), id="p"),
            Node("is it _ ?", parents=(0,), id="q"),
            *(Node(text, parents=(1,)) for text in ("ba", "be")),
        )
    )
    (answer,) = model.predict(passage)
    assert answer.id == "q"
    assert list(answer.probabilities) == ["ba", "be"]
    begun = replace(tree("aa", ["ba", "be"]), meta={"sent2": "co"})
    (answer,), (other,) = model.predict(begun), model.predict(tree("aa", ["co ba", "co be"]))
    assert [*answer.probabilities] == ["ba", "be"]
    near([*answer.probabilities.values()], [*other.probabilities.values()])


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("a text", r"predict needs a text and its choices, but str 'a text' is given\. Pass \(text"),
        (("a text", "choice"), r"predict needs a text and its choices, but tuple"),
        (("a text", ["one", 2]), r"the choices of 'a text' must be a list of texts, but are \['one', 2\]"),
        (("a text", ["one"]), r"the text 'a text' has fewer than two choices"),
        (Tree((Node("a", parents=(), id="t"),)), r"tree 0 has no question, which is a node with two or more choices"),
        ([Tree((Node("a", parents=()),), id="t9")], r"tree 't9' has no question"),
    ],
)
def test_items_without_choices_are_refused(item, message):
    with pytest.raises(RamifyError, match=message):
        chooser().predict(item)


def test_the_floor_is_the_place_that_is_right_most_often():
    task = chooser().task
    task.fit(np.array([2, 2, 1, 0, 1, 2]))
    assert task.majority(np.array([4, 3, 2])).tolist() == [2, 2, 1]


def test_scores_stand_beside_chance():
    found = ChoicePredictions(np.array([0, 1, 2, 1]), np.array([0, 1, 1, 0]), np.array([2, 4, 4, 2]))
    assert found.scores() == {"accuracy": 0.5, "chance": (1 / 2 + 1 / 4 + 1 / 4 + 1 / 2) / 4}
    assert found.take(np.array([1, 1, 2])).scores() == {"accuracy": pytest.approx(2 / 3), "chance": 0.25}
    interval = found.interval("accuracy", resamples=200)
    assert interval.low < 0.5 < interval.high


def test_choosing_is_learned_and_resumes_to_the_bit(tmp_path):
    """The right choice holds a word of the question."""
    random = np.random.default_rng(1)

    def example(number):
        word, *others = random.choice(WORDS[:12], size=3, replace=False).tolist()
        right = number % 3
        choices = [word if place == right else others[place > right] for place in range(3)]
        return tree(word, choices, right)

    trees = [example(number) for number in range(60)]
    config = TrainConfig(
        steps=60, budget=60, budget_unit="targets", lr=5e-3, weight_decay=0.0, log_every=1, checkpoint_every=20
    )

    def trainer(out):
        model = chooser(torch.float32)
        data = view(model, trees)
        return model, Trainer(model.task, [Stage(config, data, ChoiceCollator.of(data))], tmp_path / out, seed=0, cpu=True)

    model, straight = trainer("straight")
    straight.run()
    found = choice_scores(model.task, view(model, trees))
    assert np.mean([row.argmax() == number % 3 for number, row in enumerate(found)]) > 0.9
    trainer("killed")[1].run(until=31)
    other, resumed = trainer("killed")
    resumed.run(resume=True)
    assert all(torch.equal(one, two) for one, two in zip(model.task.parameters(), other.task.parameters(), strict=True))


def scores_of(out, store):
    return json.loads(call("evaluate", out, "--data", store.path, "--split", "dev", "--json").stdout)["value"]


def test_the_commands(tmp_path):
    """Train, evaluate, predict and report on COPA's form, with the vectors of a frozen model, too."""
    store = built(copa(tmp_path / "COPA"), tmp_path / "data")
    for mode in ("finetune", "features"):
        out = tmp_path / mode
        call("train", "choose", "--data", store.path, "--model", "cnn", "--mode", mode, "--epochs", 2, "--out", out,
             "--set", "tokenizer.vocab_size=80", "--set", "model.dim=8")  # fmt: skip
        scores = json.loads(call("evaluate", out, "--data", store.path, "--split", "dev", "--json").stdout)
        assert scores.keys() == {"metric", "value", "metrics", "majority", "count", "most_frequent"}
        assert (scores["metric"], scores["count"], scores["metrics"]["chance"], scores["majority"]) == ("accuracy", 6, 0.5, 0.5)
        answers = json.loads(call("predict", out, store.path, "--json").stdout)
        # The questions of the test split have no labels.
        assert len(answers) == 20
        assert all(sum(answer["probabilities"].values()) == pytest.approx(1) for answer in answers)
        model = ramify.load(out)
        assert model.predict(("My body cast a shadow.", ["The sun rose.", "The grass was cut."])).label.startswith("The")
    # All weights of a model that chooses start another one, whatever its number of choices.
    other = built(swag(tmp_path / "swag"), tmp_path / "endings")
    call("train", "choose", "--data", other.path, "--init", tmp_path / "finetune", "--epochs", 1, "--out", tmp_path / "again")
    assert ramify.load(tmp_path / "again").task.places.tolist() == [1, 1, 0, 0]
    record = json.loads((tmp_path / "finetune/run.json").read_text())
    assert record["text"]["questions"] == 12
    assert (record["text"]["unclear"], record["kind"]) == (0, "multiple-choice")
    page = (tmp_path / "finetune/report.html").read_text("utf-8")
    assert "right one of several choices" in page
    assert "of one place, it is 0.500" in page
    assert ("Most wrong" in page) == (scores_of(tmp_path / "finetune", store) < 1)


def test_files_of_questions_need_no_data_set(tmp_path, near):
    """Files and folders in the layouts that `data build` reads, with labels or without."""
    folder = copa(tmp_path / "COPA")
    store, out = built(folder, tmp_path / "data"), tmp_path / "run"
    call("train", "choose", "--data", store.path, "--model", "tfidf", "--out", out,
         "--set", "fit.strengths=[1]", "--set", "fit.ngrams=[1]")  # fmt: skip

    def asked(file):
        found = call("predict", out, file, "--json")
        assert "label" not in found.stderr
        return json.loads(found.stdout)

    def shares(answers):
        return sorted(tuple(answer["probabilities"].items()) for answer in answers)

    near(shares(asked(folder)), shares(asked(store.path)))
    answers = asked(folder / "val.jsonl")
    assert [answer["id"] for answer in answers] == [str(number) for number in range(6)]
    rows = [json.loads(line) for line in (folder / "val.jsonl").read_text().splitlines()]
    unlabelled = tmp_path / "new.jsonl"
    unlabelled.write_text("".join(json.dumps({key: row[key] for key in row if key != "label"}) + "\n" for row in rows))
    near(asked(unlabelled), answers)
    endings = asked(swag(tmp_path / "swag") / "train.csv")
    assert [list(answer["probabilities"]) for answer in endings] == [
        ["reads, quietly.", "flies.", "sinks.", "burns."],
        ["sings.", "barks.", "melts.", "votes."],
    ]
    read = asked(race(tmp_path / "race") / "train" / "high" / "1.txt")
    assert [list(answer["probabilities"]) for answer in read] == RACE["options"]
    assert "is read as a set of questions. Leave it out." in refusal("predict", out, unlabelled, "--column", "text=premise")


@pytest.fixture(scope="module")
def copa_run(tmp_path_factory):
    """A floor that chooses by words, and the folder and the data set that it learned from."""
    place = tmp_path_factory.mktemp("copa")
    store = built(copa(place / "COPA"), place / "data")
    call("train", "choose", "--data", store.path, "--model", "tfidf", "--out", place / "run",
         "--set", "fit.strengths=[1]", "--set", "fit.ngrams=[1]")  # fmt: skip
    return place


def answered(run, file, out):
    """The answers to a file, and the table of them."""
    return json.loads(call("predict", run, file, "--json", "--out", out).stdout), pq.read_table(out).to_pylist()


def test_tables_of_questions_keep_their_columns(copa_run, tmp_path):
    file = copa_run / "COPA/val.jsonl"
    answers, table = answered(copa_run / "run", file, tmp_path / "out.parquet")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [{name: row[name] for name in rows[0]} for row in table] == rows
    for row, answer in zip(table, answers, strict=True):
        assert (row["predicted"], row["probability"]) == (answer["label"], answer["probabilities"][answer["label"]])
        assert row["probabilities"] == [*answer["probabilities"].values()]
    # What a question asks for reaches the model, as in the data set.
    kept = {
        answer["id"]: answer["probabilities"]
        for answer in json.loads(call("predict", copa_run / "run", copa_run / "data", "--json").stdout)
    }
    assert all(answer["probabilities"] == pytest.approx(kept[f"val/{answer['id']}/{answer['id']}"]) for answer in answers)
    endings = swag(tmp_path / "swag") / "train.csv"
    answers, table = answered(copa_run / "run", endings, tmp_path / "endings.parquet")
    assert [answer["id"] for answer in answers] == ["0", "1"]
    assert [(row["video-id"], row["ending0"]) for row in table] == [("v1", "reads, quietly."), ("v2", "sings.")]
    call("predict", copa_run / "run", endings, "--out", tmp_path / "endings.csv")
    with open(tmp_path / "endings.csv", newline="") as stream:
        again = list(csv.DictReader(stream))
    assert [row["startphrase"] for row in again] == ["Someone sits, alone. He", "A dog runs. It"]
    assert [[float(share) for share in row["probabilities"].split(",")] for row in again] == [
        row["probabilities"] for row in table
    ]


def test_ids_of_rows_are_those_of_the_file_in_every_part(copa_run, tmp_path, monkeypatch):
    monkeypatch.setattr(label_files, "PART", 2)
    rows = [COPA[0] | {"idx": number} for number in (7, 7, 8, 7, 9)]
    (tmp_path / "same.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    answers = json.loads(call("predict", copa_run / "run", tmp_path / "same.jsonl", "--json").stdout)
    assert [answer["id"] for answer in answers] == ["7", "7", "8", "7", "9"]


def test_ids_are_distinct_over_all_files_of_a_folder(copa_run, monkeypatch):
    found = {}
    for size in (2, 8192):
        monkeypatch.setattr(label_files, "PART", size)
        found[size] = [
            answer["id"] for answer in json.loads(call("predict", copa_run / "run", copa_run / "COPA", "--json").stdout)
        ]
    assert found[2] == found[8192]
    assert sorted(found[2]) == sorted(set(found[2]))
    stored = json.loads(call("predict", copa_run / "run", copa_run / "data", "--json").stdout)
    assert {*found[2]} == {answer["id"] for answer in stored}


@pytest.mark.parametrize(
    ("name", "content"),
    [("plain.txt", "a line\nanother\n"), ("table.csv", "text,label\na b,good\n"), ("rows.jsonl", '{"text": "a"}\n')],
)
def test_files_in_no_layout_of_questions_are_refused(copa_run, tmp_path, name, content):
    (tmp_path / name).write_text(content)
    for path in (tmp_path / name, tmp_path):
        message = refusal("predict", copa_run / "run", path)
        assert f"{tmp_path / name} is no set of questions: it has none of the layouts" in message
        assert "Name a built data set, trees as JSON lines, or a file or folder in the layout of COPA, SWAG or RACE" in message
        assert "--text" not in message


def test_a_model_that_chooses_reads_no_lone_texts(copa_run, tmp_path):
    assert "- reads lines of text, but the model chooses" in refusal("predict", copa_run / "run", "-")
    assert "--text gives a text without choices, but" in refusal("predict", copa_run / "run", "--text", "It rained.")
    assert "absent.csv" in refusal("predict", copa_run / "run", tmp_path / "absent.csv")


def test_rows_without_room_are_refused():
    model = chooser()
    model.task.input = ChoiceInput(4)
    with pytest.raises(RamifyError, match=r"input\.max_tokens=4 leaves no room for two texts beside 3 special tokens"):
        view(model, questions(1))


def test_rows_of_a_batch_know_their_questions():
    model = chooser()
    examples = view(model, questions(4), right=False)
    batch = ChoiceCollator.of(examples)([examples.example(number) for number in range(4)])
    assert batch.targets is None
    part = rows_of(batch)
    assert part.choices.host_lengths.tolist() == examples.sizes.tolist() == [2, 3, 4, 2]
    assert sorted(part.place.tolist()) == list(range(11))
    owner = np.repeat(np.arange(4), [2, 3, 4, 2])
    assert batch.order.tolist() == owner[part.place.numpy()].tolist()
    assert isinstance(examples.sets, ChoiceSets)
