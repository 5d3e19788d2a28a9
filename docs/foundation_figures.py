"""Pictures and computed tables of the pages on recurrent encoders, ELMo and the Transformer, and of BERT's data flow. They are
written to `_generated/` as by `figures.py`.

Small models are trained for a few seconds on the discussions that ship with the package. `receptive_fields.json` holds what
`benchmarks/receptive_fields.py` computes of other models.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from figures import GENERATED, Drawing, table, write_files
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

import ramify
from ramify.batching.encoder_input import EncoderInput
from ramify.batching.row_batch import RowCollator
from ramify.batching.running_text import RunningText
from ramify.batching.views.packed import PairConfig, SentencePairs
from ramify.inference.receptive_field import receptive_field
from ramify.models.base import ModelConfig
from ramify.models.bert import Bert, BertConfig
from ramify.models.elmo import ElmoConfig
from ramify.models.recurrent import RecurrentConfig, RecurrentEncoder
from ramify.models.transformer import TransformerConfig
from ramify.nn.blocks import Norm, Stack
from ramify.nn.embeddings import sinusoids
from ramify.nn.ragged import Rows
from ramify.recipes import elmo
from ramify.sample import DISCUSSIONS
from ramify.tasks.masked_lm import MaskedLM, MaskedLMConfig
from ramify.tokenizer import Tokenizer

FILE = Path(__file__).with_name("receptive_fields.json")

WIDTH = 350
"""Width of a picture. A telephone shows it in full size."""

# --- small models -------------------------------------------------------------------------------------------------------

SENTENCE = "the bread is good but it goes soft again"
UPDATES, ROWS, TOKENS = 50, 16, 24


@cache
def corpus() -> tuple[Tokenizer, NDArray[np.int64]]:
    """A tokenizer of the discussions that ship with the package, and their tokens."""
    trees = map(json.loads, DISCUSSIONS.read_text("utf-8").splitlines())
    texts = [node["text"] for tree in trees for node in tree["nodes"]]
    tokenizer = Tokenizer.train(texts, vocab_size=1500)
    return tokenizer, tokenizer.encode_batch(texts)[0].astype(np.int64)


Tokens = NDArray[np.int64]
Objective = Callable[[Tokens, np.random.Generator], tuple[Tokens, tuple[Tokens, ...]]]
"""A function from rows of `TOKENS` + 2 tokens to those that a model reads, and the targets of each part of its states, −100 for
none."""


def next_token(rows: Tokens, random: np.random.Generator) -> tuple[Tokens, tuple[Tokens, ...]]:
    return rows[:, 1:-1], (rows[:, 2:],)


def both_neighbours(rows: Tokens, random: np.random.Generator) -> tuple[Tokens, tuple[Tokens, ...]]:
    return rows[:, 1:-1], (rows[:, 2:], rows[:, :-2])


def masked_token(rows: Tokens, random: np.random.Generator) -> tuple[Tokens, tuple[Tokens, ...]]:
    rows = rows[:, 1:-1]
    masked = random.random(rows.shape) < 0.2
    return np.where(masked, corpus()[0].mask_id, rows), (np.where(masked, rows, -100),)


@cache
def trained(config: Any, objective: Objective, *, forget_bias: float = 0.0, fresh: bool = False) -> Any:
    """A model that has read some 19,000 tokens, or a `fresh` one, in evaluation mode."""
    tokenizer, tokens = corpus()
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    model = replace(config, vocab_size=tokenizer.vocab_size).build()
    if forget_bias:
        open_gates(model, forget_bias)
    optimizer = torch.optim.Adam(model.parameters(), 4e-3)
    rows = Rows.build([TOKENS] * ROWS)
    for _ in range(0 if fresh else UPDATES):
        starts = random.integers(0, len(tokens) - TOKENS - 1, size=ROWS)
        read, targets = objective(tokens[starts[:, None] + np.arange(TOKENS + 2)], random)
        states = model.encode_rows(EncoderInput.of_rows(torch.from_numpy(read.copy()).flatten(), rows)).last
        optimizer.zero_grad()
        losses = [
            F.cross_entropy(F.linear(part, model.tied_embedding.weight), torch.from_numpy(labels.copy()).flatten())
            for part, labels in zip(states.chunk(len(targets), 1), targets, strict=True)
        ]
        torch.stack(losses).sum().backward()
        optimizer.step()
    return model.eval()


def open_gates(model: RecurrentEncoder, bias: float) -> None:
    """Add a bias to the forget gates of an LSTM of one layer, the second of the four gates."""
    cells: Any = model.recurrent.layers[0]
    with torch.no_grad():
        cells[0].cells.bias_ih_l0.view(4, -1)[1] += bias


UNI = RecurrentConfig(dim=48, hidden=48, num_layers=2, direction="forward", dropout=0.0)
BI = replace(UNI, hidden=24, direction="both")
ELMO = ElmoConfig(input="words", dim=48, hidden=64, num_layers=2, dropout=0.0)
ENCODER = BertConfig(dim=48, num_heads=4, ffn_dim=96, num_layers=2, dropout=0.0, scale_embedding=True, position="sinusoidal")
DECODER = TransformerConfig(dim=48, num_heads=4, ffn_dim=96, encoder_layers=0, decoder_layers=2, dropout=0.0)

# --- receptive fields ---------------------------------------------------------------------------------------------------

Norms = Float[NDArray, "token input"]


@dataclass(frozen=True)
class Field:
    """The norms ‖∂h_i/∂x_j‖ of a text, one matrix per panel."""

    tokens: Sequence[str]
    panels: Mapping[str, Norms]


@cache
def sentence() -> EncoderInput:
    tokenizer, _ = corpus()
    return EncoderInput.of_texts(tokenizer.encode_batch([SENTENCE]), tokenizer.layout("plain"), None)


def field(models: Mapping[tuple[str, ...], Any]) -> Field:
    """The receptive fields of the layers of some models, each with the names of the parts of its states."""
    panels = {}
    for parts, model in models.items():
        norms = receptive_field(model, sentence(), parts=len(parts))
        panels |= {
            f"{name}, layer {number}": layer[part] for part, name in enumerate(parts) for number, layer in enumerate(norms, 1)
        }
    return Field([corpus()[0].token(token) for token in sentence().ids.tolist()], panels)


@cache
def recurrent_field() -> Field:
    return field({("one way",): trained(UNI, next_token), ("both ways",): trained(BI, masked_token)})


@cache
def elmo_field() -> Field:
    return field({("forward", "backward"): trained(ELMO, both_neighbours)})


@cache
def transformer_field() -> Field:
    return field({("encoder",): trained(ENCODER, masked_token), ("decoder",): trained(DECODER, next_token)})


DECADES = 3
"""Norms below the greatest of their line by more powers of ten have the faintest colour."""


def strength(norms: Norms) -> Norms:
    """The opacity of each norm, from its share of the greatest norm of its line."""
    shares = norms / norms.max(1, keepdims=True)
    return 1 + np.log10(np.clip(shares, 10.0**-DECADES, 1)) / DECADES


def draw_matrices(
    tokens: Sequence[str],
    panels: Mapping[str, Norms],
    title: str,
    corner: str,
    shade: Callable[[Norms], Norms],
    foot: float = 0,
) -> Drawing:
    """Two matrices side by side, with a line per token that reads and a column per token that is read. Zeros have no square.

    `foot` is the height of what stands below.
    """
    count = len(tokens)
    labels = max(7 * max(map(len, tokens)) + 8, 58)
    side = (WIDTH - labels - 20) / 2 / count
    high = 46 + labels + count * side
    drawing = Drawing(WIDTH, math.ceil(len(panels) / 2) * high + foot, title)
    for place, (name, values) in enumerate(panels.items()):
        x, y = labels + place % 2 * (16 + count * side), place // 2 * high
        drawing.text(x, y + 14, name, kind="head", size=12, anchor="start")
        y += 22 + labels
        if place % 2 == 0:
            drawing.text(labels - 6, y - 6, corner, kind="muted", size=11, anchor="end")
        for number, token in enumerate(tokens):
            middle = (number + 0.5) * side
            drawing.text(x + middle + 4, y - 5, token, size=11, anchor="start", turn=-90)
            if place % 2 == 0:
                drawing.text(labels - 6, y + middle + 4, token, size=11, anchor="end")
        shades = shade(values)
        for (reader, read), value in np.ndenumerate(values):
            if value > 0:
                at = (x + read * side + 0.5, y + reader * side + 0.5, side - 1, side - 1)
                drawing.box(*at, kind="cell")
                drawing.box(*at, kind="cell-read", opacity=float(shades[reader, read]))
    return drawing


def draw_field(field: Field, title: str) -> Drawing:
    drawing = draw_matrices(field.tokens, field.panels, title, "state ↓", strength, foot=36)
    x, y = 0.0, drawing.height - 34
    for text, opacity in (("greatest", 1.0), ("1/10", 2 / 3), ("1/100", 1 / 3), ("1/1000, less", 0.0)):
        drawing.box(x, y, 13, 13, kind="cell")
        drawing.box(x, y, 13, 13, kind="cell-read", opacity=opacity)
        drawing.text(x + 18, y + 11, text, kind="muted", size=11, anchor="start")
        x += 34 + 6.2 * len(text)
    drawing.text(0, y + 30, "of the norms of a line; no square: exactly 0", kind="muted", size=11, anchor="start")
    return drawing


@cache
def computed_fields() -> dict[str, dict[str, Any]]:
    """The receptive fields that `benchmarks/receptive_fields.py` has measured, by the name of the model."""
    return json.loads(FILE.read_text("utf-8"))


def computed_drawing(name: str) -> Callable[[], Drawing]:
    def draw() -> Drawing:
        saved = computed_fields()[name]
        panels = {panel: np.array(norms) for panel, norms in saved["panels"].items()}
        return draw_field(Field(saved["tokens"], panels), f"Receptive fields of {name}, layer by layer")

    return draw


def computed_table() -> str:
    """The pictures of `receptive_fields.json` as Markdown."""
    parts = []
    for name, saved in computed_fields().items():
        parts.append(f":::{{drawing}} field-{name}\n`{name}` ({saved['description']}), by `{saved['command']}`.\n:::\n")
    return "\n".join(parts)


# --- gradients against distance -------------------------------------------------------------------------------------------

FARTHEST = 32
RECURRENT = replace(UNI, num_layers=1)


READERS: dict[str, tuple[Any, float]] = {
    "RNN": (replace(RECURRENT, cell="rnn"), 0.0),
    "LSTM": (RECURRENT, 0.0),
    "LSTM, open gates": (RECURRENT, 3.0),
    "Transformer": (DECODER, 0.0),
}
"""Models that predict the next word, and the biases of their forget gates."""


@cache
def distance_norms(name: str, *, fresh: bool = False) -> Float[NDArray, " distance"]:
    """The mean norm of ∂h_i/∂x_{i−k} after the last layer for each distance k, as a share of that of k = 0."""
    _, tokens = corpus()
    length = FARTHEST + 4
    row = EncoderInput.of_rows(torch.from_numpy(tokens[1000 : 1000 + length]), Rows.build([length]))
    config, bias = READERS[name]
    norms = receptive_field(trained(config, next_token, forget_bias=bias, fresh=fresh), row)[-1, 0]
    means = np.array([np.diagonal(norms, -distance).mean() for distance in range(FARTHEST + 1)])
    return means / means[0]


def distance_drawing() -> Drawing:
    low, left, top, wide, high = -10, 40, 16, 196, 210
    drawing = Drawing(WIDTH, top + high + 42, "Norm of the gradient against the distance of state and input")

    def place(distance: float, exponent: float) -> tuple[float, float]:
        return left + distance / FARTHEST * wide, top + (exponent / low) * high

    for exponent in range(0, low - 1, -2):
        drawing.line(place(0, exponent), place(FARTHEST, exponent), kind="grid")
        label = "1" if exponent == 0 else f"10⁻{'⁰¹²³⁴⁵⁶⁷⁸⁹'[-exponent]}" if exponent > -10 else "10⁻¹⁰"
        drawing.text(left - 6, place(0, exponent)[1] + 4, label, kind="muted", size=11, anchor="end")
    for distance in range(0, FARTHEST + 1, 8):
        drawing.text(place(distance, 0)[0], top + high + 16, str(distance), kind="muted", size=11)
    drawing.text(left + wide / 2, top + high + 34, "distance i − j in tokens", kind="muted", size=11)
    taken: list[float] = []
    for number, name in enumerate(READERS, 1):
        shares = enumerate(distance_norms(name).tolist())
        shown = [(distance, math.log10(share)) for distance, share in shares if share > 10.0**low]
        drawing.line(*(place(*point) for point in shown), kind=f"curve-{number}")
        # A line that ends within the chart has its name above the grid.
        y = place(*shown[-1])[1] - (8 if shown[-1][0] < FARTHEST else 0)
        while any(abs(y - other) < 15 for other in taken):
            y -= 1
        taken.append(y)
        drawing.text(place(*shown[-1])[0] + 6, y + 4, name, kind=f"on-curve-{number}", size=11, anchor="start")
    return drawing


def distance_table() -> str:
    chosen = (1, 2, 8, 32)
    rows = []
    for name in READERS:
        for fresh, when in ((True, "fresh"), (False, "trained")):
            shares = distance_norms(name, fresh=fresh)
            rows.append((f"{name}, {when}", *(short(shares[distance]) for distance in chosen)))
    return table(("model", *(str(distance) for distance in chosen)), rows)


def short(number: float) -> str:
    """One significant digit, as Markdown."""
    if number >= 0.001:
        return f"{number:.1g}"
    digit, exponent = f"{number:.0e}".split("e-")
    return f"{digit}·10<sup>−{int(exponent)}</sup>"


# --- remembering ----------------------------------------------------------------------------------------------------------

SYMBOLS = 4
REMEMBERING: dict[str, tuple[RecurrentConfig, float]] = {
    "RNN": (replace(RECURRENT, cell="rnn"), 0.0),
    "LSTM, forget bias 0": (RECURRENT, 0.0),
    "LSTM, forget bias 1": (RECURRENT, 1.0),
    "LSTM, forget bias 3": (RECURRENT, 3.0),
}


def recalled(config: RecurrentConfig, forget_bias: float, between: int, updates: int = 80, rows: int = 32) -> float:
    """The share of first tokens, of four, that a model names after others; of the last ten updates."""
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    model = replace(config, vocab_size=2 * SYMBOLS, dim=16, hidden=32).build()
    head = nn.Linear(32, SYMBOLS)
    nn.init.normal_(model.tied_embedding.weight)
    if forget_bias:
        open_gates(model, forget_bias)
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], 1e-2)
    layout, right = Rows.build([between + 1] * rows), []
    for _ in range(updates):
        first = random.integers(0, SYMBOLS, size=(rows, 1))
        others = random.integers(SYMBOLS, 2 * SYMBOLS, size=(rows, between))
        ids = torch.from_numpy(np.concatenate([first, others], 1))
        scores = head(model.encode_rows(EncoderInput.of_rows(ids.flatten(), layout), read="last").last)
        loss = F.cross_entropy(scores, ids[:, 0])
        right.append(float((scores.argmax(1) == ids[:, 0]).float().mean()))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return float(np.mean(right[-10:]))


def recall_table() -> str:
    delays = (8, 24)
    rows = [(name, *(f"{recalled(*model, delay):.0%}" for delay in delays)) for name, model in REMEMBERING.items()]
    return table(("model", *(f"{delay} tokens later" for delay in delays)), rows)


# --- attention ------------------------------------------------------------------------------------------------------------


def score_table() -> str:
    """Variances of products of random keys and queries, and what softmax makes of sixteen of them."""
    random = np.random.default_rng(0)
    draws, keys = 20_000, 16
    rows = []
    for size in (1, 4, 16, 64, 256, 1024):
        # Sums over parts of the components keep memory small.
        products = np.zeros(draws)
        for _ in range(size):
            products += random.standard_normal(draws) * random.standard_normal(draws)
        cells = []
        for scores in (products, products / math.sqrt(size)):
            squares = (scores - scores.mean()) ** 2
            error = squares.std() / math.sqrt(draws)
            places = max(0, -math.floor(math.log10(error)))
            cells.append(f"{squares.mean():,.{places}f} ± {error:.{places}f}")
        for scores in (products, products / math.sqrt(size)):
            weights = np.exp(scores.reshape(-1, keys) - scores.reshape(-1, keys).max(1, keepdims=True))
            weights /= weights.sum(1, keepdims=True)
            cells.append(f"{weights.max(1).mean():.2f}")
        rows.append((size, *cells))
    return table(("d", "var(kᵀq)", "var(kᵀq/√d)", "greatest weight of 16", "with the division"), rows)


READ_TEXT = "the cat that the dogs saw was tired"


@cache
def heads() -> tuple[tuple[str, ...], dict[tuple[int, int], Norms]]:
    """The tokens of a sentence, and the weights of each layer and head of the model that ships with the package."""
    model: Any = ramify.load("tree-mlm-small")
    (stack,) = model.attention(READ_TEXT, context="none").attention
    return stack.keys, {(head.layer, head.head): head.weights for head in stack.heads}


def heads_drawing(layer: int) -> Callable[[], Drawing]:
    def draw() -> Drawing:
        tokens, weights = heads()
        panels = {f"layer {layer}, head {head}": shares for (place, head), shares in weights.items() if place == layer}
        return draw_matrices(
            tokens, panels, f"Attention weights of the heads of layer {layer}", "reads →", lambda shares: shares
        )

    return draw


def position_drawing() -> Drawing:
    """Products of sinusoidal position vectors, by distance."""
    left, top, wide, high, farthest, sizes = 34, 14, 210, 170, 60, (64, 512)
    drawing = Drawing(WIDTH, top + high + 42, "Product of two position vectors against their distance")

    def place(distance: float, share: float) -> tuple[float, float]:
        return left + distance / farthest * wide, top + (1 - share) * high

    for share in (0.0, 0.5, 1.0):
        drawing.line(place(0, share), place(farthest, share), kind="grid")
        drawing.text(left - 6, place(0, share)[1] + 4, f"{share:g}", kind="muted", size=11, anchor="end")
    for distance in range(0, farthest + 1, 20):
        drawing.text(place(distance, 0)[0], top + high + 16, str(distance), kind="muted", size=11)
    drawing.text(left + wide / 2, top + high + 34, "distance in tokens", kind="muted", size=11)
    ends: list[float] = []
    for size, kind in zip(sizes, ("curve-1", "curve-4"), strict=True):
        products = (sinusoids(farthest + 1, size) @ sinusoids(1, size)[0]) / (size / 2)
        drawing.line(*(place(*point) for point in enumerate(products.tolist())), kind=kind)
        x, y = place(farthest, float(products[-1]))
        y += 15 if any(abs(y - other) < 15 for other in ends) else 0
        ends.append(y)
        drawing.text(x + 6, y + 4, f"d = {size}", kind=f"on-{kind}", size=11, anchor="start")
    return drawing


DEPTH = 12


def norm_table() -> str:
    """States and gradients of fresh stacks, with LayerNorm behind the residual and before the sublayer."""
    chosen = (1, 4, 8, 12)
    rows = []
    for norm, name in (("post", "post-LN"), ("pre", "pre-LN")):
        states, gradients = fresh_stack(norm)
        rows.append((f"{name}: length of the states that it reads", *(f"{states[layer - 1]:.1f}" for layer in chosen)))
        rows.append((f"{name}: norm of its gradient", *(f"{gradients[layer - 1]:.2f}" for layer in chosen)))
    return table(("layer", *(str(layer) for layer in chosen)), rows)


@cache
def fresh_stack(norm: Norm) -> tuple[list[float], list[float]]:
    """The mean length of the states that each layer reads, and the norm of the gradient of its last weights."""
    torch.manual_seed(0)
    dim = 64
    stack = Stack(DEPTH, dim, 4, 4 * dim, norm=norm, dropout=0.0, activation="relu")
    for parameter in stack.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
    rows, states = Rows.build([32] * 8), []
    x = stack(torch.randn(rows.total, dim), rows, states=states)
    F.cross_entropy(x @ torch.randn(dim, 100) * dim**-0.5, torch.arange(rows.total) % 100).backward()
    layers: Any = stack.layers
    return [float(state.detach().norm(dim=1).mean()) for state in states], [
        float(layer.ffn_out.weight.grad.norm()) for layer in layers
    ]


# --- sizes ------------------------------------------------------------------------------------------------------------------

PAPER = elmo.SIZES["paper"]
PUBLISHED_ELMO = ElmoConfig(vocab_size=1, dim=PAPER.dim, hidden=PAPER.hidden, filters=PAPER.filters)
"""The number of words does not matter: they are spelled."""

SIZES: dict[str, tuple[ModelConfig, str]] = {
    "ELMo": (PUBLISHED_ELMO, "94 M"),
    "BERT, base": (
        BertConfig(30_522, dim=768, num_layers=12, num_heads=12, ffn_dim=3072, max_tokens=512, pooling="pooler"),
        "110 M",
    ),
    "BERT, large": (
        BertConfig(30_522, dim=1024, num_layers=24, num_heads=16, ffn_dim=4096, max_tokens=512, pooling="pooler"),
        "340 M",
    ),
    "Transformer, base": (
        TransformerConfig(37_000, dim=512, num_heads=8, ffn_dim=2048, encoder_layers=6, decoder_layers=6),
        "65 M",
    ),
    "Transformer, big": (
        TransformerConfig(37_000, dim=1024, num_heads=16, ffn_dim=4096, encoder_layers=6, decoder_layers=6),
        "213 M",
    ),
}
"""Published models, and the size that their papers name."""


def counted(config: ModelConfig) -> int:
    """The number of parameters, each counted once. No weight is stored."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in config.build().parameters())


