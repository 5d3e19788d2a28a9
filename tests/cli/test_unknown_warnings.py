"""Commands warn of text that a tokenizer cannot spell."""

import json

import ramify
from fixtures import bert_task, built
from fixtures.commands import call
from ramify.inference.fill_mask import MaskFiller


def test_evaluate_warns_of_unknown_tokens(tmp_path):
    def tree(name: str, word: str) -> ramify.Tree:
        return ramify.Tree((ramify.Node("ba be", id="a"), ramify.Node(f"ba {word} be ba", (0,), id="b")), id=name)

    store = built([tree(f"t{number}", "語" if number % 2 else "ba") for number in range(6)], tmp_path / "data", split=(0, 0, 1))
    model = MaskFiller(bert_task().float())
    model.kind = "comment-trees"
    ramify.save(model, tmp_path / "model")
    found = call("evaluate", "run", tmp_path / "model", "--data", store.path, "--draws", 1, "--json")
    assert json.loads(found.stdout)["unknown_tokens"] == 3
    assert "warning: 3 of 36 tokens of the split test (8.3 %) are unknown to the tokenizer" in found.stderr
