"""TreeMLM as it is before training: what its options start from."""

import pytest
import torch

from fixtures import W, discussion, forest, masked, tokenizer, whole
from ramify.models.tree_mlm import TreeMLM, TreeMLMConfig
from ramify.tasks.masked_lm import MaskedLM
from ramify.views import Reading

READING = Reading(max_tokens=32)


def fresh(**options) -> MaskedLM:
    torch.manual_seed(0)
    sizes = {"dim": 16, "num_heads": 2, "ffn_dim": 32, "encoder_layers": 1, "decoder_layers": 2, "max_tokens": 32}
    config = TreeMLMConfig(vocab_size=tokenizer().vocab_size, dropout=0.0, **sizes, **options)
    return MaskedLM(TreeMLM(config), tokenizer(), READING).double().eval()


def states(task: MaskedLM, seen) -> torch.Tensor:
    task.reading = Reading(max_tokens=32, seen=seen)
    data = forest([discussion(W, lengths=[5] * len(W), seed=4)])
    batch = masked(task, data, whole(task, data))
    found = task.backbone(batch).tokens
    # Batches are laid out by the number of nodes that targets read: put both in the order of the targets.
    owner = torch.from_numpy(batch.source).repeat_interleave(batch.wanted.rows.lengths)
    return found[torch.argsort(owner, stable=True)]


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_zero_cross_attention_starts_as_a_model_without_context(norm):
    task = fresh(cross_init="zero", norm=norm)
    torch.testing.assert_close(states(task, "tree"), states(task, "none"), rtol=0, atol=1e-12)
    usual = fresh(norm=norm)
    assert not torch.allclose(states(usual, "tree"), states(usual, "none"), atol=1e-4)


def test_zero_cross_attention_can_learn():
    """Zero is where it starts, not a fixed point: the output projection has a gradient from the first step on."""
    task = fresh(cross_init="zero")
    data = forest([discussion(W, lengths=[5] * len(W), seed=4)])
    (found,) = task.losses(masked(task, data, whole(task, data)), {"masked_lm": 1.0})
    found["masked_lm"].backward()
    for layer in task.backbone.decoder.layers:
        assert layer.cross.out.weight.grad.abs().max() > 0


@pytest.mark.parametrize(("scale", "deviation"), [(True, 16**-0.5), (False, 0.02)])
def test_embeddings_start_at_the_deviation_that_their_scale_wants(scale, deviation):
    weight = fresh(scale_embedding=scale).backbone.embedding.weight
    assert weight.std().item() == pytest.approx(deviation, rel=0.1)