def elmo_table() -> str:
    """The parameters of the published ELMo, by part."""
    parts = {
        "vectors of 262 characters": "characters.embedding",
        "filters of characters": "characters.filters",
        "highway layers": "characters.highways",
        "projection to 512": "characters.project",
        "forward LSTM layers": "forward_layers",
        "backward LSTM layers": "backward_layers",
    }
    with torch.device("meta"):
        sizes = {name: parameter.numel() for name, parameter in PUBLISHED_ELMO.build().named_parameters()}
    rows = [
        (part, f"{sum(size for name, size in sizes.items() if name.startswith(prefix)):,}") for part, prefix in parts.items()
    ]
    return table(("part", "parameters"), [*rows, ("all", f"**{sum(sizes.values()):,}**")])


def size_table() -> str:
    rows = [(name, published, f"{counted(config):,}") for name, (config, published) in SIZES.items()]
    return table(("model", "published", "counted here"), rows)


# --- the data flow of BERT ----------------------------------------------------------------------------------------------

SMALL_BERT = BertConfig(dim=128, num_layers=2, num_heads=2, ffn_dim=512, pooling="pooler")


@dataclass(frozen=True)
class Flow:
    """The stages through which a small BERT takes one example."""

    pieces: list[str]
    ids: list[int]
    segments: list[int]
    targets: dict[int, str]
    """The hidden piece of each masked place."""
    shapes: dict[str, tuple[int, ...]]


