"""The Masked Hierarchical Transformer: its mask as in the paper, its states against a plain computation for each target, and
the inputs that a state depends on."""

import math
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import ramify
from fixtures import channel
from ramify import hub
from ramify.batching.encoder_input import EncoderInput
from ramify.config import from_record
from ramify.disentangle.batch import LinkBatch, LinkCollator
from ramify.disentangle.config import ChatInput
from ramify.disentangle.data.blocks import Blocks
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.pieces import format_message
from ramify.disentangle.data.structure import ReplyStructure
from ramify.disentangle.data.words import learn_vocabulary
from ramify.disentangle.features.context import CONTEXT_FEATURES
from ramify.disentangle.features.pairs import YEARS, compute_features
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.vectors import encode_messages
from ramify.disentangle.models.mht import MaskedHierarchicalTransformer, MHTConfig
from ramify.disentangle.task import ReplyLinking
from ramify.errors import RamifyError
from ramify.models.bert import BertConfig
from ramify.nn.ragged import Rows
from ramify.tokenizer import Tokenizer
from ramify.tree import Tree

INPUT = ChatInput(window=11, texts="pieces", max_tokens=12)


def words_of(tree: Tree) -> Tokenizer:
    """Every word of a log is one piece."""
    return learn_vocabulary((format_message(node, author=True).lower().split() for node in tree.nodes), min_count=1)


@cache
def tokenizer() -> Tokenizer:
    return words_of(channel(60, 0))


def read(*trees: Tree, input: ChatInput = INPUT) -> Logs:
    return Logs.build(trees, input).tokenize(tokenizer())


def linked(*links: tuple[int, ...]) -> Tree:
    """A chat whose message i has the parents `links[i]`, and also starts a conversation if i is among them."""
    nodes = channel(len(links), 0).nodes
    return Tree(
        tuple(
            replace(node, parents=tuple(parent for parent in own if parent != number), self_link=number in own)
            for number, (node, own) in enumerate(zip(nodes, links, strict=True))
        ),
        id="log",
    )


def drawn_links(number: int, seed: int = 0) -> Tree:
    """A chat with up to three parents per message."""
    random = np.random.default_rng(seed)
    links = [
        tuple(sorted({*random.integers(max(0, i - 6), i, size=random.integers(4)).tolist()})) if i else ()
        for i in range(number)
    ]
    return linked(*links)


def batch_of(logs: Logs, *targets: int, block: int = 5, context_features: bool = False) -> LinkBatch:
    """A batch of these messages (all by default) with the known links, in double precision."""
    view = Blocks(logs, np.array(targets or range(len(logs))), block=block)
    collate = LinkCollator(logs, structure=ReplyStructure.from_gold(logs), context_features=context_features)
    return double(collate([view.example(number) for number in range(len(view))]))


def double(batch: LinkBatch) -> LinkBatch:
    names = ("child_features", "parent_features", "self_features", "pair_features", "target_probability")
    return replace(batch, **{name: getattr(batch, name).double() for name in names})


def with_vectors(batch: LinkBatch, seed: int = 3) -> LinkBatch:
    """The batch with random vectors in place of encoded messages."""
    generator = torch.Generator().manual_seed(seed)
    return replace(batch, vectors=torch.randn(len(batch.messages), 8, generator=generator, dtype=torch.float64))


def model(**changes: object) -> MaskedHierarchicalTransformer:
    """A model of some thousand parameters, without dropout, with larger weights than training starts from."""
    torch.manual_seed(1)
    encoder = BertConfig(
        vocab_size=tokenizer().vocab_size, dim=8, num_layers=1, num_heads=2, ffn_dim=16, max_tokens=12, pooling="pooler"
    )
    sizes = {
        "encoder": encoder,
        "dim": 12,
        "num_layers": 2,
        "num_heads": 3,
        "ffn_dim": 16,
        "feature_hidden": 10,
        "dropout": 0.0,
    }
    own = MaskedHierarchicalTransformer(MHTConfig(**(sizes | changes)))  # pyright: ignore[reportArgumentType]
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return own.double().eval()


