"""Properties that a backbone declares hold, and a config builds and initializes its model."""

from dataclasses import replace

import pytest
import torch

from fixtures import bert_task, discussions, forest, tree_task, whole
from ramify import hub
from ramify.batching.text_input import TextInput
from ramify.errors import RamifyError
from ramify.inference.fill_mask import MaskFiller
from ramify.models.base import encode_context
from ramify.models.bert import BertConfig
from ramify.models.tree_mlm import TreeMLMConfig

MAKE = {"bert": bert_task, "tree-mlm": tree_task}


@pytest.fixture(params=MAKE.values(), ids=MAKE)
def task(request):
    return request.param(input=TextInput(max_tokens=32)).eval()


@torch.no_grad()
def test_states_have_the_declared_length(task):
    backbone = task.backbone
    batch = whole(task, forest(discussions(2, 6)))
    assert backbone(batch).tokens.shape == (batch.targets.total, backbone.out_dim)
    assert backbone.vectors(batch.node_context().texts).shape == (len(batch.nodes), backbone.out_dim)
    assert backbone.vector(backbone(batch).encoded(batch)).shape == (len(batch.targets), backbone.out_dim)
    assert backbone.tied_embedding.weight.shape == (backbone.config.vocab_size, backbone.out_dim)


@torch.no_grad()
def test_context_is_read_as_declared(task):
    """Other vectors of the nodes give other states, unless the backbone reads no context."""
    backbone = task.backbone
    batch = whole(task, forest(discussions(2, 6)))
    vectors = encode_context(backbone, batch, 10)
    assert torch.allclose(backbone(batch, vectors=vectors).tokens, backbone(batch).tokens, atol=1e-12)
    other = backbone(batch, vectors=vectors + 1).tokens
    assert torch.equal(other, backbone(batch).tokens) != backbone.reads_context


@torch.no_grad()
def test_state_is_carried_as_declared(task):
    batch = whole(task, forest(discussions(2, 6)))
    assert (task.backbone(batch).state is not None) == task.backbone.carries_state


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_saved_model_initializes_another(tmp_path, make):
    """The checkpoint adapts the settings and fills a model that is built from them; dropout may differ."""
    there = make(dtype=torch.float32, pooling="attn")
    hub.save(MaskFiller(there), tmp_path)
    checkpoint = hub.checkpoint(tmp_path)
    adapted = type(there.backbone.config)().adapted_to(checkpoint)
    assert adapted == there.backbone.config
    own = replace(adapted, dropout=0.3)
    backbone = own.build()
    own.initialize(backbone, checkpoint)
    assert backbone.config.dropout == 0.3
    for name, value in there.backbone.state_dict().items():
        assert torch.equal(backbone.state_dict()[name], value), name
    with pytest.raises(RamifyError, match=r"needs model\.norm = 'post' \(not 'pre'\)"):
        replace(own, norm="pre").initialize(backbone, checkpoint)


def test_initialization_needs_the_same_kind_of_model(tmp_path):
    hub.save(MaskFiller(bert_task(dtype=torch.float32)), tmp_path)
    checkpoint = hub.checkpoint(tmp_path)
    with pytest.raises(RamifyError, match="holds a Bert that Ramify saved; a TreeMLM starts from a TreeMLM"):
        TreeMLMConfig().adapted_to(checkpoint)
    with pytest.raises(RamifyError, match="init_decoder=false needs a tree-mlm run"):
        BertConfig().initialize(None, checkpoint, decoder=False)
