"""Compare the Transformer with other libraries: translation with `MarianMTModel`, a training step with `torch.nn.Transformer`.

    python benchmarks/translation_speed.py decode
    python benchmarks/translation_speed.py decode --beam 1
    python benchmarks/translation_speed.py step
    python benchmarks/translation_speed.py step --bucketed

`pip install -e .[bench]` installs the reference of `decode`.

Both sides have the sizes of the small recipe (d 256, 3 + 3 layers, 4 heads) and its 4,096 pieces, share their embeddings, and
take turns in one process and one thread; the ratio is the median of paired ratios of process time. Texts are random tokens,
because words do not change the cost. Their lengths are those of captions: 6 to 30 tokens, 13 on average.

`decode` translates batches of 32. Every translation has exactly 20 tokens on both sides. `step` is forward, backward, clipping
and a fused Adam update on 64 pairs; in `--bucketed` batches, all texts have nearly the same length, so nobody computes padding.
Both sides have dropout behind embeddings and sublayers, and none of attention weights and inside feed-forward layers.
`counted` is the ratio of multiply-adds, which torch counts in a first pass.
"""

import argparse
import json
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ramify.batching.encoder_input import EncoderInput
from ramify.batching.views.pairs import Pair, PairInput
from ramify.inference.search import Beam, Limits, beam_search
from ramify.models.transformer import Transformer, TransformerConfig
from ramify.tasks.next_token import NextTokenConfig, NextTokenLM
from ramify.tokenizer import Tokenizer
from rows import add_options, append_rows

VOCAB, DIM, LAYERS, HEADS, FFN = 4096, 256, 3, 4, 1024
TOKENS = 20
"""Tokens of every translation."""
DECODED, TRAINED = 32, 64
"""Texts in a batch."""
SPECIAL = 8
"""Tokens below this number are special on one of the two sides."""


def lengths(random: np.random.Generator, count: int, bucketed: bool) -> np.ndarray:
    """Lengths like those of captions. In a bucket, they differ by at most one."""
    if bucketed:
        return random.integers(8, 20) + random.integers(0, 2, size=count)
    return np.clip(random.gamma(9.0, 1.45, size=count).astype(np.int64), 6, 30)


def texts(random: np.random.Generator, count: int, bucketed: bool = False) -> list[np.ndarray]:
    return [random.integers(SPECIAL, VOCAB, size=length) for length in lengths(random, count, bucketed)]


def padded(rows: Sequence[np.ndarray], padding: int = 0) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.from_numpy(row) for row in rows], batch_first=True, padding_value=padding)


class Side(ABC):
    """One of the two that are compared."""

    @abstractmethod
    def run(self, batch: Any) -> Any: ...


def translator(dropout: float) -> NextTokenLM:
    torch.manual_seed(0)
    config = TransformerConfig(
        vocab_size=VOCAB,
        dim=DIM,
        num_heads=HEADS,
        ffn_dim=FFN,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        dropout=dropout,
        norm="post",
        position="sinusoidal",
        scale_embedding=True,
        share_embeddings=True,
    )
    tokenizer = Tokenizer.train(["a text"], vocab_size=40)
    return NextTokenLM(Transformer(config), tokenizer, PairInput(), NextTokenConfig(label_smoothing=0.1 if dropout else 0.0))


# --- decoding ----------------------------------------------------------------------------------------------------------


class OurDecoding(Side):
    def __init__(self, beam: int) -> None:
        self.task = translator(0.0).eval()
        self.beam = Beam(beam)
        self.stop = self.task.collator.end

    def run(self, batch: list[np.ndarray]) -> list[int]:
        sources = self.task.collator.sources(batch)
        nothing = np.zeros(0, dtype=np.int64), np.zeros(len(batch), dtype=np.int64)
        prompts = EncoderInput.of_texts(nothing, self.task.tokenizer.layout("plain"), None)
        limits = Limits((self.stop,), min_tokens=TOKENS)
        best = beam_search(self.task, prompts, self.beam, limits, maximums=[TOKENS] * len(batch), source=sources)
        return [len(hypotheses[0].ids) for hypotheses in best]


class Marian(Side):
    def __init__(self, beam: int) -> None:
        from transformers import MarianConfig, MarianMTModel

        torch.manual_seed(0)
        config = MarianConfig(
            vocab_size=VOCAB,
            d_model=DIM,
            encoder_layers=LAYERS,
            decoder_layers=LAYERS,
            encoder_attention_heads=HEADS,
            decoder_attention_heads=HEADS,
            encoder_ffn_dim=FFN,
            decoder_ffn_dim=FFN,
            activation_function="relu",
            scale_embedding=True,
            max_position_embeddings=512,
            pad_token_id=0,
            eos_token_id=1,
            forced_eos_token_id=None,
            decoder_start_token_id=0,
        )
        self.model = MarianMTModel(config).eval()
        self.beam = beam

    def run(self, batch: list[np.ndarray]) -> list[int]:
        ids = padded(batch)
        with torch.no_grad():
            found = self.model.generate(
                ids,
                attention_mask=(ids != 0).long(),
                num_beams=self.beam,
                do_sample=False,
                min_new_tokens=TOKENS,
                max_new_tokens=TOKENS,
                length_penalty=0.6,
            )
        return [len(row) - 1 for row in found.tolist()]


# --- training ----------------------------------------------------------------------------------------------------------