# --- the mask -----------------------------------------------------------------------------------------------------------------

WORKED = linked((), (0,), (0,), (1,), ())
"""Message 1, 2 answers 1, 3 answers 1, 4 answers 2; the target is 5."""
CHAIN = linked((), (0,), (1,), (2,), ())
TWO_PARENTS = linked((), (1,), (0, 1), (0, 2), ())
"""Two messages start; 3 answers both, 4 answers 1 and 3: 1 is both one link and two links above 4."""


@pytest.mark.parametrize(
    ("tree", "config", "drawn"),
    [
        pytest.param(WORKED, {}, "10001 11001 10101 11011 00001", id="the worked example"),
        pytest.param(WORKED, {"depth": 1}, "10001 11001 10101 01011 00001", id="the worked example, one link up"),
        pytest.param(CHAIN, {"depth": 2}, "10001 11001 11101 01111 00001", id="a chain, two links up"),
        pytest.param(CHAIN, {}, "10001 11001 11101 11111 00001", id="a chain"),
        pytest.param(TWO_PARENTS, {}, "10001 01001 11101 11111 00001", id="two parents"),
        pytest.param(
            TWO_PARENTS, {"depth": 1}, "10001 01001 11101 10111 00001", id="two parents, one link up on the shortest path"
        ),
        pytest.param(CHAIN, {"mask": "temporal", "span": 1}, "10001 11001 01101 00111 00001", id="the message before"),
        pytest.param(WORKED, {"mask": "temporal", "span": 2}, "10001 11001 11101 01111 00001", id="two messages before"),
        pytest.param(WORKED, {"mask": "temporal", "span": 3}, "10001 11001 11101 11111 00001", id="three messages before"),
        pytest.param(WORKED, {"mask": "none"}, "11111 11111 11111 11111 11111", id="no mask"),
    ],
)
def test_mask_equals_the_paper(tree: Tree, config: dict[str, object], drawn: str) -> None:
    own = model(**config)
    (block,) = own.build_mask(batch_of(read(tree), 4))
    # The paper's rows and columns go from the oldest message to the newest.
    assert block[0].flip(0, 1).int().tolist() == [[int(digit) for digit in row] for row in drawn.split()]


@pytest.mark.parametrize("config", [{}, {"depth": 2}, {"mask": "temporal", "span": 2}, {"mask": "none"}], ids=str)
def test_mask_does_not_depend_on_other_targets(config: dict[str, object]) -> None:
    own, logs = model(**config), read(drawn_links(13, 1), drawn_links(6, 2))
    batch = batch_of(logs)
    blocks = own.build_mask(batch)
    assert len(blocks) == len(batch.candidates.groups) > 2
    padded = 0
    for group, block in zip(batch.candidates.groups, blocks, strict=True):
        for target, mask in zip(range(group.start, group.stop), block, strict=True):
            size = int(batch.candidates.host_lengths[target])
            ((alone,),) = own.build_mask(batch_of(logs, target))
            assert torch.equal(mask[:size, :size], alone)
            # A padding place reads only itself, so that its row is not empty, and no other place reads it.
            assert torch.equal(mask[:, size:], torch.eye(group.length, dtype=torch.bool)[:, size:])
            padded += group.length - size
    assert padded > 10


def test_only_the_ancestor_mask_reads_structure() -> None:
    batch = replace(batch_of(read(drawn_links(5))), ancestor_distance=None)
    for mask in ("temporal", "none"):
        own = model(mask=mask)
        assert not own.reads_structure
        assert own(batch).shape == (15, 12)
    assert model().reads_structure


# --- the whole model ----------------------------------------------------------------------------------------------------------


def ancestors(links: list[tuple[int, ...]], message: int, depth: int) -> set[int]:
    """All ancestors of a message up to `depth` links away (0: any number)."""
    found: set[int] = set()
    level = {message}
    steps = 0
    while level and (steps < depth or not depth):
        level = {parent for each in level for parent in links[each] if parent != each} - found
        found |= level
        steps += 1
    return found


