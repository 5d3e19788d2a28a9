"""`ramify train answer`, `answer` and `evaluate` on questions about passages."""

import json

import pytest

from fixtures.questions import question_store, squad

PARTS = {"train": 120, "dev": 30}
TINY = (
    *("model.dim=16", "model.num_heads=2", "model.ffn_dim=24", "model.num_layers=1", "tokenizer.vocab_size=120"),
    *("input.question_tokens=4", "train.budget=16", "train.lr=0.01", "train.evaluate_every=0"),
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    files = {name: squad(count, seed, impossible=True) for seed, (name, count) in enumerate(PARTS.items())}
    return question_store(tmp_path_factory.mktemp("squad"), files)


def words_for(store, out, *further):
    settings = [part for setting in TINY for part in ("--set", setting)]
    words = ("train", "answer", "--data", store.path, "--model", "bert", "--max-tokens", 16, "--stride", 6)
    return (*words, "--out", out, *settings, *further)


@pytest.fixture(scope="module")
def run(ramify_once, store, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "answers"
    code, _, said = ramify_once(*words_for(store, out, "--epochs", 8))
    assert code == 0, said
    assert "best dev f1" in said
    return out


def test_answers_as_json_and_as_text(ramify, store, run, tmp_path):
    passage = tmp_path / "passage.txt"
    passage.write_text("de di ba da he do\n")
    asked = ("answer", run, "--question", "au aa", "--passage", passage)
    code, shown, problem = ramify(*asked, "--json")
    assert (code, problem) == (0, "")
    (span,) = json.loads(shown)
    assert list(span) == ["text", "start", "end", "score", "no_answer"]
    assert (span["text"], span["start"], span["end"], span["no_answer"]) == ("ba", 6, 8, False)
    assert 0 < span["score"] <= 1
    three = json.loads(ramify(*asked, "--json", "--n-best", "3")[1])
    assert three[0] == span
    assert [each["score"] for each in three] == sorted((each["score"] for each in three), reverse=True)
    assert "… de di [ba] da he do …" in ramify(*asked)[1]
    passage.write_text("de di da ha do he ga\n")
    (span,) = json.loads(ramify(*asked, "--json")[1])
    assert span | {"score": 0} == {"text": "", "start": 0, "end": 0, "score": 0, "no_answer": True}
    assert "(no answer)" in ramify(*asked)[1]


def test_evaluation_as_json_and_as_text(ramify, store, run):
    scored = ("evaluate", run, "--data", store.path, "--split", "dev")
    found = json.loads(ramify(*scored, "--json")[1])
    assert list(found) == ["metric", "value", "metrics", "majority", "count", "most_frequent"]
    assert (found["metric"], found["count"]) == ("f1", 60)
    assert found["value"] > found["majority"]
    assert "60 questions" in ramify(*scored)[1]


def test_files_in_windows_1252_are_read(ramify, run, tmp_path):
    passage = tmp_path / "passage.txt"
    passage.write_bytes("de b\u00e4 ba".encode("cp1252"))
    _, shown, said = ramify("answer", run, "--question", "au aa", "--passage", passage, "--json", "--n-best", 20)
    assert "is not in UTF-8, and is read as Windows-1252" in said
    assert any("b\u00e4" in span["text"] for span in json.loads(shown))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--question", "au"), "Missing option '--passage'"),
        (("--passage", "FILE"), "Missing option '--question'"),
        (("--question", " ", "--passage", "FILE"), "holds no words. Ask a question."),
        (("--question", "au", "--passage", "FILE"), "holds no words, so it has no answer"),
        (("--question", "au", "--question", "ae", "--passage", "FILE"), "--question is given 2 times"),
    ],
)
def test_missing_options_and_empty_texts_are_refused(ramify, run, tmp_path, words, message):
    passage = tmp_path / "passage.txt"
    passage.write_text(" \n")
    code, _, said = ramify("answer", run, *(passage if word == "FILE" else word for word in words))
    assert code == 2
    assert message in said


def test_the_best_seed_answers(ramify, store, tmp_path):
    out = tmp_path / "run"
    code, _, said = ramify(*words_for(store, out, "--epochs", 1, "--seeds", 2))
    assert code == 0, said
    assert {"seed-0", "seed-1"} <= {folder.name for folder in out.iterdir()}
    passage = tmp_path / "passage.txt"
    passage.write_text("de di ba da he do")
    asked = ("--question", "au aa", "--passage", passage, "--json")
    answers = [ramify("answer", folder, *asked)[1] for folder in (out, out / "seed-0", out / "seed-1")]
    assert answers[0] in answers[1:]
    assert answers[1] != answers[2]
