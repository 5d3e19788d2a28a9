"""Time per token of XLNet's cached generation, after a short and after a long text.

    python benchmarks/generation_speed.py
    python benchmarks/generation_speed.py --layers 6

The model has random weights and the sizes of the small recipe (d 256, 4 heads, 8,192 pieces). Two texts have been read, of
100 and of 800 tokens. A step reads one token, scores the next one and takes the likeliest. Steps of the two texts alternate
in one process and one thread; the ratio is the median of paired ratios of process time. Meanwhile, each text grows by
`--repeats` tokens.
"""

import argparse
import json
import statistics
import time
from typing import Any

import numpy as np
import torch

from ramify.batching.encoder_input import EncoderInput
from ramify.batching.views.streams import StreamInput
from ramify.inference.search import GREEDY, Limits, Step, sample
from ramify.models.xlnet import XLNet, XLNetConfig
from ramify.tasks.permutation_lm import PermutationLM, PermutationLMConfig
from ramify.tokenizer import Tokenizer
from rows import add_options, append_rows

LENGTHS = (100, 800)
VOCAB, DIM, HEADS, FFN = 8192, 256, 4, 1024
WARM_UP = 10


def measure(layers: int, repeats: int) -> dict[str, Any]:
    torch.manual_seed(0)
    config = XLNetConfig(vocab_size=VOCAB, dim=DIM, num_layers=layers, num_heads=HEADS, ffn_dim=FFN)
    tokenizer = Tokenizer.train(["a text"], vocab_size=40)
    task = PermutationLM(XLNet(config), tokenizer, StreamInput(), PermutationLMConfig(k=1)).eval()
    random, steps, layout = np.random.default_rng(0), WARM_UP + repeats, tokenizer.layout("plain")
    texts = []
    for length in LENGTHS:
        rows = EncoderInput.of_texts((random.integers(VOCAB, size=length), np.array([length])), layout, None)
        texts.append(sample(task, rows, GREEDY, Limits(), maximums=[steps], seeds=[0]))
    times = np.array([[_timed(text) for text in texts] for _ in range(steps)])[WARM_UP:] * 1000
    short, long = (statistics.median(column) for column in times.T.tolist())
    ratios = (times[:, 1] / times[:, 0]).tolist()
    low, _, high = statistics.quantiles(ratios, n=4)
    return {
        **{f"{length} tokens, ms per token": value for length, value in zip(LENGTHS, (short, long), strict=True)},
        "paired ratio": statistics.median(ratios),
        "lower quartile, ratio": low,
        "upper quartile, ratio": high,
    }


def _timed(text: Any) -> float:
    began = time.process_time()
    step = next(text)
    assert isinstance(step, Step)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=200)
    add_options(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    found = measure(arguments.layers, arguments.repeats)
    print(json.dumps(found | {"processor": torch.backends.cpu.get_cpu_capability()}))
    append_rows(arguments, "generation_speed", f"{arguments.layers} layers", found)


if __name__ == "__main__":
    main()