def plainly(own: MaskedHierarchicalTransformer, tree: Tree, target: int) -> Tensor:
    """States of the candidates of one target alone, in the paper's order: the oldest first, the target last."""
    config, logs = own.config, read(tree)
    messages = list(range(max(0, target - INPUT.window), target + 1))
    last = len(messages) - 1
    rows = [
        torch.from_numpy(logs.ids[logs.token_offsets[each] : logs.token_offsets[each + 1]].astype(np.int64))
        for each in messages
    ]
    vectors = torch.cat([own.encoder.vectors(EncoderInput.of_rows(row, Rows.build([len(row)]))) for row in rows])
    x = F.linear(vectors, own.projection.weight, own.projection.bias)
    for place in range(len(messages)):
        if config.position == "sinusoidal":
            back = min(last - place, config.max_history - 1)
            for column in range(config.dim):
                angle = back / 10000 ** ((column - column % 2) / config.dim)
                x[place, column] += math.cos(angle) if column % 2 else math.sin(angle)
        elif own.positions is not None:
            number = last - place if config.position == "distance" else place
            x[place] += own.positions.weight[min(number, config.max_history - 1)]
    known = torch.from_numpy(compute_features(logs.channels[0], np.array([target]), np.array([messages]))[0]).double()
    if not config.years:
        known[:, : len(YEARS)] = 0
    if config.context_features:
        # Newest first, as the collator orders them; their values are tested in test_context_features.py.
        around = batch_of(logs, target, context_features=True).pair_features[:, -len(CONTEXT_FEATURES) :]
        known = torch.cat([known, around.flip(0)], dim=1)
    if own.feature_map is not None:
        x = x + F.linear(known, own.feature_map.weight, own.feature_map.bias)
    links = [node.parents or () for node in tree.nodes]
    mask = torch.zeros(len(messages), len(messages), dtype=torch.bool)
    for i, reader in enumerate(messages):
        parent = ancestors(links, reader, config.depth)
        for j, seen in enumerate(messages):
            if config.mask == "none" or i == j:
                mask[i, j] = True
            elif reader != target:
                mask[i, j] = seen == target or (seen in parent if config.mask == "ancestors" else 0 < i - j <= config.span)
    for layer in own.stack.layers:
        x = plain_layer(layer, x, mask, config)
    if own.fusion is None:
        return x
    x = torch.cat([known, x], dim=1)
    for layer in own.fusion.layers:
        x = F.gelu(F.linear(x, layer.weight, layer.bias))
    return x


def plain_layer(layer: torch.nn.Module, x: Tensor, mask: Tensor, config: MHTConfig) -> Tensor:
    weights = dict(layer.named_parameters())

    def linear(name: str, x: Tensor) -> Tensor:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(name: str, x: Tensor) -> Tensor:
        return F.layer_norm(x, (config.dim,), weights[f"{name}.weight"], weights[f"{name}.bias"], config.eps)

    query, (key, value) = linear("attention.query", x), linear("attention.key_value", x).split(config.dim, dim=1)
    heads = []
    for q, k, v in zip(*(each.chunk(config.num_heads, dim=1) for each in (query, key, value)), strict=True):
        scores = (q @ k.T / math.sqrt(config.dim / config.num_heads)).masked_fill(~mask, -math.inf)
        heads.append(scores.softmax(1) @ v)
    x = norm("attention_norm", x + linear("attention.out", torch.cat(heads, dim=1)))
    return norm("ffn_norm", x + linear("ffn_out", F.gelu(linear("ffn_in", x))))


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"depth": 2},
        {"mask": "temporal", "span": 3},
        {"mask": "none"},
        {"position": "none"},
        {"position": "absolute"},
        {"position": "sinusoidal", "dim": 9},
        {"position": "distance", "max_history": 7},
        {"position": "absolute", "max_history": 7},
        {"features": "head"},
        {"features": "head", "feature_layers": 1},
        {"features": "input"},
        {"features": "head", "years": False, "mask": "none"},
        {"features": "input", "years": False, "position": "absolute"},
        {"features": "head", "context_features": True},
        {"features": "input", "context_features": True},
    ],
    ids=str,
)
@torch.no_grad()
def test_states_equal_a_plain_computation_for_each_target(config: dict[str, object]) -> None:
    own, tree = model(**config), drawn_links(15)
    batch = batch_of(read(tree), context_features=own.reads_context_features)
    found = own(batch)
    assert found.shape[1] == own.out_dim == (10 if config.get("features") == "head" else own.config.dim)
    for target, rows in enumerate(found.split(batch.candidates.host_lengths.tolist())):
        # Sinusoids are kept in single precision.
        close = 1e-6 if own.config.position == "sinusoidal" else 1e-10
        torch.testing.assert_close(rows.flip(0), plainly(own, tree, target), rtol=0, atol=close)


