"""Models start with the vectors of a file or of a saved model, matched by words or pieces."""

import numpy as np
import pytest
import torch

import ramify
from fixtures import WORDS, bert_task, tokenizer
from ramify.errors import RamifyError
from ramify.inference.fill_mask import MaskFiller
from ramify.models.bag import BagConfig
from ramify.models.cnn import CnnConfig
from ramify.models.recurrent import RecurrentConfig
from ramify.readers.word_vectors import read_word_vectors
from ramify.runs.token_vectors import start_with_vectors
from ramify.tokenizer import Tokenizer


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


@pytest.mark.parametrize("header", [True, False])
def test_words_of_a_file_find_their_vectors(tmp_path, header):
    lines = [f"{WORDS[0]} 1 2 3", "new york 7 8 9", f"{WORDS[0]} 0 0 0", f"{WORDS[2]} -1e-2 .5 2"]
    path = write(tmp_path / "vectors.txt", ["4 3", *lines] if header else lines)
    read = read_word_vectors(path, {WORDS[0], WORDS[2], "absent", "new york"})
    assert read.words == (WORDS[0], "new york", WORDS[2])
    np.testing.assert_array_equal(read.vectors, np.array([[1, 2, 3], [7, 8, 9], [-0.01, 0.5, 2]], dtype=np.float32))
    model = CnnConfig(tokenizer().vocab_size, 3, channels="static", vectors=str(path)).build()
    assert start_with_vectors(model, tokenizer()) == 2
    assert model.static[tokenizer().ids[WORDS[2]]].tolist() == pytest.approx([-0.01, 0.5, 2])
    assert not (model.static == 0).all(1).any()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["aa 1 2", "ab 1"], r"line 2: 'ab' has 1 numbers, but the vectors of this file have 2"),
        (["aa"], r"line 1: 'aa' has 0 numbers, but the vectors of this file have at least 1"),
        (["aa 1 b"], r"line 1: '1 b' … are not finite numbers"),
        (["aa 1 nan"], r"line 1: '1 nan' … are not finite numbers"),
        (["3 2"], r"holds no vectors"),
    ],
)
def test_damaged_files_are_refused(tmp_path, lines, message):
    with pytest.raises(RamifyError, match=message):
        read_word_vectors(write(tmp_path / "vectors.txt", lines), {"aa", "ab"})


def test_vectors_of_a_saved_model_belong_to_the_pieces_of_the_same_spelling(tmp_path):
    task = bert_task(dtype=torch.float32)
    ramify.save(MaskFiller(task), tmp_path)
    table = task.backbone.embedding.weight
    own = Tokenizer.train([" ".join(WORDS[::2])], kind="word", vocab_size=40)
    model = BagConfig(own.vocab_size, table.shape[1], vectors=str(tmp_path)).build()
    shared = own.ids.keys() & task.tokenizer.ids.keys()
    assert start_with_vectors(model, own) == len(shared)
    assert WORDS[0] in shared
    for piece in shared:
        assert torch.equal(model.embedding.weight[own.ids[piece]], table[task.tokenizer.ids[piece]])


def test_vectors_that_do_not_fit_are_refused(tmp_path):
    path = write(tmp_path / "vectors.txt", [f"{WORDS[0]} 1 2"])
    with pytest.raises(RamifyError, match=r"model\.dim=5 differs from the length of the vectors in .*, which is 2\. Set model"):
        start_with_vectors(BagConfig(tokenizer().vocab_size, 5, vectors=str(path)).build(), tokenizer())
    other = write(tmp_path / "other.txt", ["zzzzzz 1 2"])
    with pytest.raises(RamifyError, match=r"holds no vector of any of the \d+ pieces of the tokenizer"):
        start_with_vectors(BagConfig(tokenizer().vocab_size, 2, vectors=str(other)).build(), tokenizer())


def test_models_without_known_vectors_stay_as_they_are():
    for model in (BagConfig(9, 2).build(), RecurrentConfig(9, 2).build()):
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        assert start_with_vectors(model, tokenizer()) == 0
        assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "word"])
def test_whole_words_are_the_pieces_that_begin_words(kind):
    own = Tokenizer.train(["cat cats thé cat the"] * 5, kind=kind, vocab_size=300 if kind == "bpe" else 60, lowercase=False)
    words = own.whole_words
    assert "cat" in words
    assert own.encode("a cat")[-1] == words["cat"] or kind == "wordpiece"
    assert not any(number in own.special_ids for number in words.values())
    assert not any(word.startswith(("##", "Ġ")) for word in words)
