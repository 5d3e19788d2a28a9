"""A run: everything that decides a result, as one frozen value."""

import dataclasses
import json
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ramify import hub
from ramify.disentangle.config import ChatInput, DecodingConfig, LinkConfig
from ramify.disentangle.data.words import MIN_COUNT
from ramify.errors import RamifyError
from ramify.config import check_fields, from_record, spelled
from ramify.files import read_json
from ramify.registry import MODELS
from ramify.models import bert, hf, tree_mlm
from ramify.models.bert import BertConfig
from ramify.disentangle.models.bert_pair import BertPairConfig
from ramify.disentangle.models.decomposable_attention import DecomposableAttentionConfig
from ramify.disentangle.models.encoders import MaskedLMModel, build_encoder_config
from ramify.disentangle.models.esim import ESIMConfig
from ramify.disentangle.models.feature_model import FeatureModelConfig
from ramify.disentangle.models.mht import MHTConfig
from ramify.models.tree_mlm import TreeMLMConfig
from ramify.registry import TASKS
from ramify.disentangle.inference.predict import ReplyHistory
from ramify.tasks.masked_lm import MaskedLMConfig
from ramify.tokenizer import Kind
from ramify.training.trainer import TrainConfig
from ramify.tree import Bound, Weighting
from ramify.batching.views.comment_trees import Reading, Regime

RUN_FILE = "run.json"

WordsModelConfig = FeatureModelConfig | DecomposableAttentionConfig | ESIMConfig
"""Of models that know whole words, learned from the training logs."""

ModelConfig = TreeMLMConfig | BertConfig | MHTConfig | BertPairConfig | WordsModelConfig


@dataclass(frozen=True)
class RegimeConfig:
    """Which units of the trees training visits (Juneja 2021, section 3)."""

    regime: Regime = "tree"
    max_tree_size: int = 60
    pack: bool = True
    bound: Bound = "strict"
    weighting: Weighting = "once"
    threads_over: Literal["all", "leaves"] = "all"
    step_per: Literal["piece", "tree"] = "piece"
    predict_post: bool = False

    def __post_init__(self) -> None:
        check_fields(self, "view.")
        if self.max_tree_size < 1:
            raise RamifyError(f"view.max_tree_size must be at least 1, not {self.max_tree_size}.")


@dataclass(frozen=True)
class TokenizerConfig:
    """A tokenizer.json or a directory with one (`path`), or how to train one on the training split."""

    path: str = ""
    kind: Kind = "wordpiece"
    vocab_size: int = 16_384
    lowercase: bool = True

    def __post_init__(self) -> None:
        check_fields(self, "tokenizer.")


@dataclass(frozen=True)
class DevConfig:
    """How the dev loss is had during training: on the first dev trees that hold this many comments, with so many masks each."""

    targets: int = 2000
    draws: int = 1
    mask_rate: float = 0.0
    """The share of tokens that is masked, so that models trained at different rates can be compared; 0: as in training."""
    without_context: bool = True
    """Where the model reads a context, measure it without any as well: `dev_loss_none`, from which reports draw the gain."""

    def __post_init__(self) -> None:
        check_fields(self, "dev.")
        if not 0 <= self.mask_rate <= 1:
            raise RamifyError(
                f"dev.mask_rate must be above 0 and at most 1, or 0 for the rate of training, not {self.mask_rate}."
            )
        if self.targets < 1 or self.draws < 1:
            raise RamifyError("dev.targets and dev.draws must be positive.")


