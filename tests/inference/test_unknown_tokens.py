"""Text that a tokenizer cannot spell: all of it looks alike to a model, so scores count it, leave it out, or refuse it."""

import json

import numpy as np
import pytest
import torch

from fixtures import bert_task, discussions, tokenizer
from ramify.batching.running_text import RunningText
from ramify.batching.views.streams import StreamInput
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.inference.common_footing import CommonFooting
from ramify.inference.fill_mask import MaskFiller
from ramify.inference.permutation import PermutationPipeline
from ramify.models.xlnet import XLNetConfig
from ramify.tasks.permutation_lm import PermutationLM, PermutationLMConfig
from ramify.tokenizer import Tokenizer, UnknownTokens


@pytest.fixture(scope="module")
def models():
    torch.manual_seed(0)
    words = tokenizer()
    backbone = XLNetConfig(vocab_size=words.vocab_size, dim=16, num_layers=1, num_heads=2, ffn_dim=16).build()
    task = PermutationLM(backbone, words, StreamInput(), PermutationLMConfig(k=1))
    return PermutationPipeline(task.eval()), MaskFiller(bert_task().eval())


@pytest.mark.parametrize("number", [0, 1])
def test_scores_count_unknown_tokens(models, number):
    model = models[number]
    known, partly = model.score("ba be ba"), model.score("ba 語 ba")
    assert (known.unknown_tokens, partly.unknown_tokens, partly.to_json()["unknown_tokens"]) == (0, 1, 1)
    notes = [note for note in partly.notes if "unknown to the tokenizer" in note]
    assert notes == ["1 of 3 tokens of the text (33 %) is unknown to the tokenizer. Unknown tokens look alike to the model."]
    assert not any("unknown to the tokenizer" in note for note in known.notes)
    with pytest.raises(RamifyError, match="can spell nothing of the text '語 文'"):
        model.score("語 文")


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_a_text_of_unknown_words_alone_has_no_score(kind):
    """Unigram spells the beginning of a word by itself, so an unknown word is two tokens, of which one is known."""
    words = Tokenizer.train(["ba be bi"] * 20, kind=kind, vocab_size=30)
    backbone = XLNetConfig(vocab_size=words.vocab_size, dim=16, num_layers=1, num_heads=2, ffn_dim=16).build()
    model = PermutationPipeline(PermutationLM(backbone, words, StreamInput(), PermutationLMConfig(k=1)).eval())
    with pytest.raises(RamifyError, match="can spell nothing of the text '語 文'"):
        model.score("語 文")
    assert model.score("ba 文").unknown_tokens == 1


def test_generation_counts_unknown_tokens_of_the_prompt(models):
    answer = models[0].generate("ba 語", tokens=2)
    assert answer.unknown_tokens == 1
    assert any(note.startswith("1 of 2 tokens of the prompt") for note in answer.notes)
    assert models[0].generate("ba", tokens=2).unknown_tokens == 0


def test_windows_with_unknown_tokens_have_no_score_per_byte():
    words = tokenizer()
    text = RunningText.open(Store.from_trees(discussions(30, 12)), words, "all")
    ids = text.ids.copy()
    ids[[5, 7, 45]] = words.unk_id  # in the first and in the third window
    footing = CommonFooting.of(RunningText(ids, text.sentences, text.paragraphs, text.documents), words, window=20, count=10**6)
    windows = ids[: len(ids) // 20 * 20].reshape(-1, 20)
    assert np.array_equal(np.unique(footing.rows, axis=0), np.unique(np.delete(windows, [0, 2], axis=0), axis=0))
    scores = footing.measure(lambda rows, positions: np.full(len(rows), -1.0))
    assert scores.to_json()["windows_with_unknown_tokens"] == 2
    assert "; 2 windows with unknown tokens left out" in scores.line()
    ids[::20] = words.unk_id
    nothing = CommonFooting.of(RunningText(ids, text.sentences, text.paragraphs, text.documents), words, window=20)
    none = nothing.measure(lambda rows, positions: np.full(len(rows), -1.0))
    assert (none.per_byte, none.per_token) == (None, None)
    assert none.line().startswith("common footing: no score; ")
    assert json.loads(json.dumps(none.to_json()))["per_byte"] is None


def test_counts():
    words = tokenizer()
    assert words.unknown([words.unk_id, 9, words.unk_id]) == UnknownTokens(2, 3)
    assert not words.unknown(np.array([9, 9]))
    assert UnknownTokens(0, 0).notes("nothing") == ()
