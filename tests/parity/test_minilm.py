"""all-MiniLM-L6-v2, loaded by Ramify, against the same files in transformers."""

import numpy as np
import pytest
import torch

import ramify
from ramify.batching.batch import Collator
from ramify.batching.encoder_input import EncoderInput
from ramify.batching.views.comment_trees import Discussions, units
from ramify.disentangle.batch import LinkCollator
from ramify.disentangle.config import ChatInput
from ramify.disentangle.data.blocks import Blocks
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.pieces import format_message
from ramify.disentangle.models.bert_pair import BertPair, BertPairConfig
from ramify.models import bert, bert_family
from ramify.models.base import Checkpoint
from ramify.models.tree_mlm import TreeMLM, TreeMLMConfig, config_from_bert, init_from_bert
from ramify.nn.ragged import Rows
from ramify.tokenizer import Tokenizer
from ramify.tree import Node, Tree

transformers = pytest.importorskip("transformers", reason="parity needs transformers: pip install 'ramify[hf]'")

TEXTS = [
    "Why does my crust go soft an hour out of the oven?",
    "",
    "yes",
    "Flour, water, salt: three things, and time does the rest. " * 12,
    "Ünïcode, numbers 1234, and [MASK] spelled out.",
    "An answer that nobody asked for; " * 60,
]


@pytest.fixture(scope="module")
def theirs(minilm):
    return transformers.AutoModel.from_pretrained(minilm, attn_implementation="eager").eval()


@pytest.fixture(scope="module")
def ours(minilm):
    return ramify.load(minilm)


@pytest.fixture(scope="module")
def last_hidden(minilm, theirs):
    """[text, token, 384] of transformers, padded, with its mask; texts are cut as the sentence-transformers directory
    specifies."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    plain = [text.replace("[MASK]", "[mask]") for text in TEXTS]
    batch = tokenizer(plain, padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.no_grad():
        return theirs(**batch).last_hidden_state, batch["attention_mask"]


def tree(texts):
    return Tree(tuple(Node(text, () if number == 0 else (0,), id=str(number)) for number, text in enumerate(texts)), id="t")


def whole_batch(model, texts):
    own = model.forest([tree(texts)])
    view = Discussions(own, units(own, [0], predict_post=True), model.input)
    return Collator(own, model.tokenizer, model.input)([view.example(0)])


def test_last_hidden_state(ours, last_hidden):
    batch = whole_batch(ours, [text.replace("[MASK]", "[mask]") for text in TEXTS])
    with torch.no_grad():
        rows = torch.split(ours.backbone(batch).tokens, batch.targets.host_lengths.tolist())
    states, mask = last_hidden
    for node, row in zip(batch.source.tolist(), rows, strict=True):
        expected = states[node][mask[node].bool()]
        assert row.shape == expected.shape
        torch.testing.assert_close(row, expected, rtol=0, atol=1e-5)
    assert max(map(len, rows)) == 256


def test_sentence_embeddings(ours, last_hidden):
    """`embed` pools and normalises as the directory specifies: mean over tokens, length 1."""
    states, mask = last_hidden
    mean = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    expected = torch.nn.functional.normalize(mean, dim=1).numpy()
    found = ours.embed(tree([text.replace("[MASK]", "[mask]") for text in TEXTS]))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-6)


def test_the_pooler(minilm, theirs):
    """BERT's own pooler, which sentence-transformers does not use for this checkpoint."""
    tokenizer = Tokenizer.load(minilm)
    model = bert.from_pretrained(minilm, pooling="pooler").eval()
    rows = [torch.tensor([tokenizer.cls_id, *tokenizer.encode(text)[:254], tokenizer.sep_id]) for text in TEXTS]
    with torch.no_grad():
        found = model.vectors(EncoderInput.of_rows(torch.cat(rows), Rows.build([len(row) for row in rows])))
        expected = torch.cat([theirs(row[None]).pooler_output for row in rows])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_pairs(minilm, theirs):
    """Two texts as one row, cut as transformers cuts them, with their token types."""
    texts = [text.replace("[MASK]", "[mask]") for text in TEXTS]
    nodes = tuple(Node(text, None, author="ann", time=60.0 * number) for number, text in enumerate(texts))
    tokenizer = Tokenizer.load(minilm)
    logs = Logs.build([Tree(nodes, id="log")], ChatInput(texts="pieces", max_tokens=256)).tokenize(tokenizer)
    view = Blocks(logs, np.arange(len(nodes)), block=4)
    batch = LinkCollator(logs)([view.example(number) for number in range(len(view))])
    encoder = bert.from_pretrained(minilm, pooling="pooler", max_tokens=65).config
    own = BertPair(BertPairConfig(encoder=encoder, chunk_tokens=200)).eval()
    bert.load_pretrained(own.encoder, Checkpoint(str(minilm), minilm, None))
    pairs = [
        (format_message(nodes[candidate], author=True), format_message(nodes[target], author=True))
        for target in range(len(nodes))
        for candidate in range(target, -1, -1)
    ]
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    rows = their_tokenizer(pairs, padding=True, truncation=True, max_length=65, return_tensors="pt")
    with torch.no_grad():
        torch.testing.assert_close(own(batch), theirs(**rows).pooler_output, rtol=0, atol=1e-5)
    assert rows["attention_mask"].sum(1).max() == 65


