"""Frozen layers as features of a task's model: the body stays as it is, and γ and s are learned with the task."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fixtures import bert_task
from fixtures import tokenizer as words
from fixtures.running import elmo_task, tokenizer
from ramify.batching.batch import AnyBatch
from ramify.batching.encoder_input import EncoderInput
from ramify.batching.views.base import View
from ramify.models.bag import BagConfig
from ramify.models.cnn import CnnConfig
from ramify.models.features import FrozenFeatures
from ramify.models.recurrent import RecurrentConfig, Seq2SeqConfig
from ramify.nn.ragged import Rows
from ramify.nn.recurrent import BiLSTM
from ramify.tasks.base import Readings, Task
from ramify.tasks.constants import Frequencies
from ramify.training.config import TrainConfig
from ramify.training.stage import Stage
from ramify.training.trainer import Trainer

TAGS = 3


@dataclass(frozen=True)
class TaggedRows(AnyBatch):
    rows: EncoderInput
    tags: torch.Tensor

    device = property(lambda self: self.tags.device)
    num_targets = property(lambda self: len(self.rows.rows))
    num_target_tokens = property(lambda self: len(self.tags))


class Tagger(Task[TaggedRows]):
    """A BiLSTM over word vectors and frozen features, with other features beside its states."""

    def __init__(self, backbone, **options):
        super().__init__()
        self.features = FrozenFeatures(backbone, outputs=2, **options)
        self.embedding = nn.Embedding(backbone.config.vocab_size, 4)
        self.encoder = BiLSTM(4 + self.features.dim, 6)
        self.out = nn.Linear(self.encoder.out_dim + self.features.dim, TAGS)

    def corrupt(self, batch, generator):
        return batch

    def counts(self, batch, phase):
        return {"tag": float(len(batch.tags))}

    def predict(self, batch):
        below, beside = self.features(batch.rows)
        read = torch.cat([self.embedding(batch.rows.ids), below], 1)
        return self.out(torch.cat([self.encoder(read, batch.rows.rows), beside], 1))

    def losses(self, batch, divisors, phase, state, shared):
        loss = F.cross_entropy(self.predict(batch), batch.tags, reduction="sum") / divisors["tag"]
        yield {"tag": loss + self.features.penalty()}, None

    def readings(self, batch, phase, state, shared):
        named, _ = next(iter(self.losses(batch, {"tag": 1.0}, phase, state, shared)))
        return Readings(named, {"tag": Frequencies.of(batch.tags, torch.ones(len(batch.tags)), TAGS)})


class Sentences(View):
    """Random sentences, whose tokens have tags by their ids."""

    def __init__(self, vocab_size):
        random = np.random.default_rng(0)
        self.texts = [random.integers(7, vocab_size, size=1 + number % 6).tolist() for number in range(16)]

    costs = property(lambda self: np.array([len(text) for text in self.texts]))
    sizes = weights = target_tokens = costs

    def __len__(self):
        return len(self.texts)

    def example(self, number, epoch=0):
        return self.texts[number]

    def collate(self, texts):
        ids = torch.tensor([token for text in texts for token in text])
        return TaggedRows(EncoderInput.of_rows(ids, Rows.build([len(text) for text in texts])), ids % TAGS)


def body(name):
    return elmo_task().backbone if name == "elmo" else bert_task().float().backbone


def tagger(name, **options):
    torch.manual_seed(0)
    return Tagger(body(name), **options)


@pytest.mark.parametrize("name", ["elmo", "bert"])
def test_a_task_step_changes_the_mix_and_not_the_body(name, tmp_path):
    """Mixes work on any body with layers of one width."""
    task = tagger(name, layer_norm=name == "elmo", l2=0.01)
    sentences = Sentences(words().vocab_size if name == "bert" else tokenizer().vocab_size)
    before = {name: tensor.clone() for name, tensor in task.state_dict().items()}
    config = TrainConfig(steps=30, budget=30, lr=0.02, warmup=0.0, weight_decay=0.01, log_every=1)
    losses = []
    trainer = Trainer(
        task,
        [Stage(config, sentences, sentences.collate)],
        tmp_path,
        seed=0,
        cpu=True,
        report=lambda record: losses.append(record["loss"]),
    )
    trainer.run(until=1)
    for key, tensor in task.state_dict().items():
        if key.startswith("features.backbone."):
            assert torch.equal(tensor, before[key]), key
        else:
            assert not torch.equal(tensor, before[key]), key
    trainer.run()
    assert np.mean(losses[-5:]) < 0.8 * losses[0]
    assert all(torch.equal(tensor, before[key]) for key, tensor in task.state_dict().items() if "backbone" in key)


def test_features_are_the_layers_without_the_dropout_of_the_body():
    backbone = elmo_task(dropout=0.5).backbone
    features = FrozenFeatures(backbone, dropout=0.0).train()
    rows = Sentences(tokenizer().vocab_size).collate([[9, 8, 7], [10]]).rows
    (one,), (other,) = features(rows), features(rows)
    assert torch.equal(one, other)
    assert one.shape == (4, features.dim)
    layers = backbone.eval().encode_rows(rows, layers=True).layers
    torch.testing.assert_close(one, torch.stack(layers).mean(0), rtol=0, atol=1e-6)
    assert not any(parameter.requires_grad for parameter in backbone.parameters())


@pytest.mark.parametrize(
    "config",
    [
        RecurrentConfig(12, 5, hidden=4, num_layers=2, dropout=0.0),
        Seq2SeqConfig(12, 5, hidden=8, encoder_layers=2, dropout=0.0),
        CnnConfig(12, 5, maps=2),
        BagConfig(12, 5),
    ],
    ids=lambda config: type(config).__name__,
)
def test_an_embedding_of_another_width_is_left_out(config):
    """The others are mixed, so every body has features."""
    backbone = config.build()
    features = FrozenFeatures(backbone, dropout=0.0)
    rows = Sentences(12).collate([[9, 8, 7], [10]]).rows
    widths, layers = backbone.layer_dims(), backbone.encode_rows(rows, layers=True).layers
    used = [layer for layer, width in zip(layers, widths, strict=True) if width == widths[-1]]
    assert len(features.mixes.mixes[0].logits) == len(used)
    assert features.dim == widths[-1]
    torch.testing.assert_close(features(rows)[0], torch.stack(used).mean(0), rtol=0, atol=1e-6)