@dataclass(frozen=True)
class BlockConfig:
    """How messages whose links are known are put before a model in training."""

    block: int = 16
    """Consecutive messages that stay together; they share most of their history."""

    encoded_block: int = 64
    """The same in stages where an encoder of messages learns: there, what costs is to encode the history."""

    far: float = 1.0
    """Of the candidates that are far back and that nothing points to (`disentangle.data.blocks`), the share that is read in training, each
    for as many as were left out (0: nothing stands for them); in use all are. Kummerfeld et al. read all."""

    conversations: float = 0.0
    """Learn from known conversations as logs of their own, too, without times: so many of their messages for each message of
    the logs whose links are known. For channels without cross-talk or clocks."""
    teachers: tuple[str, ...] = ()
    """Models whose beliefs are to be learned (distillation): of all messages, also of those whose links nobody knows."""
    trust: float = 0.5
    """How much teachers' beliefs count beside the known links, where there are any."""
    vectors: str = ""
    """A folder for what a frozen encoder makes of the messages, so that further runs need not encode them again (nothing: it is
    not kept)."""

    def __post_init__(self) -> None:
        check_fields(self, "view.")
        if self.conversations < 0:
            raise RamifyError(f"view.conversations must not be negative, not {self.conversations}.")
        if not 0 <= self.far <= 1:
            raise RamifyError(f"view.far must be from 0 to 1, not {self.far}.")
        if self.far < 1 and self.teachers:
            raise RamifyError("view.far below 1 would hide candidates that view.teachers have an opinion of: set one of both.")
        if not 0 <= self.trust <= 1:
            raise RamifyError(f"view.trust must be from 0 to 1, not {self.trust}.")
        if min(self.block, self.encoded_block) < 1:
            raise RamifyError(f"view.block and encoded_block must be at least 1, not {self.block} and {self.encoded_block}.")


@dataclass(frozen=True)
class WordsConfig:
    """The vocabulary of a model that knows whole words, learned from the training logs: with vectors, so that it begins with
    some notion of them."""

    least: int = MIN_COUNT
    """Words said less often are known by their shape alone."""
    vectors: Literal["trained", "random"] = "trained"

    def __post_init__(self) -> None:
        check_fields(self, "tokenizer.")


@dataclass(frozen=True)
class LinkDevConfig:
    """What chooses the best weights, measured on the dev logs: a higher F of links or of whole conversations, or a lower
    loss."""

    by: Literal["link", "cluster", "loss"] = "link"
    history: ReplyHistory = "gold"
    """What a model that reads what earlier messages answer is told of it meanwhile. Its own decisions take longer, for it must
    decide message by message."""

    def __post_init__(self) -> None:
        check_fields(self, "dev.")