@cache
def flow() -> Flow:
    tokenizer = Tokenizer.train(["the dog barked the cat ran away"] * 20, vocab_size=60)
    sentences = [tokenizer.encode("the dog barked"), tokenizer.encode("the cat ran away")]
    text = RunningText(np.concatenate(sentences).astype(np.uint16), np.array([0, 3, 7]), np.array([0, 2]), np.array([0, 2]))
    row = SentencePairs(text, tokenizer, 16, PairConfig(short_seq_prob=0.0, random_next=0.0)).example(0)
    bert = Bert(replace(SMALL_BERT, vocab_size=tokenizer.vocab_size))
    task = MaskedLM(bert, tokenizer, config=MaskedLMConfig(next_sentence=1.0, mask_split=(1.0, 0.0, 0.0), head="bert")).eval()
    batch = task.mask(RowCollator(tokenizer.layout("bert").frame, pairs=True)([row]), torch.tensor([3]))
    assert batch.token_type_ids is not None
    rows = EncoderInput.of_rows(batch.target_ids, batch.targets, batch.token_type_ids)
    record: Any = {}
    with torch.no_grad():
        embeddings: Any = bert.embeddings
        encoded = bert.encode_rows(rows, layers=True, record=record)
        masked = [place for place, piece in enumerate(batch.target_ids.tolist()) if piece == tokenizer.mask_id]
        scores = task.head(encoded.last[masked])
        computed: dict[str, Tensor] = {
            "word": embeddings.tokens(rows.ids),
            "segment": embeddings.types(rows.token_types),
            "position": embeddings.positions(rows.rows.positions),
            "sum": encoded.layers[0],
            "weights": record["encoder"][0]["self"][0],
            "states": encoded.last,
            "first": encoded.last[:1],
            "pooled": bert.vector(encoded),
            "next": task.next_scores(bert(batch), batch),
            "masked": encoded.last[masked],
            "scores": scores,
        }
    return Flow(
        [tokenizer.token(piece) for piece in rows.ids.tolist()],
        rows.ids.tolist(),
        batch.token_type_ids.tolist(),
        {place: tokenizer.token(int(row.ids[place])) for place in masked},
        {name: tuple(tensor.shape) for name, tensor in computed.items()},
    )


