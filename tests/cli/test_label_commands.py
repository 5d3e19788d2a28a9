"""Commands on labels: build, train, evaluate, and predict for texts, tables and trees."""

import csv
import gzip
import io
import json
import re
import weakref
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ramify
from fixtures import bert_task
from fixtures.commands import call, refusal
from fixtures.labelled import TINY, sentences
from ramify import hub
from ramify.errors import RamifyError
from ramify.inference import label_files
from ramify.inference.fill_mask import MaskFiller
from ramify.inference.label_files import read_label_file
from ramify.inference.label_pipeline import LabelPipeline

SETTINGS = [f"--set={key}={TINY[key]}" for key in ("model.dim", "tokenizer.vocab_size", "input.max_tokens")]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labelled")
    with open(folder / "rows.csv", "w", newline="") as stream:
        writer = csv.DictWriter(stream, ["text", "label", "split", "id"])
        writer.writeheader()
        writer.writerows(sentences(60))
    call("data", "build", folder / "rows.csv", "--format", "labelled", "--out", folder / "data")
    return folder / "data"


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "run"
    result = call("train", "classify", "--data", data, "--model", "bag", "--epochs", 3, "--out", out, *SETTINGS)
    assert "data: 36 labelled texts of up to 16 tokens; bad" in result.stderr
    assert "best dev accuracy" in result.stderr
    assert f"next: ramify evaluate {out} --data {data}" in result.stderr
    return out


@pytest.fixture(scope="module")
def pair_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    rows = [{"text": "ba", "text_pair": word, "label": word} for word in ("aa", "be") for _ in range(20)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row | {"id": str(n)}) + "\n" for n, row in enumerate(rows)))
    call("data", "build", folder / "rows.jsonl", "--format", "labelled", "--out", folder / "data")
    call("train", "classify", "--data", folder / "data", "--model", "bag", "--epochs", 1, "--out", folder / "run", *SETTINGS)
    return folder / "run"


def test_evaluate(run, data):
    found = json.loads(call("evaluate", run, "--data", data, "--split", "dev", "--json").stdout)
    assert [*found] == ["metric", "value", "metrics", "majority", "count", "most_frequent"]
    assert found["count"] == 12
    shown = call("evaluate", run, "--data", data, "--split", "test").stdout
    assert shown.startswith("accuracy ")
    assert "without reading" in shown


def test_a_text(run):
    (answer,) = json.loads(call("predict", run, "--text", "ba aa", "--json").stdout)
    assert [*answer] == ["id", "label", "probabilities"]
    assert answer["probabilities"].keys() == {"bad", "good"}
    assert answer["label"] == max(answer["probabilities"], key=answer["probabilities"].get)
    assert call("predict", run, "--text", "-", "--json", stdin="ba aa\n").stdout == json.dumps([answer]) + "\n"
    assert call("predict", run, "--text", "ba aa").stdout.startswith(f"0: {answer['label']} (")


def test_lines_of_a_file(run, tmp_path):
    file = tmp_path / "texts.txt.gz"
    file.write_bytes(gzip.compress(b"ba aa\n\nhe\n"))
    answers = json.loads(call("predict", run, file, "--json").stdout)
    assert [answer["id"] for answer in answers] == ["0", "1", "2"]
    assert answers == json.loads(call("predict", run, "-", "--json", stdin="ba aa\n\nhe\n").stdout)


ROWS = [
    {"id": "x", "review": 'ba, "aa"', "stars": "5"},
    {"id": "y", "review": "be\nhe", "stars": ""},
    {"id": "z", "review": "", "stars": "1"},
]