@torch.no_grad()
def test_precomputed_vectors_equal_encoding_in_place() -> None:
    own, logs = model(), read(drawn_links(14, 1), drawn_links(9, 2))
    batch = batch_of(logs)
    in_place = own(batch)
    vectors = own.encoder.vectors(EncoderInput.of_rows(batch.input_ids, batch.messages))
    torch.testing.assert_close(own(replace(batch, vectors=vectors)), in_place, rtol=0, atol=1e-12)
    # The words are not read then.
    other = replace(batch, vectors=vectors, input_ids=batch.input_ids.flip(0))
    assert torch.equal(own(other), own(replace(batch, vectors=vectors)))
    assert not torch.allclose(own(replace(other, vectors=None)), in_place, atol=1e-3)


@torch.no_grad()
def test_vectors_of_some_messages_replace_their_encoding() -> None:
    logs = read(drawn_links(14, 1), drawn_links(9, 2))
    task = ReplyLinking(model().float(), tokenizer(), INPUT).eval()
    view = Blocks(logs, np.arange(15, 20), block=2)
    examples = [view.example(number) for number in range(len(view))]
    collate = LinkCollator(logs, structure=ReplyStructure.from_gold(logs))
    read_by_them = np.arange(14, 20)[::-1].copy()
    vectors = encode_messages(task, logs, read_by_them)
    assert vectors is not None
    assert sorted(np.flatnonzero(vectors.row >= 0)) == list(range(14, 20))
    found = task.backbone(replace(collate, vectors=vectors)(examples))
    torch.testing.assert_close(found, task.backbone(collate(examples)), rtol=0, atol=1e-5)


# --- what depends on what -----------------------------------------------------------------------------------------------------


@torch.no_grad()
def readers(own: MaskedHierarchicalTransformer, batch: LinkBatch) -> Tensor:
    """[place place] of the batch's one target: entry (i, j) says whether the vector of j moves the state of i."""
    before = own(batch)
    moved = []
    for message in batch.candidate.tolist():
        assert batch.vectors is not None
        vectors = batch.vectors.clone()
        vectors[message] += 1
        moved.append(((own(replace(batch, vectors=vectors)) - before).abs() > 1e-9).any(1))
    return torch.stack(moved, dim=1)


@pytest.mark.parametrize("features", ["none", "head", "input"])
def test_message_depends_on_itself_its_ancestors_and_the_newest_only(features: str) -> None:
    own, tree = model(features=features, num_layers=3), drawn_links(12, 5)
    batch = with_vectors(batch_of(read(tree), 11))
    found = readers(own, batch)
    links = [node.parents or () for node in tree.nodes]
    for place, message in enumerate(batch.key_source.tolist()):
        expected = {11, *ancestors(links, message, 0), message} if place else {11}
        assert set(batch.key_source[found[place].numpy()].tolist()) == expected
    assert 0.2 < found.float().mean() < 0.8


def test_one_layer_reads_only_allowed_candidates() -> None:
    for config in ({"depth": 1}, {"mask": "temporal", "span": 2}, {"mask": "none"}):
        own = model(num_layers=1, **config)
        batch = with_vectors(batch_of(read(drawn_links(9, 4)), 8))
        ((mask,),) = own.build_mask(batch)
        assert torch.equal(readers(own, batch), mask)


