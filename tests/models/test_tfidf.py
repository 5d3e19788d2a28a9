"""TF-IDF against scikit-learn's."""

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.feature_extraction.text import TfidfVectorizer

from fixtures import tokenizer as words
from fixtures.labelled import labelled_store, sentences
from ramify.batching.encoder_input import EncoderInput
from ramify.models.tfidf import TfidfConfig
from ramify.recipes import RECIPES
from ramify.runs.labelled.floors import term_matrix, text_rows


def texts(*lines):
    ids = [np.array(words().encode(line), np.int64) for line in lines]
    return np.concatenate([np.zeros(0, np.int64), *ids]), np.array([len(each) for each in ids])


def model(**settings):
    backbone = TfidfConfig(**({"vocab_size": words().vocab_size, "dim": 2} | settings)).build()
    backbone.learn_words(words())
    torch.manual_seed(0)
    torch.nn.init.normal_(backbone.weight)
    torch.nn.init.uniform_(backbone.idf, 0.5, 2)
    return backbone


def rows(*lines):
    return EncoderInput.of_texts(texts(*lines), words().layout("bert"), None)


def by_hand(backbone, ids):
    """The vector of one text from its words alone."""
    counts = {number: ids.count(number) for number in ids}
    values = {number: (1 + np.log(count)) * float(backbone.idf[number]) for number, count in counts.items()}
    norm = np.sqrt(sum(value**2 for value in values.values()))
    return sum((value / norm * backbone.weight[number].detach() for number, value in values.items()), torch.zeros(2))


def test_vectors_of_words():
    backbone = model()
    lines = ["aa ae ae", "", "ba aa ba ba", "aa"]
    batch = rows(*lines)
    vectors = backbone.vectors(batch)
    for place, source in enumerate(batch.source):
        expected = by_hand(backbone, words().encode(lines[source]))
        torch.testing.assert_close(vectors[place], expected)


def test_unknown_words_and_special_tokens_are_no_terms():
    backbone = model()
    batch = rows("aa [SEP] §§", "aa")
    known, plain = (batch.source.tolist().index(number) for number in (0, 1))
    assert words().unk_id in batch.ids
    vectors = backbone.vectors(batch)
    torch.testing.assert_close(vectors[known], vectors[plain])


def test_texts_of_a_pair_have_weights_of_their_own():
    backbone = model(num_texts=2)
    half = words().vocab_size
    batch = EncoderInput.of_pairs(texts("aa ae", "", "aa"), texts("ba aa", "ae", ""), words().layout("bert"), None)
    vectors = backbone.vectors(batch)
    first, second = model(), model()
    for part, start in ((first, 0), (second, half)):
        part.weight.data.copy_(backbone.weight[start : start + half])
        part.idf.copy_(backbone.idf[start : start + half])
    for place, source in enumerate(batch.source):
        one, other = (("aa ae", "ba aa"), ("", "ae"), ("aa", ""))[source]
        expected = by_hand(first, words().encode(one)) + by_hand(second, words().encode(other))
        torch.testing.assert_close(vectors[place], expected)


def test_pairs_of_words_do_not_cross_special_tokens():
    backbone = model()
    batch = EncoderInput.of_pairs(texts("aa ae"), texts("ba bo"), words().layout("bert"), None)
    row = torch.zeros(len(batch.ids), dtype=torch.int64)
    vocab = words().vocab_size
    first = [words().encode(line) for line in ("aa ae", "ba bo")]
    expected = [one * vocab + other for one, other in first]
    assert backbone.pairs(backbone.in_texts(batch), row)[1].tolist() == expected
    both = rows("aa", "ae")
    row = torch.repeat_interleave(torch.arange(2), both.rows.lengths)
    assert not len(backbone.pairs(backbone.in_texts(both), row)[1])


def test_reading_nothing():
    backbone = TfidfConfig(reads="nothing", vocab_size=words().vocab_size, dim=3).build()
    batch = rows("aa ae", "ba")
    assert torch.equal(backbone.vectors(batch), torch.zeros(2, 3))
    assert sum(each.numel() for each in backbone.parameters()) == 0


def test_states_are_the_shares_of_words():
    backbone = model()
    batch = rows("aa ae", "ba")
    encoded = backbone.encode_rows(batch)
    is_word = backbone.is_word[batch.ids]
    assert not encoded.last[~is_word].any()
    torch.testing.assert_close(encoded.last[is_word], (backbone.idf[:, None] * backbone.weight)[batch.ids[is_word]])
    last = backbone.encode_rows(batch, read="last")
    assert len(last.last) == 2


@pytest.mark.parametrize("ngrams", [1, 2])
def test_matrix_of_a_view_is_that_of_scikit_learn(tmp_path, ngrams):
    """The terms, their frequencies and their norms, on a whole data set."""
    store = labelled_store(sentences(60), tmp_path)
    run = RECIPES["classify"](str(store.path), model="tfidf")
    prepared = run.changed({"fit.strengths": "[1]", "fit.ngrams": f"[{ngrams}]", "fit.min_count": "1"}).prepare(
        tmp_path / "out"
    )
    matrix = term_matrix(prepared.task.backbone, text_rows(prepared.train), learn=False)
    tokenizer, nodes = prepared.task.tokenizer, prepared.train.rows.text
    vectorizer = TfidfVectorizer(
        analyzer="word",
        tokenizer=lambda text: tokenizer.encode(text),
        preprocessor=lambda text: text,
        token_pattern=None,
        ngram_range=(1, ngrams),
        sublinear_tf=True,
    )
    # The vectorizer joins the words of a pair with a space.
    vectorizer.set_params(tokenizer=lambda text: list(map(str, tokenizer.encode(text))))
    expected = vectorizer.fit_transform(store.texts(nodes))
    vocab = tokenizer.vocab_size
    keys = {f"{key // vocab} {key % vocab}": vocab + place for place, key in enumerate(prepared.task.backbone.bigrams.tolist())}
    columns = [keys[name] if " " in name else int(name) for name in vectorizer.get_feature_names_out()]
    ours = scipy.sparse.csc_array(matrix)[:, columns].toarray()
    np.testing.assert_allclose(ours, expected.toarray(), atol=1e-6)
    assert matrix.nnz == expected.nnz