class OurStep(Side):
    def __init__(self) -> None:
        self.task = translator(0.1).train()
        self.optimizer = torch.optim.Adam(self.task.parameters(), lr=1e-4, fused=True)

    def run(self, batch: list[Pair]) -> None:
        tensors = self.task.collator(batch)
        divisors = self.task.counts(tensors, "")
        for losses, _ in self.task.losses(tensors, divisors, "", None, None):
            sum(losses.values()).backward()  # type: ignore[union-attr]
        _update(self.task, self.optimizer)


class TorchTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, DIM)
        nn.init.normal_(self.embedding.weight, std=DIM**-0.5)
        self.layers = nn.Transformer(DIM, HEADS, LAYERS, LAYERS, FFN, dropout=0.1, batch_first=True)
        for part in self.layers.modules():
            # The recipe has no dropout in these places, and on CPU it would take a sixth of the time.
            if isinstance(part, nn.MultiheadAttention):
                part.dropout = 0.0
            elif isinstance(part, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                part.dropout.p = 0.0
        self.dropout = nn.Dropout(0.1)
        self.bias = nn.Parameter(torch.zeros(VOCAB))
        angles = torch.arange(128)[:, None] * torch.exp(torch.arange(0, DIM, 2) * (-np.log(1e4) / DIM))
        self.positions = torch.stack([angles.sin(), angles.cos()], 2).flatten(1)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1], dtype=torch.bool)
        states = self.layers(
            self._embed(source),
            self._embed(target),
            tgt_mask=causal,
            src_key_padding_mask=source == 0,
            tgt_key_padding_mask=target == 0,
            memory_key_padding_mask=source == 0,
            tgt_is_causal=True,
        )
        return nn.functional.linear(states, self.embedding.weight, self.bias)

    def _embed(self, ids: Tensor) -> Tensor:
        return self.dropout(self.embedding(ids) * DIM**0.5 + self.positions[: ids.shape[1]])


class TorchStep(Side):
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = TorchTransformer().train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, fused=True)

    def run(self, batch: list[Pair]) -> None:
        """1 begins and 2 ends a text, and 0 is padding."""
        source = padded([np.append(pair.source, 2) for pair in batch])  # type: ignore[arg-type]
        target = padded([np.concatenate([[1], pair.target, [2]]) for pair in batch])
        scores = self.model(source, target[:, :-1])
        loss = nn.functional.cross_entropy(
            scores.flatten(0, 1), target[:, 1:].flatten(), ignore_index=0, label_smoothing=0.1, reduction="mean"
        )
        loss.backward()
        _update(self.model, self.optimizer)


def _update(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


# --- both --------------------------------------------------------------------------------------------------------------


def compare(ours: Side, theirs: Side, batches: Iterator[Any], repeats: int, name: str) -> dict[str, Any]:
    sides = {"ramify": ours, name: theirs}
    times: dict[str, list[float]] = {side: [] for side in sides}
    first = next(batches)
    counts = {}
    for side, runner in sides.items():
        with FlopCounterMode(display=False) as counter:
            runner.run(first)
        counts[side] = counter.get_total_flops()
    for number in range(repeats + 2):
        batch = next(batches)
        results = []
        for side, runner in sides.items():
            seconds, result = _timed(lambda runner=runner, batch=batch: runner.run(batch))
            results.append(result)
            times[side] += [seconds] if number >= 2 else []
        assert results[0] == results[1], "the sides have made different numbers of tokens"
    ratios = [other / own for other, own in zip(times[name], times["ramify"], strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    return {
        "speed-up": statistics.median(ratios),
        "lower quartile, speed-up": low,
        "upper quartile, speed-up": high,
        "counted, speed-up": counts[name] / counts["ramify"],
        **{f"{side}, ms per batch": 1000 * statistics.median(each) for side, each in times.items()},
    }


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    result = call()
    return time.process_time() - began, result


def decode(arguments: argparse.Namespace) -> None:
    random = np.random.default_rng(0)
    batches = (texts(random, DECODED) for _ in iter(int, 1))
    figures = compare(OurDecoding(arguments.beam), Marian(arguments.beam), batches, arguments.repeats, "MarianMT")
    show(arguments, f"decoding, beam {arguments.beam}", figures)


def step(arguments: argparse.Namespace) -> None:
    random = np.random.default_rng(0)

    def batch() -> list[Pair]:
        bucketed = arguments.bucketed
        if not bucketed:
            return [Pair(*pair) for pair in zip(texts(random, TRAINED), texts(random, TRAINED), strict=True)]
        source = texts(random, TRAINED, bucketed=True)
        return [Pair(random.integers(SPECIAL, VOCAB, size=len(text)), text) for text in source]

    batches = (batch() for _ in iter(int, 1))
    figures = compare(OurStep(), TorchStep(), batches, arguments.repeats, "nn.Transformer")
    show(arguments, "training step, lengths bucketed" if arguments.bucketed else "training step", figures)


def show(arguments: argparse.Namespace, row: str, figures: dict[str, Any]) -> None:
    print(json.dumps(figures | {"processor": torch.backends.cpu.get_cpu_capability()}))
    append_rows(arguments, "translation_speed", row, figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    decode_ = commands.add_parser("decode", help="against MarianMT")
    decode_.add_argument("--beam", type=int, default=4)
    decode_.add_argument("--repeats", type=int, default=20)
    decode_.set_defaults(call=decode)
    step_ = commands.add_parser("step", help="against torch.nn.Transformer")
    step_.add_argument("--bucketed", action="store_true")
    step_.add_argument("--repeats", type=int, default=40)
    step_.set_defaults(call=step)
    for command in (decode_, step_):
        add_options(command)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    arguments.call(arguments)


if __name__ == "__main__":
    main()
