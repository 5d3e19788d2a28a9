"""Compare a label task with transformers: a step of fine-tuning with its `Trainer`, and prediction with its model.

    python benchmarks/label_speed.py step
    python benchmarks/label_speed.py predict

`pip install -e .[bench]` installs the reference. Both sides are a BERT with MiniLM's sizes (6 layers of 384) and two classes,
and take turns in one process and one thread; the ratio is the median of paired ratios of process time. Texts are random tokens
with the lengths of SST-2: those of its training phrases in `step`, those of its dev sentences in `predict`.

`step` is a forward and a backward pass, clipping and an AdamW update of 32 texts in random order, which `Trainer` pads to the
longest. `predict` labels 512 texts. Both sides sort them by length; the other one pads batches of 32. `counted` is the ratio of
multiply-adds, which torch counts in a first pass.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ramify.batching.encoder_input import EncoderInput
from ramify.batching.labelled_batch import LabelledBatch
from ramify.batching.views.labelled import LabelInput
from ramify.models.bert import BertConfig
from ramify.nn.ragged import runs
from ramify.tasks.classification import Classification, ClassificationConfig
from ramify.tokenizer import Tokenizer
from rows import add_options, append_rows
from translation_speed import Side, compare, padded

VOCAB, DIM, LAYERS, HEADS, FFN = 30_522, 384, 6, 12, 1536
DROPOUT = 0.1
TRAINED, PREDICTED = 32, 512
TOKENS = 16_384
"""Tokens that one batch of a prediction holds on our side."""
PHRASES = (3, 4, 6, 7, 8, 10, 13, 16, 20, 27, 66)
SENTENCES = (4, 12, 16, 19, 21, 25, 27, 30, 34, 40, 55)
"""Deciles of the lengths of SST-2's rows in MiniLM's pieces, special tokens included."""
SPECIAL = 1_000
"""Tokens below this number are special."""
TOKENIZER = Tokenizer.train(["a text"], vocab_size=40)
PLAIN = TOKENIZER.layout("plain")
"""The random tokens of a row stand for its special tokens, too."""


def texts(random: np.random.Generator, count: int, deciles: tuple[int, ...]) -> list[np.ndarray]:
    shares = random.random(count)
    lengths = np.interp(shares, np.linspace(0, 1, len(deciles)), deciles).round().astype(np.int64)
    return [random.integers(SPECIAL, VOCAB, size=length) for length in lengths]


class Ours(Side):
    def __init__(self) -> None:
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=VOCAB,
            dim=DIM,
            num_layers=LAYERS,
            num_heads=HEADS,
            ffn_dim=FFN,
            dropout=DROPOUT,
            attention_dropout=DROPOUT,
            position="learned",
            norm="post",
        )
        settings = ClassificationConfig(classes=("bad", "good"), head="pooler")
        self.task = Classification(config.build(), TOKENIZER, LabelInput(pair="none"), settings)


class OurStep(Ours):
    def __init__(self) -> None:
        super().__init__()
        self.task.train()
        self.optimizer = torch.optim.AdamW(self.task.parameters(), lr=1e-5, fused=True)

    def run(self, batch: tuple[list[np.ndarray], np.ndarray]) -> None:
        rows, labels = batch
        tensors = batch_of(rows, labels)
        divisors = self.task.counts(tensors, "")
        for losses, _ in self.task.losses(tensors, divisors, "", None, None):
            sum(losses.values()).backward()  # type: ignore[union-attr]
        nn.utils.clip_grad_norm_(self.task.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class OurPrediction(Ours):
    def run(self, batch: list[np.ndarray]) -> int:
        order = np.argsort([len(row) for row in batch], kind="stable")
        lengths = np.array([len(batch[number]) for number in order])
        done = 0
        with torch.no_grad(), self.task.evaluating():
            for start, stop in runs(lengths, TOKENS):
                done += len(self.task.scores(batch_of([batch[number] for number in order[start:stop]])))
        return done


def batch_of(rows: list[np.ndarray], labels: np.ndarray | None = None) -> LabelledBatch:
    lengths = np.array([len(row) for row in rows])
    input = EncoderInput.of_texts((np.concatenate(rows), lengths), PLAIN, None)
    targets = None if labels is None else torch.from_numpy(labels[input.source])
    return LabelledBatch(input, targets, input.source)


def reference() -> Any:
    from transformers import BertConfig as Config
    from transformers import BertForSequenceClassification

    torch.manual_seed(0)
    return BertForSequenceClassification(
        Config(
            vocab_size=VOCAB,
            hidden_size=DIM,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            intermediate_size=FFN,
            hidden_dropout_prob=DROPOUT,
            attention_probs_dropout_prob=DROPOUT,
            num_labels=2,
        )
    )


def inputs(rows: list[np.ndarray]) -> dict[str, Tensor]:
    ids = padded(rows)
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


class TrainerStep(Side):
    def __init__(self, folder: str) -> None:
        from transformers import Trainer, TrainingArguments

        settings = TrainingArguments(folder, use_cpu=True, learning_rate=1e-5, optim="adamw_torch_fused", report_to=[])
        self.trainer = Trainer(reference(), settings)
        self.trainer.create_optimizer()
        # Its own loop sets this before the first step.
        self.trainer.current_gradient_accumulation_steps = 1
        self.model = self.trainer.model.train()

    def run(self, batch: tuple[list[np.ndarray], np.ndarray]) -> None:
        rows, labels = batch
        self.trainer.training_step(self.model, inputs(rows) | {"labels": torch.from_numpy(labels)})
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.trainer.optimizer.step()
        self.model.zero_grad(set_to_none=True)


class Prediction(Side):
    def __init__(self) -> None:
        self.model = reference().eval()

    def run(self, batch: list[np.ndarray]) -> int:
        rows = sorted(batch, key=len)
        with torch.no_grad():
            return sum(
                len(self.model(**inputs(rows[start : start + TRAINED])).logits) for start in range(0, len(rows), TRAINED)
            )


def step(arguments: argparse.Namespace) -> None:
    random = np.random.default_rng(0)
    batches: Iterator[Any] = ((texts(random, TRAINED, PHRASES), random.integers(0, 2, size=TRAINED)) for _ in iter(int, 1))
    with tempfile.TemporaryDirectory() as folder:
        figures = compare(OurStep(), TrainerStep(folder), batches, arguments.repeats, "Trainer")
    show(arguments, "fine-tuning step", figures)


def predict(arguments: argparse.Namespace) -> None:
    random = np.random.default_rng(0)
    batches: Iterator[Any] = (texts(random, PREDICTED, SENTENCES) for _ in iter(int, 1))
    show(arguments, "prediction", compare(OurPrediction(), Prediction(), batches, arguments.repeats, "transformers"))


def show(arguments: argparse.Namespace, row: str, figures: dict[str, Any]) -> None:
    print(json.dumps(figures | {"processor": torch.backends.cpu.get_cpu_capability()}))
    append_rows(arguments, "label_speed", row, figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, call, repeats in (("step", step, 40), ("predict", predict, 12)):
        command = commands.add_parser(name)
        command.add_argument("--repeats", type=int, default=repeats)
        command.set_defaults(call=call)
        add_options(command)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    arguments.call(arguments)


if __name__ == "__main__":
    main()