@dataclass(frozen=True)
class Run:
    """All that decides a result. JSON in a run's run.json; `changed` applies `--set key=value`."""

    recipe: str
    data: str
    model: ModelConfig
    task: MaskedLMConfig | LinkConfig = field(default_factory=MaskedLMConfig)
    """What is to be learned; the four parts after it are of its kind (`PARTS`)."""
    reading: Reading | ChatInput = field(default_factory=Reading)
    view: RegimeConfig | BlockConfig = field(default_factory=RegimeConfig)
    tokenizer: TokenizerConfig | WordsConfig = field(default_factory=TokenizerConfig)
    dev: DevConfig | LinkDevConfig = field(default_factory=DevConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
    stages: tuple[TrainConfig, ...] = (TrainConfig(),)
    init: str = ""
    """A checkpoint (directory or hub id) to start from: of the BERT family, or a model of this kind that Ramify saved; models
    that read messages with a BERT may start from a masked language model (`bert`, `tree-mlm`), too. The model must be as large
    as it is: see `sized`."""
    init_decoder: bool = True
    """Whether a TreeMLM's decoder starts from a BERT-family checkpoint too, or its encoder alone."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        for name, kind in self.parts.items():
            if type(getattr(self, name)) is not kind:
                raise RamifyError(f"the task {type(self.task).__name__} wants {kind.__name__} as a run's {name}.")
        if isinstance(self.task, LinkConfig):
            self.decoding.check(self.task.objective)
        if not 0 <= self.seed < 2**63:
            raise RamifyError(f"seed must be at least 0 and below 2^63, not {self.seed}.")

    @property
    def parts(self) -> dict[str, type]:
        return PARTS[type(self.task)]

    def changed(self, settings: dict[str, str]) -> "Run":
        """With fields set from text: `model.dim`, `task.…`, `reading.…`, `view.…`, `tokenizer.…`, `dev.…`, `train.…` (all
        stages), `stages.0.…`, `init` (which sizes the model, before all others), `init_decoder`, `seed`."""
        run = replace(self, model=sized(self.model, settings.get("init", "")))
        own: _Texts = {}
        stages: list[_Texts] = [{} for _ in run.stages]
        for key, text in settings.items():
            head, _, rest = key.partition(".")
            if head == "train":
                for stage in stages:
                    stage[rest] = (text, key)
            elif head == "stages":
                number, _, name = rest.partition(".")
                if not number.isdigit() or int(number) >= len(run.stages):
                    raise RamifyError(f"--set {key}: this recipe has {len(run.stages)} stage(s), counted from 0.")
                stages[int(number)][name] = (text, key)
            else:
                own[key] = (text, key)
        return _set(replace(run, stages=tuple(map(_set, run.stages, stages))), own)


def redecided(config: DecodingConfig, settings: Mapping[str, str]) -> DecodingConfig:
    """The decoding settings with changes from text; a trained model can be set otherwise in nothing else."""
    for key in settings:
        head, _, name = key.partition(".")
        if head != "decoding" or name not in vars(config):
            known = ", ".join(f"decoding.{each}" for each in vars(config))
            raise RamifyError(f"--set {key}: a trained model can be set to decide otherwise, by {known}, and by nothing else.")
    return _set(config, {key.removeprefix("decoding."): (text, key) for key, text in settings.items()})


_Texts = dict[str, tuple[str, str]]
"""To a dotted path: what it is set to, and the key by which the user knows it."""


PARTS: dict[type, dict[str, type]] = {
    MaskedLMConfig: {"reading": Reading, "view": RegimeConfig, "tokenizer": TokenizerConfig, "dev": DevConfig},
    LinkConfig: {"reading": ChatInput, "view": BlockConfig, "tokenizer": WordsConfig, "dev": LinkDevConfig, "decoding": DecodingConfig},
}
"""What a run of a task is made of besides."""


def sized(model: ModelConfig, init: str) -> ModelConfig:
    """The config with all that a checkpoint to start from settles: sizes and conventions of the BERT family, the whole config
    of a model that Ramify saved. Whatever is changed afterwards must suit it, or `prepare` refuses the run."""
    if not init:
        return model
    saved = hub.saved_config(init)
    if saved is not None:
        own, theirs = _name(model), _name(saved.model)
        if own == theirs:
            return saved.model
        if isinstance(model, MHTConfig | BertPairConfig) and isinstance(saved.model, MaskedLMModel):
            return replace(model, encoder=_encoder(model, saved.model))
        other = "" if isinstance(model, WordsModelConfig) else ", or from a BERT-family checkpoint in Hugging Face's form"
        raise RamifyError(f"{init} is a {theirs} model of Ramify's: a {own} run starts from a {own} model{other}.")
    if isinstance(model, WordsModelConfig):
        raise RamifyError(f"{init} is no model of Ramify's: a {_name(model)} run starts from one of its own kind.")
    config = hf.read_config(hf.locate(init))
    if isinstance(model, TreeMLMConfig):
        return replace(model, **tree_mlm.config_from_bert(config))
    if isinstance(model, MHTConfig | BertPairConfig):
        return replace(model, encoder=replace(bert.config_from_hf(config), **free(model.encoder)))
    return replace(bert.config_from_hf(config), **free(model))


def _encoder(model: MHTConfig | BertPairConfig, saved: MaskedLMModel) -> BertConfig:
    """Of messages, from a masked language model: a pair is pooled as pairs are, a message as that model pools texts."""
    own = build_encoder_config(saved)
    rates = {name: getattr(model.encoder, name) for name in ("dropout", "attention_dropout")}
    return replace(own, **rates, pooling=model.encoder.pooling if isinstance(model, BertPairConfig) else own.pooling)


def free(config: BertConfig) -> dict[str, Any]:
    """What a Bert may have otherwise than the BERT-family checkpoint that it starts from."""
    return {name: getattr(config, name) for name in ("dropout", "attention_dropout", "pooling", "max_tokens")}


def _set(value: Any, settings: _Texts) -> Any:
    """A dataclass with fields set from texts: those of one dataclass at once, for they are checked together."""
    kinds = typing.get_type_hints(type(value))
    changes: dict[str, Any] = {}
    inside: dict[str, _Texts] = {}
    for path, (text, key) in settings.items():
        name, _, rest = path.partition(".")
        if name not in kinds:
            parts = [
                part for part in kinds if hasattr(getattr(value, part), name) and dataclasses.is_dataclass(getattr(value, part))
            ]
            hint = f" Did you mean {' or '.join(f'{part}.{name}' for part in parts)}?" if parts else ""
            what = f"there is no {name!r} here" if name else "this is a part, not a setting"
            raise RamifyError(f"--set {key}: {what}; the fields are {', '.join(kinds)}.{hint}")
        if not rest:
            changes[name] = _parse(text, kinds[name], key)
        elif dataclasses.is_dataclass(getattr(value, name)):
            inside.setdefault(name, {})[rest] = (text, key)
        else:
            raise RamifyError(f"--set {key}: {name} has no fields.")
    return replace(value, **changes, **{name: _set(getattr(value, name), texts) for name, texts in inside.items()})


def _parse(text: str, kind: Any, key: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        if text not in arguments:
            raise RamifyError(f"--set {key}: expected one of {', '.join(map(str, arguments))}, not {text!r}.")
        return text
    if origin is tuple:
        try:
            return _typed(json.loads(text), kind)
        except ValueError:
            raise RamifyError(f"--set {key}: expected a JSON list of the form {spelled(kind)}, not {text!r}.") from None
    if kind is bool:
        if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
            raise RamifyError(f"--set {key}: expected true or false, not {text!r}.")
        return text.lower() in ("true", "1", "yes")
    if kind in (int, float, str):
        try:
            return kind(text.replace("_", "")) if kind is not str else text
        except ValueError:
            raise RamifyError(f"--set {key}: expected a {spelled(kind)}, not {text!r}.") from None
    raise RamifyError(f"--set {key}: set its fields one by one ({key}.…).")


def _typed(value: Any, kind: Any) -> Any:
    """A value from JSON as a type made of tuples, numbers and strings; raises ValueError where it is of another."""
    if typing.get_origin(kind) is tuple and isinstance(value, list):
        inner = typing.get_args(kind)
        inner = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        if len(inner) == len(value):
            return tuple(map(_typed, value, inner))
    elif kind is float and type(value) in (int, float):
        return float(value)
    elif type(value) is kind:
        return value
    raise ValueError


def read_record(out: Path) -> dict[str, Any]:
    """What a run's run.json says. Raises `RamifyError` where there is none, or not the whole of it."""
    record = read_json(out / RUN_FILE, "a run")
    parts = ("run", "data_hash", "mean_step_weight", "parameters", "environment")
    if missing := [part for part in parts if part not in record]:
        raise RamifyError(
            f"{out / RUN_FILE} is damaged, or was written by another version of Ramify: it does not say {', '.join(missing)}."
        )
    from_json(record["run"])
    return record


def from_json(record: dict[str, Any]) -> Run:
    """A run from the `run` part of its run.json; raises where another version of Ramify wrote other fields."""
    try:
        return _from_json(record)
    except (KeyError, TypeError, ValueError, StopIteration) as error:
        raise RamifyError(f"{RUN_FILE} is damaged, or was written by another version of Ramify ({error!r}).") from None


def _from_json(record: dict[str, Any]) -> Run:
    task_config = TASKS[record["task"].get("name", "masked-lm")].config
    parts: dict[str, Any] = {"model": MODELS[record["model"]["name"]][0], "task": task_config, **PARTS[task_config]}
    own = ("recipe", "data", "init", "init_decoder", "seed")
    fields: dict[str, Any] = {name: record[name] for name in own if name in record}
    for name, kind in parts.items():
        fields[name] = from_record(kind, {key: value for key, value in record[name].items() if key != "name"})
    stages = (from_record(TrainConfig, stage) for stage in record["stages"])
    return Run(**fields, stages=tuple(stages))


def to_json(run: Run) -> dict[str, Any]:
    named = {"model": {"name": _name(run.model), **asdict(run.model)}, "task": {"name": _name(run.task), **asdict(run.task)}}
    return asdict(run) | named


def _name(config: Any) -> str:
    kinds = {name: kind for name, (kind, _) in MODELS.items()} | {name: task.config for name, task in TASKS.items()}
    return next(name for name, kind in kinds.items() if kind is type(config))