@torch.no_grad()
def test_scores_depend_on_links_of_others_and_not_of_the_target() -> None:
    task = ReplyLinking(model(features="head"), tokenizer(), INPUT).double().eval()

    def scores(*links: tuple[int, ...]) -> tuple[Tensor, ...]:
        batch = batch_of(read(linked(*links)))
        return task.score_all(batch).split(batch.candidates.host_lengths.tolist())

    before = scores((), (), (0,), (1,), (2,), (4,), (4,))
    # Message 4 gets another parent.
    after = scores((), (), (0,), (1,), (1,), (4,), (4,))
    moved = [np.flatnonzero((one - other).abs() > 1e-9).tolist() for one, other in zip(before, after, strict=True)]
    # Later on, this moves message 4 and its descendant 5, where the newest message is another one.
    assert moved == [[], [], [], [], [], [1], [1, 2]]
    assert all(torch.equal(one, other) for one, other in zip(before[:5], after[:5]))


@torch.no_grad()
def test_states_do_not_depend_on_the_link_of_the_newest_message() -> None:
    own, tree = model(), drawn_links(10, 3)
    for target in (2, 6, 9):
        for parent in (0, target // 2, target - 1):
            other = Tree(tuple(replace(node, parents=(parent,)) if i == target else node for i, node in enumerate(tree.nodes)))
            assert torch.equal(own(batch_of(read(tree), target)), own(batch_of(read(other), target)))


# --- settings -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"depth": -1}, r"model\.depth must .*is -1"),
        ({"span": 0}, r"model\.span must be at least 1, but is 0"),
        ({"dim": 10, "num_heads": 3}, r"model\.dim=10 must be a multiple of model\.num_heads=3"),
        ({"dropout": 1.0}, r"model\.dropout"),
        ({"max_history": 0}, r"model\.max_history"),
        ({"context_features": True}, r"model\.context_features=true needs .* --features head"),
    ],
    ids=str,
)
def test_invalid_sizes_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(RamifyError, match=message):
        MHTConfig(**values)  # pyright: ignore[reportArgumentType]


@pytest.mark.ill_typed
@pytest.mark.parametrize(
    "values", [{"mask": "tree"}, {"position": 3}, {"features": True}, {"depth": 1.0}, {"years": 1}], ids=str
)
def test_settings_of_wrong_types_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(RamifyError, match=rf"model\.{next(iter(values))}"):
        MHTConfig(**values)  # pyright: ignore[reportArgumentType]


def test_encoder_from_json_is_a_config() -> None:
    encoder = BertConfig(vocab_size=50, dim=8, num_heads=2, pooling="cls")
    config = from_record(MHTConfig, {"encoder": asdict(encoder), "dim": 8})
    assert config.encoder == encoder
    assert isinstance(config.encoder, BertConfig)
    assert config == MHTConfig(encoder=encoder, dim=8)
    assert config.vocab_size == 50
    with pytest.raises(RamifyError, match=r"model\.dim=10"):
        from_record(MHTConfig, {"encoder": {"dim": 10, "num_heads": 4}})


@pytest.mark.parametrize("config", [{}, {"features": "head", "position": "sinusoidal", "depth": 3}], ids=str)
@torch.no_grad()
def test_saved_model_scores_equally(config: dict[str, object], tmp_path: Path) -> None:
    task = ReplyLinking(model(**config).float(), tokenizer(), INPUT).eval()
    hub.save(Disentangler(task), tmp_path)
    loaded = ramify.load(tmp_path).task
    assert isinstance(loaded, ReplyLinking)
    assert loaded.backbone.config == task.backbone.config
    assert loaded.input == INPUT
    tree = drawn_links(10)
    scores = []
    for own in (task, loaded):
        logs = Logs.build([tree], own.input).tokenize(own.tokenizer)
        view = Blocks(logs, np.arange(10), block=4)
        collate = LinkCollator(logs, structure=ReplyStructure.from_gold(logs))
        scores.append(own.score_all(collate([view.example(number) for number in range(len(view))])))
    assert torch.equal(*scores)
