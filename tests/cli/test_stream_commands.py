"""Commands on models of running text: train, evaluate, score, generate, fill-mask, embed, report."""

import json
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import ramify
from fixtures import built
from fixtures.commands import call, refusal
from fixtures.running import WORDS, documents
from ramify.cli import app
from ramify.tokenizer import IncrementalDecoder

SETTINGS = {
    "train.steps": 3,
    "train.log_every": 1,
    "model.dim": 16,
    "model.num_heads": 2,
    "model.num_layers": 1,
    "model.ffn_dim": 24,
    "model.memory": 10,
    "input.row_tokens": 24,
    "input.reused_tokens": 10,
    "view.streams": 2,
    "tokenizer.vocab_size": 90,
    "tokenizer.kind": "wordpiece",
    "dev.rows": 4,
}


def settings(**changes):
    return [f"--set={key}={value}" for key, value in (SETTINGS | changes).items()]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A data set of single texts."""
    folder = tmp_path_factory.mktemp("texts")
    file = folder / "texts.txt"
    file.write_text("\n\n".join(". ".join(WORDS[(number + place) % 4] for place in range(4)) + "." for number in range(60)))
    call("data", "build", file, "--format", "text", "--unit", "paragraph", "--out", folder / "data", "--split-by", "none")
    return folder / "data"


@pytest.fixture(scope="module")
def replies(tmp_path_factory):
    """A data set of discussions, with all splits."""
    folder = tmp_path_factory.mktemp("replies")
    return built(documents(40), folder, (0.6, 0.2, 0.2)).path


@pytest.fixture(scope="module")
def xlnet(replies, tmp_path_factory):
    out = tmp_path_factory.mktemp("xlnet") / "run"
    call("train", "xlnet", "--data", replies, "--out", out, *settings())
    return out


@pytest.fixture(scope="module")
def language_model(texts, tmp_path_factory):
    out = tmp_path_factory.mktemp("lm") / "run"
    trained = call("train", "xlnet-lm", "--data", texts, "--out", out, *settings(**{"input.reused_tokens": 24}))
    assert "warning" not in trained.stderr
    assert {"training the tokenizer …", "encoding texts …", "first step …"} <= {*trained.stderr.splitlines()}
    return out


def test_xlnet_trains_on_discussions(xlnet):
    record = json.loads((xlnet / "run.json").read_text())
    assert record["kind"] == "streams"
    assert record["text"]["streams"] == 4
    assert "Held-out scores" in (xlnet / "report.html").read_text()


def test_xlnet_trains_on_texts_without_dev_data(language_model):
    """The parts of a file are documents."""
    assert (language_model / "model.safetensors").exists()
    assert json.loads((language_model / "run.json").read_text())["text"]["documents"] < 60


def test_evaluate(xlnet, replies):
    first, again = (json.loads(call("evaluate", xlnet, "--data", replies, "--json").stdout) for _ in range(2))
    assert first == again
    assert {"loss", "per_byte", "count", "accuracy"} <= first.keys()
    # Four targets in each row of 24 tokens, one in six.
    assert first["count"] == 4 * first["rows"]
    fewer = json.loads(call("evaluate", xlnet, "--data", replies, "--rows", 4, "--memory", 0, "--json").stdout)
    assert fewer["rows"] == 4
    assert "common footing" in call("evaluate", xlnet, "--data", replies).stdout
    assert "--memory 9999 is longer than a stream" in refusal("evaluate", xlnet, "--data", replies, "--memory", 9999)
    assert "--comments does not apply" in refusal("evaluate", xlnet, "--data", replies, "--comments", 3)


def test_score(xlnet, language_model):
    forward = json.loads(call("score", language_model, "--text", WORDS[0], "--order", "forward", "--json").stdout)
    assert forward.keys() == {"log_likelihood", "tokens", "bytes", "order", "longer_than_row", "unknown_tokens"}
    assert forward["bytes"] == len(WORDS[0])
    assert not forward["longer_than_row"]
    many = call("score", language_model, "--text", WORDS[0], "--order", "random:3", "--json")
    assert len(json.loads(many.stdout)["orders"]) == 3
    assert not many.stderr
    assert "note:" in call("score", xlnet, "--text", WORDS[0], "--json").stderr
    assert "log of the mean likelihood" in call("score", language_model, "--text", WORDS[0], "--order", "random:2").stdout
    assert "has no tokens" in refusal("score", language_model, "--text", "")
    for order in ("sideways", "random:0", "random:x"):
        assert "random:N" in refusal("score", language_model, "--text", WORDS[0], "--order", order)


def test_text_that_is_longer_than_a_row(language_model):
    longer = call("score", language_model, "--text", " ".join(WORDS * 3), "--json")
    answer = json.loads(longer.stdout)
    assert answer["longer_than_row"]
    assert f"note: the text has {answer['tokens']} tokens" in longer.stderr
    assert "trained on at most 24 (input.row_tokens)" in longer.stderr


def test_rows_in_two_parts_are_no_training_for_full_orders(texts, tmp_path):
    trained = call("train", "xlnet-lm", "--data", texts, "--out", tmp_path / "run", *settings())
    assert "input.reused_tokens=10 is less than input.row_tokens=24" in trained.stderr
    scored = call("score", tmp_path / "run", "--text", WORDS[0], "--json")
    assert "note:" in scored.stderr
    assert "input.reused_tokens=10 of input.row_tokens=24" in scored.stderr


def test_generate(language_model, xlnet):
    one, two = (
        json.loads(call("generate", language_model, "--prompt", "the", "--tokens", 5, "--seed", 7, "--json").stdout)
        for _ in range(2)
    )
    assert one == two
    assert one.keys() == {"prompt", "text", "tokens", "unknown_tokens"}
    assert one["tokens"] == 5
    stopped = call("generate", language_model, "--tokens", 30, "--seed", 7, "--stop", "the", "--stop", ".", "--json")
    assert json.loads(stopped.stdout)["tokens"] < 30
    beam = ("generate", language_model, "--prompt", "the", "--tokens", 4, "--beam", 3, "--n-best", 2, "--length-penalty", 0)
    best = json.loads(call(*beam, "--json").stdout)
    assert [each["score"] for each in best["hypotheses"]] == sorted(
        (each["score"] for each in best["hypotheses"]), reverse=True
    )
    assert best["text"] == best["hypotheses"][0]["text"]
    assert len(call(*beam).stdout.splitlines()) == 2
    assert "temperature=inf" in refusal("generate", language_model, "--temperature", "inf")
    assert "seed=" in refusal("generate", language_model, "--seed", 2**63)
    assert "note:" in call("generate", xlnet, "--tokens", 2).stderr
    assert "top_p" in refusal("generate", xlnet, "--tokens", 2, "--top-p", 2)


def test_a_text_without_a_token_is_said(language_model):
    model: Any = ramify.load(language_model)
    words = ("generate", language_model, "--prompt", "the", "--tokens", 3)
    every = [word for piece in model.tokenizer.ids for word in ("--stop", piece)]
    found = call(*words, *every)
    assert (found.stdout, "note: the model wrote nothing: the text is empty." in found.stderr) == ("\n", True)
    found = json.loads(call(*words, *every, "--json").stdout)
    assert (found["text"], found["tokens"], found["empty"]) == ("", 0, True)
    blank, other = model.generate(["the", "the"], tokens=3, stop=[*model.tokenizer.ids])
    assert blank.empty
    assert other.notes[-1].startswith("the model wrote nothing")


def test_generated_text_is_printed_as_it_comes(language_model, monkeypatch):
    words = ("generate", language_model, "--prompt", "the", "--tokens", 30, "--seed", 7)
    whole = json.loads(call(*words, "--json").stdout)["text"]
    printed = call(*words)
    assert printed.stdout == f"{whole}\n"
    decoded = IncrementalDecoder.add
    parts: list[str] = []

    def interrupted(decoder, token_id):
        """Like Ctrl-C after the ninth token."""
        if len(parts) == 9:
            raise KeyboardInterrupt
        parts.append(decoded(decoder, token_id))
        return parts[-1]

    monkeypatch.setattr(IncrementalDecoder, "add", interrupted)
    stopped = CliRunner().invoke(app, [*map(str, words)])
    assert (stopped.exit_code, stopped.stdout) == (130, "".join(parts) + "\n")
    assert whole.startswith("".join(parts))
    # Answers in JSON and those of a beam search are printed whole.
    assert json.loads(call(*words, "--json").stdout)["text"] == whole
    assert call("generate", language_model, "--prompt", "the", "--tokens", 12, "--beam", 2).stdout.count("\n") == 1


@pytest.mark.parametrize("seed", [-1, 2**63, 2**64])
def test_seeds_out_of_range_are_refused(language_model, seed):
    for words in (
        ("generate", language_model, "--tokens", 2),
        ("score", language_model, "--text", WORDS[0], "--order", "random:2"),
        ("attention", language_model, "--text", WORDS[0], "--order", "random", "--json"),
    ):
        assert f"seed={seed} is out of range. Choose a seed of at least 0" in refusal(*words, f"--seed={seed}")


@pytest.mark.parametrize(("option", "name"), [("--temperature", "temperature"), ("--top-p", "top_p")])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_sampling_needs_finite_numbers(language_model, option, name, value):
    assert f"{name}={value} must be" in refusal("generate", language_model, "--tokens", 2, f"{option}={value}")


def test_fill_mask_and_embed(xlnet, replies, tmp_path):
    answer = json.loads(call("fill-mask", xlnet, "--text", "the [MASK] had not risen", "--json").stdout)
    assert len(answer["masks"][0]["tokens"]) == 5
    call("embed", xlnet, "--data", replies, "--out", tmp_path / "vectors.parquet")
    assert pq.read_table(tmp_path / "vectors.parquet").num_rows == 200


def test_relatives_of_xlnet_train(texts, replies, tmp_path):
    for number, options in enumerate((["--order", "forward"], ["--order", "backward"], ["--objective", "denoising"])):
        call("train", "xlnet", "--data", replies, "--out", tmp_path / str(number), *options, *settings())
        found = json.loads(call("evaluate", tmp_path / str(number), "--data", replies, "--json").stdout)
        assert found["per_byte"] > 0
    assert "cannot score texts" in refusal("score", tmp_path / "2", "--text", "the")
    both = ["--objective", "denoising", "--order", "forward"]
    assert "Leave it out" in refusal("train", "xlnet", "--data", replies, "--out", tmp_path / "x", *both)


def test_streams_adapt_to_a_short_text(replies, tmp_path):
    out = tmp_path / "run"
    err = call("train", "xlnet", "--data", replies, "--out", out, *settings(**{"view.streams": 5_000, "train.steps": 1})).stderr
    facts = json.loads((out / "run.json").read_text())["text"]
    streams = facts["streams"] // 2
    assert (streams, facts["rows_per_stream"]) == (facts["tokens"] // 24, 1)
    assert f"note: view.streams=5000 is more than a text of {facts['tokens']:,} tokens can fill" in err
    assert f"input.row_tokens=24: {streams} streams in each direction." in err


def test_more_settings_train(replies, tmp_path):
    changes = {
        "model.position": "absolute",
        "model.memory_start": "zeros",
        "input.memory_reset": "never",
        "task.next_segment": 1.0,
        "task.permutation_block": 4,
        "task.span_unit": "piece",
        "view.directions": "backward",
        "input.avoid_overlap": "true",
    }
    call("train", "xlnet", "--data", replies, "--out", tmp_path / "run", *settings(**changes))
    again = ["train", "xlnet", "--data", replies, "--init", tmp_path / "run", "--out", tmp_path / "more"]
    changes["task.next_segment"] = 0.0
    call(*again, *(setting for setting in settings(**changes) if "tokenizer" not in setting))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input.row_tokens": 20_000, "input.reused_tokens": 9_000}, "too few for view.streams=1 with rows"),
        ({"model.memory": 100_000}, "longer than a stream of the data"),
        ({"input.row_tokens": 12}, "cannot hold input.reused_tokens=10"),
        ({"task.k": 0.5}, "task.k=0.5 must be at least 1"),
        ({"model.vocab_size": 20}, "model.vocab_size=20 is too small"),
        ({"model.num_heads": 3}, "must be a multiple"),
        ({"task.longest_span": 0}, "task.longest_span must be at least 1"),
        ({"input.segments": "none", "task.next_segment": 1.0}, "needs rows of two segments"),
    ],
    ids=str,
)
def test_bad_settings_are_refused(replies, tmp_path, changes, message):
    assert message in refusal("train", "xlnet", "--data", replies, "--out", tmp_path / "run", *settings(**changes))
    assert not (tmp_path / "run" / "model.safetensors").exists()