def test_cut_texts_are_counted(ours):
    own = ours.forest([tree(TEXTS)])
    assert own.cut["texts_over"] == 1
    assert own.cut["tokens_over"] == max(own.length) - 254 > 0


def test_unsupported_verbs_are_refused(ours):
    with pytest.raises(ramify.RamifyError, match="has no fill_mask; it can embed"):
        ours.fill_mask(tree(TEXTS), "0")
    with pytest.raises(ramify.RamifyError, match="embeds texts alone"):
        ours.embed(tree(TEXTS), context="tree")


def test_tree_mlm_starts_from_minilm(minilm, ours):
    """The encoder gives the checkpoint's own vectors, and the decoder's layers start as its layers."""
    sizes = config_from_bert(bert_family.read_config(minilm))
    torch.manual_seed(0)
    model = TreeMLM(TreeMLMConfig(**sizes, max_tokens=256)).eval()
    init_from_bert(model, minilm)
    batch = whole_batch(ours, TEXTS[:3])
    with torch.no_grad():
        states = ours.backbone(batch)
        torch.testing.assert_close(
            model.vectors(batch.rows(context=False)), ours.backbone.vector(states.encoded(batch)), rtol=0, atol=1e-5
        )
    table = model.state_dict()
    assert torch.equal(table["embedding.weight"], ours.backbone.embedding.weight)
    assert torch.equal(table["decoder.layers.3.attention.query.weight"], table["encoder.layers.3.attention.query.weight"])


def test_output_attention_starts_fresh_beside_minilm(minilm, ours):
    """Its P starts at twice the identity. All weights of the checkpoint are those of the model without it."""
    sizes = config_from_bert(bert_family.read_config(minilm)) | {"decoder_layers": 1, "max_tokens": 64}
    tables = []
    for output_attention in (False, True):
        torch.manual_seed(0)
        model = TreeMLM(TreeMLMConfig(**sizes, output_attention=output_attention)).eval()
        init_from_bert(model, minilm)
        tables.append(model.state_dict())
        batch = whole_batch(ours, TEXTS[:3])
        with torch.no_grad():
            expected = ours.backbone.vector(ours.backbone(batch).encoded(batch))
            torch.testing.assert_close(model.vectors(batch.rows(context=False)), expected, rtol=0, atol=1e-5)
    paper, more = tables
    assert torch.equal(more["output_attention.value.weight"], 2 * torch.eye(384))
    # The checkpoint has no cross-attention, no null row and no output attention, so these are drawn.
    fresh = {name for name in more if ".cross" in name or name == "null" or name.startswith("output_attention.")}
    assert fresh < more.keys()
    assert all(torch.equal(more[name], paper[name]) for name in more.keys() - fresh)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dim": 192}, r"model\.dim = 384"),
        ({"norm": "pre"}, r"model\.norm = 'post'"),
        ({"encoder_layers": 3}, r"model\.encoder_layers = 6 \(not 3\)"),
        ({"decoder_layers": 7}, r"model\.decoder_layers=7 is above the 6 layers"),
        ({"vocab_size": 100}, r"model\.vocab_size = 30522"),
    ],
)
def test_mismatched_sizes_are_named(minilm, change, message):
    sizes = config_from_bert(bert_family.read_config(minilm)) | {"num_heads": 12} | change
    with pytest.raises(ramify.RamifyError, match=message):
        init_from_bert(TreeMLM(TreeMLMConfig(**sizes, max_tokens=128)), minilm)


def test_fewer_decoder_layers_take_the_lowest(minilm):
    sizes = config_from_bert(bert_family.read_config(minilm)) | {"decoder_layers": 2}
    model = TreeMLM(TreeMLMConfig(**sizes, max_tokens=64))
    init_from_bert(model, minilm)
    table = model.state_dict()
    assert torch.equal(table["decoder.layers.1.ffn_in.weight"], table["encoder.layers.1.ffn_in.weight"])


def test_encoder_only(minilm):
    sizes = config_from_bert(bert_family.read_config(minilm))
    torch.manual_seed(0)
    model = TreeMLM(TreeMLMConfig(**sizes, max_tokens=64, share_embeddings=False))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    init_from_bert(model, minilm, decoder=False)
    after = model.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert all(name.startswith(("encoder.", "encoder_embeddings.")) for name in moved)
    assert "encoder_embeddings.tokens.weight" in moved