@pytest.mark.parametrize(("ending", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_tables_keep_their_columns(run, tmp_path, ending, delimiter):
    file, out = tmp_path / f"rows.{ending}", tmp_path / f"out.{ending}"
    with open(file, "w", newline="") as stream:
        writer = csv.DictWriter(stream, ["id", "review", "stars"], delimiter=delimiter)
        writer.writeheader()
        writer.writerows(ROWS)
    answers = json.loads(call("predict", run, file, "--column", "text=review", "--out", out, "--json").stdout)
    assert [answer["id"] for answer in answers] == ["x", "y", "z"]
    written = [*csv.DictReader(io.StringIO(out.read_text()), delimiter=delimiter)]
    assert [{name: row[name] for name in ROWS[0]} for row in written] == ROWS
    assert [row["predicted"] for row in written] == [answer["label"] for answer in answers]
    assert [float(row["probability_good"]) for row in written] == [answer["probabilities"]["good"] for answer in answers]


def test_json_lines_and_parquet_keep_their_types(run, tmp_path):
    rows = [{"body": "ba", "meta": {"a": [1, 2]}, "number": 1.5}, {"body": None, "meta": None, "number": None}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    call("predict", run, tmp_path / "rows.jsonl", "--column", "text=body", "--out", tmp_path / "out.jsonl")
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [{name: row[name] for name in rows[0]} for row in written] == rows
    table = pa.table({"body": ["ba", None], "when": pa.array([1, 2], pa.timestamp("ns")), "n": pa.array([1, 2], pa.int8())})
    pq.write_table(table, tmp_path / "rows.parquet")
    call("predict", run, tmp_path / "rows.parquet", "--out", tmp_path / "out.parquet")
    after = pq.read_table(tmp_path / "out.parquet")
    assert after.select(["body", "when", "n"]) == table
    assert after.column_names[3:] == ["predicted", "probability_bad", "probability_good"]


def test_rows_without_a_text_are_counted(run, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "ba"}\n{"txet": "ba"}\n{"text": null}\n')
    shown = call("predict", run, file)
    assert "note: 2 rows without a text in 'text', read as empty; the first is row 2" in shown.stderr
    assert len(shown.stdout.splitlines()) == 3


def test_a_class_cannot_steer_the_terminal(tmp_path):
    rows = [row | {"label": f"\x1b[31m{row['label']}"} for row in sentences(20)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    call("data", "build", tmp_path / "rows.jsonl", "--format", "labelled", "--out", tmp_path / "data")
    shown = call("train", "classify", "--data", tmp_path / "data", "--model", "majority", "--out", tmp_path / "run")
    assert "[31mgood" in shown.stderr
    assert re.search(r"fitted, dev accuracy \S+; the model predicts one thing for every dev example\n", shown.stderr)
    assert "\x1b" not in shown.stderr + call("predict", tmp_path / "run", "--text", "ba").stdout


def test_trees_and_data_sets(run, data, tmp_path):
    shown = call("predict", run, data, "--json")
    answers = json.loads(shown.stdout)
    assert re.search(r"note: all splits are predicted \(trees: train \d+, dev 12, test \d+\)", shown.stderr)
    labels = {row["id"]: row["label"] for row in sentences(60)}
    assert {answer["id"]: answer["gold"] for answer in answers} == labels
    found = json.loads(call("evaluate", run, "--data", data, "--split", "dev", "--json").stdout)
    of_dev = json.loads(call("predict", run, data, "--split", "dev", "--json").stdout)
    assert sum(answer["label"] == answer["gold"] for answer in of_dev) == round(found["value"] * 12)
    assert len(of_dev) == 12
    shown = call("predict", run, data, "--split", "dev", "--out", tmp_path / "dev.csv")
    assert "note:" not in shown.stderr
    rows = list(csv.DictReader((tmp_path / "dev.csv").open()))
    assert [row["gold"] for row in rows] == [labels[row["id"]] for row in rows]
    assert re.search(r": \w+ \(.*\), gold: (good|bad)\n", call("predict", run, data, "--split", "dev").stdout)
    (tmp_path / "lines.txt").write_text("ba\n")
    assert "--split dev names a part of a built data set" in refusal("predict", run, tmp_path / "lines.txt", "--split", "dev")
    assert sorted(answer["id"] for answer in answers) == sorted(row["id"] for row in sentences(60))
    tree = {"id": "t", "nodes": [{"text": "ba", "id": "a"}, {"text": "he", "id": "b", "parents": ["a"]}]}
    (tmp_path / "trees.jsonl").write_text(json.dumps(tree) + "\n")
    out = call("predict", run, tmp_path / "trees.jsonl", "--json", "--out", tmp_path / "out.csv").stdout
    assert [answer["id"] for answer in json.loads(out)] == ["a", "b"]
    assert (tmp_path / "out.csv").read_text().startswith("id,predicted,probability_bad,probability_good\na,")


def test_a_model_tells_what_it_is(run):
    model: Any = ramify.load(run)
    assert model.labels == ("bad", "good")
    weights = sum(parameter.numel() for parameter in model.module.parameters())
    kind = type(model.backbone).__name__
    assert repr(model) == (
        f"<Classifier: Classification of {kind}, {weights:,} parameters, {model.tokenizer.vocab_size:,} pieces, "
        "2 labels (bad, good); can predict>"
    )
    shipped: Any = ramify.load("links")
    assert "ReplyLinking of FeatureModel" in repr(shipped)
    with pytest.raises(RamifyError, match="this Disentangler has no labels; it can disentangle, follow"):
        shipped.labels  # noqa: B018


def test_pairs(pair_run, tmp_path):
    (answer,) = json.loads(call("predict", pair_run, "--text", "ba", "--text-pair", "aa", "--json").stdout)
    assert answer["probabilities"].keys() == {"aa", "be"}
    file = tmp_path / "pairs.csv"
    file.write_text("premise,hypothesis\nba,aa\nba,be\n")
    answers = json.loads(call("predict", pair_run, file, "--json").stdout)
    assert answers[0]["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-6)
    file.write_text("premise,claim\nba,aa\n")
    assert "has no column for text_pair; its columns are premise, claim. The model reads pairs" in refusal(
        "predict", pair_run, file
    )
    assert "reads pairs of texts, but a single text is given" in refusal("predict", pair_run, "--text", "ba")


def test_refusals(run, pair_run, tmp_path):
    assert "neither FILE nor --text is given" in refusal("predict", run)
    assert "FILE and --text are both given" in refusal("predict", run, "x.csv", "--text", "ba")
    assert "--text-pair is the second text of --text" in refusal("predict", run, "x.csv", "--text-pair", "ba")
    assert "reads single texts, but a pair is given" in refusal("predict", run, "--text", "ba", "--text-pair", "be")
    table = tmp_path / "rows.csv"
    table.write_text("words,predicted\nba,x\n")
    assert "has no column for text; its columns are words, predicted. Choose one with --column text=NAME" in refusal(
        "predict", run, table
    )
    assert "'predicted' is a column of the input, too" in refusal(
        "predict", run, table, "--column", "text=words", "--out", tmp_path / "out.csv"
    )
    assert "has no column 'word' (for text)" in refusal("predict", run, table, "--column", "text=word")
    assert "--column label=words fills no column" in refusal("predict", run, table, "--column", "label=words")
    lines = tmp_path / "lines.txt"
    lines.write_text("ba\n")
    assert "names a column of a table, but" in refusal("predict", run, lines, "--column", "text=words")
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "ba"}\n[1]\n')
    assert "line 2: b'[1]\\n' is not a JSON object" in refusal("predict", run, rows)
    assert "does not end in .csv or .tsv or .jsonl or .parquet" in refusal("predict", run, table, "--out", tmp_path / "x.xlsx")


def test_long_and_empty_texts_are_said(run, data, tmp_path):
    (tmp_path / "texts.txt").write_text("\n" + "ba " * 30 + "\nbe\n")
    result = call("predict", run, tmp_path / "texts.txt", "--json")
    assert "note: 1 of 3 texts longer than a row of 16 tokens, and cut" in result.stderr
    assert "note: 1 of 3 texts without a token, read as special tokens alone" in result.stderr
    assert "note" not in call("predict", run, "--text", "ba").stderr
    assert "warning" not in call("evaluate", run, "--data", data, "--split", "dev").stderr


def test_a_model_without_labels(tmp_path):
    hub.save(MaskFiller(bert_task()), tmp_path)
    assert "cannot predict labels; it supports embed, fill_mask" in refusal("predict", tmp_path, "--text", "ba")


@pytest.mark.parametrize("text", ["text,id\n", "text\tid\n"])
def test_a_table_without_rows_is_refused(tmp_path, text):
    file = tmp_path / ("empty.csv" if "," in text else "empty.tsv")
    file.write_text(text)
    with pytest.raises(RamifyError, match=r"empty\.[ct]sv has no rows, so there is nothing to predict"):
        next(read_label_file(file, {}, pairs="never", asked="texts").parts)


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet", "txt"])
def test_a_long_file_is_read_in_parts(run, tmp_path, monkeypatch, ending):
    """Answers have the order of the rows, and at most one part is held at a time."""
    rows = [
        {"id": f"r{number}", "text": f"{word} aa", "other": number}
        for number, word in enumerate(["ba", "he", "be", "hi", "bo"] * 4)
    ]
    file, out = tmp_path / f"rows.{ending}", tmp_path / f"out.{'csv' if ending == 'txt' else ending}"
    if ending == "txt":
        file.write_text("".join(row["text"] + "\n" for row in rows))
    elif ending == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), file)
    elif ending == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with open(file, "w", newline="") as stream:
            writer = csv.DictWriter(stream, ["id", "text", "other"], delimiter={"csv": ",", "tsv": "\t"}[ending])
            writer.writeheader()
            writer.writerows(rows)
    whole = call("predict", run, file, "--json", "--out", out)
    expected = out.read_bytes()
    sizes, held, alive = [], [], weakref.WeakSet()
    plain_part, plain_items = label_files.LabelPart, LabelPipeline.predict_items

    def part(*arguments, **named):
        made = plain_part(*arguments, **named)
        alive.add(made)
        return made

    def predict_items(self, items, ids, progress=None):
        sizes.append(len(items))
        held.append(len(alive))
        return plain_items(self, items, ids, progress)

    monkeypatch.setattr(label_files, "PART", 6)
    monkeypatch.setattr(label_files, "LabelPart", part)
    monkeypatch.setattr(LabelPipeline, "predict_items", predict_items)
    parts = call("predict", run, file, "--json", "--out", out)
    assert sizes == [6, 6, 6, 2]
    assert held == [1, 1, 1, 1]
    one, other = json.loads(whole.stdout), json.loads(parts.stdout)
    assert [answer["id"] for answer in other] == [answer["id"] for answer in one]
    assert [answer["label"] for answer in other] == [answer["label"] for answer in one]
    if ending == "parquet":
        table = pq.read_table(out)
        assert table.select(["id", "text", "other"]) == pq.read_table(file)
        assert table["predicted"].to_pylist() == [answer["label"] for answer in one]
    else:
        assert len(out.read_text().splitlines()) == len(expected.decode().splitlines())


def test_a_failure_in_a_later_part_replaces_nothing(run, tmp_path, monkeypatch):
    monkeypatch.setattr(label_files, "PART", 2)
    plain, calls = LabelPipeline.predict_items, []

    def predict_items(self, items, ids, progress=None):
        calls.append(len(items))
        if len(calls) == 2:
            raise RamifyError("the second part fails")
        return plain(self, items, ids, progress)

    monkeypatch.setattr(LabelPipeline, "predict_items", predict_items)
    file = tmp_path / "rows.csv"
    file.write_text("text\n" + "ba\n" * 6)
    for name in ("out.csv", "out.parquet"):
        out = tmp_path / name
        out.write_text("as before")
        calls.clear()
        assert "the second part fails" in refusal("predict", run, file, "--json", "--out", out)
        assert out.read_text() == "as before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "out.parquet", "rows.csv"]


def test_compressed_tables_of_tokens_are_known_by_their_endings_in_any_case(tmp_path):
    file = tmp_path / "WORDS.CONLL.GZ"
    file.write_bytes(gzip.compress(b"aa\nab\n\nac\n"))
    (part,) = read_label_file(file, {}, pairs="never", asked="texts").parts
    assert [each.nodes[0].text for each in part.items] == ["aa ab", "ac"]


def test_rows_without_one_of_their_two_texts_are_noted(tmp_path):
    file = tmp_path / "pairs.jsonl"
    file.write_text(
        "".join(json.dumps(row) + "\n" for row in ({"text": "aa", "text_pair": "ab"}, {"text": "ac"}, {"text": "ad"}))
    )
    found = read_label_file(file, {}, pairs="always", asked="texts")
    (part,) = found.parts
    assert part.items == [("aa", "ab"), ("ac", ""), ("ad", "")]
    assert found.notes == ("2 rows without a text in 'text_pair', read as empty; the first is row 2",)
    found = read_label_file(file, {}, pairs="never", asked="texts")
    assert [len(part.items) for part in found.parts] == [3]
    assert found.notes == ()