def input_table() -> str:
    shown = flow()
    targets = {0: "*is next*"} | {place: f"*{piece}*" for place, piece in shown.targets.items()}
    rows = [
        (f"`{piece}`", shown.ids[place], shown.segments[place], place, targets.get(place, ""))
        for place, piece in enumerate(shown.pieces)
    ]
    return table(("piece", "id", "segment", "position", "target"), rows)


def flow_drawing() -> Drawing:
    shapes = {name: " × ".join(map(str, shape)) for name, shape in flow().shapes.items()}
    drawing = Drawing(WIDTH, 452, "From ten pieces to three predictions, with the shape of every tensor")
    middle, third, half = WIDTH / 2, WIDTH / 3, WIDTH / 2

    def stage(x: float, y: float, width: float, name: str, shape: str, kind: str = "block") -> None:
        drawing.box(x, y, width, 40, kind=kind)
        drawing.text(x + width / 2, y + 17, name, size=12)
        drawing.text(x + width / 2, y + 32, shape, kind="muted", size=11)

    stage(middle - 60, 2, 120, "pieces as ids", str(len(flow().ids)), "token")
    for number, name in enumerate(("word", "segment", "position")):
        x = number * third + 4
        drawing.arrow((middle, 42), (x + third / 2 - 4, 66))
        stage(x, 68, third - 8, f"{name} vectors", shapes[name], "cross")
        drawing.arrow((x + third / 2 - 4, 108), (middle, 132))
    stage(40, 134, WIDTH - 80, "sum, LayerNorm", shapes["sum"])
    drawing.arrow((middle, 174), (middle, 190))
    layers = SMALL_BERT.num_layers
    stage(40, 192, WIDTH - 80, f"{layers} layers; weights of each: {shapes['weights']}", shapes["states"])
    columns = (
        ("state of [CLS]", "first", "tanh(W h)", "pooled", "next sentence", "next", "is next"),
        ("states of [MASK]", "masked", "dense, gelu, LayerNorm", "masked", "scores of pieces", "scores", "barked, ran"),
    )
    for number, (name, shape, map_name, mapped, out, scores, target) in enumerate(columns):
        x = number * half + 4
        centre = x + half / 2 - 4
        drawing.arrow((middle, 232), (centre, 252))
        stage(x, 254, half - 8, name, shapes[shape])
        drawing.arrow((centre, 294), (centre, 308))
        stage(x, 310, half - 8, map_name, shapes[mapped])
        drawing.arrow((centre, 350), (centre, 364))
        stage(x, 366, half - 8, out, shapes[scores])
        drawing.arrow((centre, 406), (centre, 422))
        drawing.text(centre, 440, target, kind="on-note", size=13)
    return drawing


