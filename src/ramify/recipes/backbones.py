"""The models that label tasks start from: by name, from scratch, or from a checkpoint."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ramify import hub
from ramify.batching.views.labelled import LabelInput
from ramify.errors import RamifyError
from ramify.models.bag import BagConfig
from ramify.models.base import ModelConfig, TakesFeatures
from ramify.models.bert import BertConfig
from ramify.models.cnn import CnnConfig
from ramify.models.elmo import ElmoConfig
from ramify.models.features import ConcatConfig
from ramify.models.recurrent import RecurrentConfig
from ramify.models.tfidf import TfidfConfig
from ramify.models.transformer import TransformerConfig
from ramify.models.tree_mlm import TreeMLMConfig
from ramify.models.word_windows import WordWindowConfig
from ramify.models.xlnet import XLNetConfig
from ramify.runs.tokenizers import TokenizerConfig
from ramify.tokenizer import Layout
from ramify.training.config import TrainConfig

Mode = Literal["finetune", "features", "concat"]
"""The way in which a command uses a model: `tasks.downstream.Mode`, or as features beside the embedding of another one."""

LONGEST = 128
"""The longest row, in tokens, unless the model reads less."""


@dataclass(frozen=True)
class Start:
    """A model, and what goes with it."""

    model: ModelConfig
    layout: Layout
    max_tokens: int = LONGEST
    tokenizer: TokenizerConfig = field(default_factory=lambda: PIECES)
    task: Mapping[str, Any] = field(default_factory=dict)
    """Settings of tasks with one vector per row in which the model differs from the others."""
    stage: Mapping[str, Any] = field(default_factory=dict)
    """Settings of training in which the model differs from the others."""
    width: int | None = None
    """The length of a token's state of a checkpoint; None: the model is trained from scratch."""
    fitted: Mapping[str, Any] | None = None
    """The settings of the task of a floor, which is fitted in closed form; None: the model is trained."""

    def input(self, **settings: Any) -> LabelInput:
        """The input settings of a run."""
        return LabelInput(max_tokens=self.max_tokens, layout=self.layout, **settings)


SMALL: dict[str, Any] = {"dim": 128, "num_heads": 4, "ffn_dim": 512}
PIECES = TokenizerConfig(vocab_size=8192)
WORDS = TokenizerConfig(kind="word", vocab_size=16_384, lowercase=False)


def _scratch(model: ModelConfig, layout: Layout = "t5", **settings: Any) -> Start:
    """A model without pretraining. Its rows end with a mark, which also separates two texts, unless its paper or family has
    other special tokens."""
    return Start(model, model.published.layout or layout, **settings)


SCRATCH: dict[str, Callable[[int], Start]] = {
    "bag": lambda longest: _scratch(BagConfig(max_tokens=longest), stage={"lr": 5e-3}),
    "bert": lambda longest: _scratch(BertConfig(num_layers=2, max_tokens=longest, **SMALL), "bert"),
    "bilstm": lambda longest: _scratch(RecurrentConfig(max_tokens=longest, dim=128, hidden=128, dropout=0.3)),
    # Kim 2014, section 3.1. The network itself drops out parts of the vector.
    "cnn": lambda longest: _scratch(CnnConfig(max_tokens=longest), task={"dropout": 0.0, "max_norm": 3.0}),
    "elmo": lambda longest: _scratch(ElmoConfig(dim=64, hidden=256), tokenizer=WORDS),
    "gpt": lambda longest: _scratch(
        TransformerConfig(
            max_tokens=max(512, longest), encoder_layers=0, decoder_layers=2, norm="pre", final_norm=True, **SMALL
        )
    ),
    "transformer": lambda longest: _scratch(
        TransformerConfig(max_tokens=max(512, longest), encoder_layers=2, decoder_layers=1, norm="pre", **SMALL)
    ),
    "tree-mlm": lambda longest: _scratch(
        TreeMLMConfig(max_tokens=longest, encoder_layers=2, decoder_layers=2, norm="pre", **SMALL), "bert"
    ),
    "xlnet": lambda longest: _scratch(XLNetConfig(num_layers=2, **SMALL)),
}
"""The models that may be trained from scratch, by the name of `--model`, given the longest row that they must read."""

Floors = Mapping[str, Callable[[], Start]]
"""The floors of a command, which are fitted in closed form, by the name of `--model`."""

FLOOR_WORDS = TokenizerConfig(kind="word", vocab_size=100_000)
CASED_WORDS = TokenizerConfig(kind="word", vocab_size=100_000, lowercase=False)


def _floor(model: ModelConfig, layout: Layout = "bert", tokenizer: TokenizerConfig = FLOOR_WORDS, **task: Any) -> Start:
    return Start(model, layout, 4096, tokenizer, fitted={"dropout": 0.0} | task)


FLOORS: dict[str, Callable[[], Start]] = {
    "majority": lambda: _floor(TfidfConfig(reads="nothing"), head="vector"),
    "tfidf": lambda: _floor(TfidfConfig(), head="vector"),
}
"""The floors of `ramify train classify`."""

CHOICE_FLOORS: dict[str, Callable[[], Start]] = {
    "majority": lambda: _floor(TfidfConfig(reads="nothing"), head="vector", reads="nothing"),
    "tfidf": lambda: _floor(TfidfConfig(), head="vector"),
}
"""The floors of `ramify train choose`."""

TAG_FLOORS: dict[str, Callable[[], Start]] = {
    "majority": lambda: _floor(TfidfConfig(reads="nothing"), "plain", decoder="majority"),
    "tfidf": lambda: _floor(WordWindowConfig(), "plain", CASED_WORDS),
}
"""The floors of `ramify train tag`."""

