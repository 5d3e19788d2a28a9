"""`ramify evaluate links`, and `evaluate` as a group whose first word may be a run."""

import json

import pytest


@pytest.fixture
def files(tmp_path):
    gold = tmp_path / "gold"
    gold.mkdir()
    (gold / "a.annotation.txt").write_text("0 0 -\n0 1 -\n2 2 -\n2 3 -\n")
    (gold / "b.annotation.txt").write_text("10 10 -\n10 11 -\n")
    predicted = tmp_path / "predicted.txt"
    predicted.write_text("a:0 0 -\na:0 1 -\na:2 2 -\na:1 3 -\nb.ascii.txt:10 10 -\nb:10 11 -\nb:3 4 -\n")
    return gold, predicted


def test_links_json_has_all_fields(ramify, files):
    gold, predicted = files
    status, out, err = ramify("evaluate", "links", "--gold", gold, "--predicted", predicted, "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    fields = ["link", "cluster", "vi", "one_to_one", "ari", "nmi", "shen_f", "local_3", "protocol", "dropped", "missing"]
    assert list(found) == [*fields, "intervals"]
    assert found["intervals"]["link f1"] == pytest.approx([75, 100])
    assert found["link"] == pytest.approx({"precision": 500 / 6, "recall": 500 / 6, "f1": 500 / 6})
    assert found["cluster"] == pytest.approx({"precision": 50, "recall": 100 / 3, "f1": 40})
    assert found["protocol"] == "official"
    assert found["dropped"] == {"before_first_message": 1}


def test_intervals_may_be_left_out(ramify, files):
    gold, predicted = files
    own = ("evaluate", "links", "--gold", gold, "--predicted", predicted, "--json", "--resamples", 0)
    assert json.loads(ramify(*own)[1])["intervals"] == {}


def test_several_files_after_one_flag(ramify, files):
    gold, predicted = files
    both = sorted(gold.iterdir())
    one = ramify("evaluate", "links", "--gold", *both, "--predicted", predicted, "--json")
    assert one[0] == 0
    assert one == ramify("evaluate", "links", "--json", "--predicted", predicted, f"--gold={both[0]}", "--gold", both[1])
    assert one == ramify("evaluate", "links", "--gold", gold, "--predicted", predicted, "--json")


def test_links_readable_output(ramify, files):
    gold, predicted = files
    status, out, _ = ramify("evaluate", "links", "--gold", gold, "--predicted", predicted)
    assert status == 0
    assert "protocol official, 2 logs, 6 messages" in out
    assert "link f1   83.33  (75.00 to 100.00)" in out
    assert "1 predicted link left out: before first message" in out
    status, out, _ = ramify(
        *("evaluate", "links", "--gold", gold, "--predicted", gold / "b.annotation.txt", "--missing", "self"),
        *("--protocol", "chunk50", "--resamples", 0),
    )
    assert status == 0
    assert "protocol chunk50" in out
    assert " to " not in out
    assert "4 messages had no predicted link" in out


def test_links_refuses(ramify, files, tmp_path):
    gold, predicted = files
    status, out, err = ramify("evaluate", "links", "--gold", gold, "--predicted", gold / "b.annotation.txt", "--json")
    assert (status, out) == (2, "")
    assert "4 messages without a predicted link: a:0, a:1, a:2, a:3." in err
    status, _, err = ramify("evaluate", "links", "--gold", tmp_path / "absent", "--predicted", predicted)
    assert status == 2
    assert "absent" in err
    status, _, err = ramify("evaluate", "links", gold, "--predicted", predicted)
    assert status == 2
    assert "Traceback" not in err


@pytest.mark.parametrize("words", [("absent", "--data", "x"), ("run", "absent", "--data", "x"), ("--data", "x", "absent")])
def test_first_word_may_be_a_run(ramify, words):
    status, _, err = ramify("evaluate", *words)
    assert status == 2
    assert "absent does not exist" in err
