"""The comparison of the Transformer with other libraries: both sides do the same work."""

import sys
from pathlib import Path

import torch
from torch import nn

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

sys.path.insert(0, str(BENCHMARKS))
try:
    import translation_speed
finally:
    sys.path.remove(str(BENCHMARKS))


def test_both_sides_have_dropout_in_the_same_places(monkeypatch):
    """Behind the embeddings of both stacks, two sublayers of each encoder layer, and three of each decoder layer."""
    monkeypatch.setattr(translation_speed, "LAYERS", 1)
    model = translation_speed.TorchTransformer().train()
    dropped = []
    for module in model.modules():
        if isinstance(module, nn.Dropout) and module.p:
            module.register_forward_hook(lambda module, inputs, output: dropped.append(output.shape))
    model(torch.full((2, 5), 9), torch.full((2, 4), 9))
    assert [tuple(shape) for shape in dropped] == [(2, 5, 256), (2, 4, 256), *[(2, 5, 256)] * 2, *[(2, 4, 256)] * 3]
    assert all(part.dropout == 0 for part in model.modules() if isinstance(part, nn.MultiheadAttention))
    ours = translation_speed.translator(0.1).backbone.config
    assert (ours.dropout, ours.attention_dropout) == (0.1, 0.0)