# --- all ------------------------------------------------------------------------------------------------------------------

DRAWINGS: dict[str, Callable[[], Drawing]] = {
    "recurrent-fields": lambda: draw_field(
        recurrent_field(), "Receptive fields of recurrent encoders of one and two directions"
    ),
    "elmo-fields": lambda: draw_field(elmo_field(), "Receptive fields of the two directions of an ELMo"),
    "transformer-fields": lambda: draw_field(transformer_field(), "Receptive fields of a Transformer's encoder and decoder"),
    "gradient-distance": distance_drawing,
    "heads-first": heads_drawing(1),
    "heads-last": heads_drawing(3),
    "sinusoids": position_drawing,
    "bert-flow": flow_drawing,
}
COMPUTED: dict[str, Callable[[], Drawing]] = {f"field-{name}": computed_drawing(name) for name in computed_fields()}
TABLES: dict[str, Callable[[], str]] = {
    "gradient-distances": distance_table,
    "recall": recall_table,
    "scores-of-attention": score_table,
    "places-of-norms": norm_table,
    "published-sizes": size_table,
    "elmo-sizes": elmo_table,
    "bert-input": input_table,
    "computed-fields": computed_table,
}


def write(folder: Path = GENERATED) -> None:
    """Write all drawings and tables."""
    write_files(folder, DRAWINGS | COMPUTED, TABLES)


if __name__ == "__main__":
    write()
