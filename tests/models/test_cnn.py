"""Kim's CNN against a plain reference, row by row, and its tables of token vectors; and the bag of embeddings."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fixtures import tokenizer
from ramify.batching.encoder_input import EncoderInput
from ramify.batching.views.labelled import LabelInput
from ramify.errors import RamifyError
from ramify.models.bag import BagConfig
from ramify.models.cnn import Cnn, CnnConfig
from ramify.nn.ragged import Rows
from ramify.tasks.classification import Classification, ClassificationConfig
from ramify.training.config import TrainConfig, learns

VOCAB = 60
LENGTHS = [1, 2, 3, 4, 0, 9, 17]


def rows_of(lengths: list[int], seed: int = 0) -> EncoderInput:
    # No window occurs twice, so that each maximum has one place.
    ids = np.random.default_rng(seed).permutation(VOCAB)[: sum(lengths)]
    return EncoderInput.of_rows(torch.from_numpy(ids), Rows.build(lengths))


def cnn(channels: str = "rand", **changes) -> Cnn:
    torch.manual_seed(0)
    vectors = "" if channels == "rand" else "vectors.txt"
    model = CnnConfig(VOCAB, 6, maps=4, channels=channels, vectors=vectors, dropout=0.0, **changes).build().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def reference(model: Cnn, ids: torch.Tensor) -> torch.Tensor:
    """The vector of one text: torch's one-dimensional convolutions of each channel between as many zeros as the widest filter
    reads beside one token, their sum, ReLU, and the maximum."""
    tables = [table for table in (model.embedding and model.embedding.weight, model.static) if table is not None]
    found = []
    for filters in model.filters:
        padding = (max(model.config.widths) - 1,) * 2
        kernels = filters.conv.weight[..., 0].split(6, dim=1)
        maps = [F.conv1d(F.pad(table[ids].T, padding)[None], kernel)[0] for table, kernel in zip(tables, kernels, strict=True)]
        found.append(torch.relu(sum(maps) + filters.conv.bias[:, None]).amax(1))
    return torch.cat(found)


@pytest.mark.parametrize("channels", ["rand", "static", "non-static", "multichannel"])
@pytest.mark.parametrize("widths", [(3, 4, 5), (1, 2), (6,)])
def test_vectors_are_those_of_the_reference(channels, widths):
    model = cnn(channels, widths=widths)
    rows = rows_of(LENGTHS)
    found = model.vectors(rows)
    texts = rows.ids.split(LENGTHS)
    expected = torch.stack([reference(model, ids) if len(ids) else torch.zeros(model.out_dim).double() for ids in texts])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    # Every map is a maximum of some text, so each filter has a gradient.
    weights = torch.randn_like(found)
    mine = torch.autograd.grad((found * weights).sum(), [*model.parameters()])
    theirs = torch.autograd.grad((expected * weights).sum(), [*model.parameters()])
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)
        assert one.abs().sum() > 0


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_is_independent_of_the_others_to_the_bit(dtype):
    model = cnn().to(dtype)
    rows = rows_of(LENGTHS)
    before = model.encode_rows(rows).last
    for number, ids in enumerate(rows.ids.split(LENGTHS)):
        start = sum(LENGTHS[:number])
        changed = (rows.ids + 1) % VOCAB
        changed[start : start + len(ids)] = ids
        after = model.encode_rows(EncoderInput.of_rows(changed, rows.rows)).last
        mine = slice(start, start + len(ids))
        assert torch.equal(after[mine], before[mine])
        assert len(ids) == sum(LENGTHS) or not torch.equal(after, before)


@pytest.mark.parametrize("channels", ["static", "non-static", "multichannel"])
def test_known_vectors_stand_in_every_table_and_the_others_have_their_variance(channels):
    model = CnnConfig(2000, 6, channels=channels, vectors="vectors.txt").build()
    torch.manual_seed(1)
    ids = torch.arange(0, 2000, 2)
    known = torch.randn(1000, 6) * 3
    model.take_vectors(ids, known)
    tables = [table for table in (model.embedding and model.embedding.weight, model.static) if table is not None]
    assert len(tables) == (2 if channels == "multichannel" else 1)
    for table in tables:
        assert torch.equal(table[ids], known)
        unknown = table[1::2].detach()
        assert float(unknown.var()) == pytest.approx(float(known.var()), rel=0.05)
        assert float(unknown.abs().max()) <= (3 * float(known.var())) ** 0.5 * 1.01
        assert torch.equal(table, tables[0])


def test_a_static_table_is_no_parameter():
    """No setting can let it learn; it is saved with the model."""
    model = cnn("multichannel")
    names = {name for name, _ in model.named_parameters()}
    assert "static" not in names
    assert "static" in model.state_dict()
    assert {name for name, _ in cnn("static").named_parameters()} == names - {"embedding.weight"}
    assert all(learns(TrainConfig(), name) for name in names)
    with pytest.raises(RamifyError, match=r"model\.channels=static has none"):
        _ = cnn("static").tied_embedding


def test_dropout_is_that_of_the_vector():
    model = CnnConfig(VOCAB, 6, maps=50, dropout=0.5).build().train()
    rows = rows_of(LENGTHS)
    first, second = model.encode_rows(rows), model.encode_rows(rows)
    assert torch.equal(first.last, second.last)
    dropped, whole = model.vector(first), model.eval().vector(first)
    assert torch.equal(dropped[dropped != 0], 2 * whole[dropped != 0])
    assert float((dropped == 0).sum() - (whole == 0).sum()) / float((whole != 0).sum()) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"widths": ()}, r"model\.widths=\[\] must hold at least one width"),
        ({"widths": (3, 0)}, r"model\.widths=\[3, 0\] must hold at least one width, and none below 1"),
        ({"vectors": "a.txt"}, r"model\.vectors=a\.txt needs a table .* model\.channels=rand has none"),
        ({"channels": "static"}, r"model\.channels=static starts with known vectors, but model\.vectors is empty"),
        ({"maps": 0}, r"model\.maps must be at least 1"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(RamifyError, match=message):
        CnnConfig(**settings)


@torch.no_grad()
def test_a_bag_is_the_mean_of_its_embeddings_in_any_order():
    model = BagConfig(VOCAB, 6).build().double()
    rows = rows_of(LENGTHS)
    found = model.vectors(rows)
    for number, ids in enumerate(rows.ids.split(LENGTHS)):
        expected = model.embedding.weight[ids].mean(0) if len(ids) else torch.zeros(6).double()
        torch.testing.assert_close(found[number], expected, rtol=0, atol=1e-14)
        turned = EncoderInput.of_rows(ids.flip(0), Rows.build([len(ids)]))
        torch.testing.assert_close(model.vectors(turned)[0], expected, rtol=0, atol=1e-14)
    known = torch.ones(2, 6)
    model.take_vectors(torch.tensor([3, 7]), known)
    assert torch.equal(model.embedding.weight[[3, 7]], known.double())


def test_weights_of_the_classes_are_bounded_after_an_update():
    """Only those that are longer are shortened, to the bound (section 2.1)."""
    config = ClassificationConfig(classes=("a", "b"), max_norm=3.0)
    words = tokenizer()
    task = Classification(CnnConfig(words.vocab_size, 6, maps=4).build(), words, LabelInput(pair="none"), config)
    with torch.no_grad():
        task.output.weight.copy_(torch.stack([torch.full((12,), 2.0), torch.full((12,), 0.5)]))
        task.after_update("main")
    expected = torch.stack([torch.full((12,), 3 / 12**0.5), torch.full((12,), 0.5)])
    torch.testing.assert_close(task.output.weight.detach(), expected)
    with pytest.raises(RamifyError, match=r"task\.max_norm must be above 0, but is 0"):
        ClassificationConfig(max_norm=0.0)