ANSWER_FLOORS: dict[str, Callable[[], Start]] = {
    "majority": lambda: _floor(WordWindowConfig(reads="place"), candidates="passage"),
    "tfidf": lambda: _floor(WordWindowConfig(), "bert", CASED_WORDS, candidates="passage"),
}
"""The floors of `ramify train answer`."""

FRESH: dict[str, Any] = {"epochs": 10.0, "lr": 1e-3, "patience": 3}
"""Training from scratch, and of what reads features. It ends early if the dev score falls."""

FINE_TUNING: dict[str, Any] = {"epochs": 3.0, "bias_correction": False, "betas": (0.9, 0.999), "eps": 1e-6}
"""Training from a checkpoint (Devlin et al. 2019, appendix A.3), by the published optimizer, which corrects no moments."""

RATES = ((128, 3e-4), (256, 1e-4), (512, 5e-5))
"""Widths, and the learning rates of models that are at most as wide (the list for BERT's smaller models, Turc et al. 2019)."""

WIDE_RATE = 3e-5
"""The learning rate of wider models."""


def start_of(model: str, init: str, floors: Floors, longest: int | None = None, *, mode: Mode = "finetune") -> Start:
    """The start that a command names, with rows of at most `longest` tokens; None: of the usual length.

    Raises `RamifyError` unless exactly one of the two is given (with mode=concat, `init` and perhaps a model), and for a name
    that neither models nor `floors` have.
    """
    if mode == "concat":
        return _with_features(model or "bilstm", init, LONGEST if longest is None else longest)
    if bool(model) == bool(init):
        given = f"--model {model} and --init {init} are both given" if model else "neither --model nor --init is given"
        raise RamifyError(f"{given}. Give exactly one: --model NAME trains from scratch, --init starts from a checkpoint.")
    usual = LONGEST if longest is None else longest
    if init:
        return _checkpoint(init, usual)
    if model in floors:
        floor = floors[model]()
        return floor if longest is None else replace(floor, max_tokens=longest)
    if model not in SCRATCH:
        raise RamifyError(
            f"--model {model} is neither one of {', '.join(SCRATCH)} nor one of the floors {', '.join(floors)}. Choose one, or "
            "start from a checkpoint (--init)."
        )
    return replace(SCRATCH[model](usual), max_tokens=usual)


def _checkpoint(init: str, longest: int) -> Start:
    """A checkpoint to start from, with rows of at most `longest` tokens."""
    start = hub.encoder_of(init)
    longest = longest if start.max_tokens is None else min(longest, start.max_tokens)
    return Start(start.model, start.layout, longest, width=start.width)


def _with_features(model: str, init: str, longest: int) -> Start:
    """A model from scratch, which reads the layers of a checkpoint beside its own token vectors (Peters et al. 2018)."""
    if not init:
        raise RamifyError("--mode concat needs a model whose layers are read, but --init is not given. Give --init CHECKPOINT.")
    source = _checkpoint(init, longest)
    if isinstance(source.model, ConcatConfig):
        raise RamifyError(
            f"--mode concat cannot read --init {init}, which itself reads the layers of another model. Give --init that model, "
            "or leave --mode out."
        )
    starts = {name: make(source.max_tokens) for name, make in SCRATCH.items()}
    readers = {name: start.model for name, start in starts.items() if isinstance(start.model, TakesFeatures)}
    if model not in readers:
        raise RamifyError(
            f"--mode concat needs a model with room for other vectors beside its token vectors, but --model {model} has none. "
            f"Choose --model {' or '.join(readers)}."
        )
    # The end mark of AGENT follows the pieces.
    reader = readers[model].for_vocabulary(source.model.vocab_size + 1)
    return replace(
        starts[model],
        model=ConcatConfig(reader, source.model),
        layout=source.layout,
        max_tokens=source.max_tokens,
        tokenizer=source.tokenizer,
    )


def task_mode(mode: Mode) -> Literal["finetune", "features"]:
    """`DownstreamConfig.mode`. A model that reads the layers of another one learns."""
    return "features" if mode == "features" else "finetune"


LINEAR_RATE = 1e-2
"""The learning rate of an output layer alone, which reads fixed vectors."""


def stages_of(
    start: Start, model: str, mode: Mode, *, linear: bool = False, refused: Mapping[str, Any] | None = None, **given: Any
) -> tuple[TrainConfig, ...]:
    """Training as published: 32 texts per update, a warm-up over a tenth, and a linear decay to zero. Settings that are `given`
    and not None replace the others. `linear` says whether nothing but an output layer reads the features of a frozen model.

    A floor has no stage. Raises `RamifyError` if it is `given` a setting of training, or one of the `refused` others, which is
    not None.
    """
    if start.fitted is not None:
        trained = {"mode": None if mode == "finetune" else mode, **(refused or {}), **given}
        for name, value in trained.items():
            if value is not None:
                raise RamifyError(
                    f"--{name} {value} has no effect on --model {model}, which is fitted in closed form. Leave --{name} out."
                )
        return ()
    settings: dict[str, Any] = FRESH | ({"lr": LINEAR_RATE} if linear and mode == "features" else {})
    if start.width is not None and mode == "finetune":
        rate = next((rate for width, rate in RATES if width >= start.width), WIDE_RATE)
        settings = FINE_TUNING | {"lr": rate}
    settings |= dict(start.stage) | {name: value for name, value in given.items() if value is not None}
    stage = TrainConfig(
        steps=0, budget=32, budget_unit="targets", evaluate_every=1, evaluate_unit="epochs", warmup=0.1, **settings
    )
    return (stage,)
