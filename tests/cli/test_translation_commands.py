"""Commands on models that translate: build pairs, train, translate, evaluate."""

import gzip
import json

import pytest

from fixtures.parallel import TINY, pairs, write_files

TEXTS = pairs(90, lambda words: words[::-1])


@pytest.fixture(scope="module")
def data(ramify_once, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    files = []
    for name, texts in (("train", TEXTS[:70]), ("val", TEXTS[70:80]), ("test", TEXTS[80:])):
        for file in write_files(folder, name, texts):
            packed = file.with_suffix(file.suffix + ".gz")
            packed.write_bytes(gzip.compress(file.read_bytes()))
            files.append(packed)
    code, _, err = ramify_once("data", "build", *files, "--format", "parallel", "--out", folder / "data")
    assert code == 0, err
    return folder / "data"


@pytest.fixture(scope="module")
def run(ramify_once, data, tmp_path_factory):
    out = tmp_path_factory.mktemp("translator") / "run"
    settings = [f"--set={key}={value}" for key, value in TINY.items()]
    code, _, err = ramify_once("train", "transformer", "--data", data, "--out", out, *settings)
    assert code == 0, err
    assert "data: 70 pairs, " in err
    assert f"next: ramify evaluate {out} --data {data}" in err
    return out


def test_a_text_in_json(ramify, run):
    code, out, err = ramify("translate", run, "--text", "ba be", "--n-best", 2, "--json")
    assert code == 0, err
    (answer,) = json.loads(out)
    assert answer.keys() == {"source", "translations"}
    assert answer["source"] == "ba be"
    assert len(answer["translations"]) == 2
    assert all(translation.keys() == {"text", "score"} for translation in answer["translations"])


def test_a_file_line_by_line(ramify, run, tmp_path):
    file = tmp_path / "sources.en.gz"
    file.write_bytes(gzip.compress(b"ba be\n\nce\n"))
    code, out, err = ramify("translate", run, file, "--json")
    assert code == 0, err
    answers = json.loads(out)
    assert [answer["source"] for answer in answers] == ["ba be", "", "ce"]
    code, out, _ = ramify("translate", run, file)
    assert out.split("\n") == [*(answer["translations"][0]["text"] if answer["translations"] else "" for answer in answers), ""]
    code, out, _ = ramify("translate", run, file, "--n-best", 2)
    assert [line == "" for line in out.split("\n")] == [False, False, True, True, False, False, True]


def test_scores_in_json_and_as_text(ramify, run, data):
    code, out, err = ramify("evaluate", run, "--data", data, "--split", "test", "--json")
    assert code == 0, err
    scores = json.loads(out)
    assert {"loss", "perplexity", "bleu", "signature", "floor_copy", "count"} <= scores.keys()
    assert scores["count"] == 10
    code, out, _ = ramify("evaluate", run, "--data", data, "--beam", 1)
    assert "nats per token, perplexity" in out
    assert "of the copied sources" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "Missing argument 'FILE'. Name a file with one text per line, or give a text with --text."),
        (("none.txt", "--text", "ba"), "both give texts"),
        (("--text", "ba", "--beam", "10000"), "beam=10000 must be below the size of the vocabulary"),
        (("--text", "ba " * 600), "source 1 has 600 tokens, but this model reads at most 511 and the end."),
    ],
)
def test_refusals_of_translate(ramify, run, words, message):
    code, _, err = ramify("translate", run, *words)
    assert code == 2
    assert message in err


def test_a_beam_of_0_and_a_model_asked_to_fill_masks(ramify, run):
    code, _, err = ramify("translate", run, "--text", "ba", "--beam", 0)
    assert code == 2
    assert "--beam" in err
    code, _, err = ramify("fill-mask", run, "--text", "ba [MASK]")
    assert code == 2
    assert f"{run} cannot fill masks; it supports translate, embed, nearest" in err


def test_a_model_that_cannot_translate(ramify, trained):
    code, _, err = ramify("translate", trained, "--text", "ba")
    assert code == 2
    assert "cannot translate; it supports" in err
