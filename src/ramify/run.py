"""A run: everything that decides a result, as one frozen value; and its execution."""

import dataclasses
import json
import os
import platform
import shlex
import subprocess
import sys
import typing
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ramify import hub
from ramify.batch import Collator
from ramify.checkpoints import Progress
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.evaluate import context_spread, evaluate
from ramify.fields import check_fields, spelled
from ramify.files import make_folder, write_text
from ramify.forest import Forest, Ints, share_over
from ramify.models import MODELS, bert, hf, tree_mlm
from ramify.models.bert import Bert, BertConfig
from ramify.models.tree_mlm import TreeMLM, TreeMLMConfig
from ramify.tasks.masked_lm import MaskedLM, MaskedLMConfig
from ramify.tokenizer import Kind, Tokenizer, sample
from ramify.train import BEST, Stage, TrainConfig, Trainer, sampler, step_seed
from ramify.tree import Bound, Weighting
from ramify.version import __version__
from ramify.views import BLIND, Discussions, Reading, Regime, Seen, units

RUN_FILE = "run.json"
MIXED = 2
"""With fewer pieces a step, most steps are one piece."""
TOKENIZER_BYTES = 64 * 2**20
"""Text that a tokenizer is trained on (a uniform sample of the training split)."""


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
class Run:
    """All that decides a result. JSON in a run's run.json; `changed` applies `--set key=value`."""

    recipe: str
    data: str
    model: TreeMLMConfig | BertConfig
    task: MaskedLMConfig = field(default_factory=MaskedLMConfig)
    reading: Reading = field(default_factory=Reading)
    view: RegimeConfig = field(default_factory=RegimeConfig)
    stages: tuple[TrainConfig, ...] = (TrainConfig(),)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    dev: DevConfig = field(default_factory=DevConfig)
    init: str = ""
    """A checkpoint (directory or hub id) to start from: of the BERT family, or a model of this kind that Ramify saved. The
    model must be as large as it is: see `sized`."""
    init_decoder: bool = True
    """Whether a TreeMLM's decoder starts from a BERT-family checkpoint too, or its encoder alone."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.seed < 2**63:
            raise RamifyError(f"seed must be at least 0 and below 2^63, not {self.seed}.")

    def changed(self, settings: dict[str, str]) -> "Run":
        """With fields set from text: `model.dim`, `task.…`, `reading.…`, `view.…`, `tokenizer.…`, `dev.…`, `train.…` (all
        stages), `stages.0.…`, `init` (which sizes the model, before all others), `init_decoder`, `seed`."""
        run = replace(self, model=sized(self.model, settings.get("init", "")))
        for key, text in settings.items():
            head, _, rest = key.partition(".")
            if head == "train":
                run = replace(run, stages=tuple(_set(stage, rest, text, key) for stage in run.stages))
            elif head == "stages":
                number, _, name = rest.partition(".")
                if not number.isdigit() or int(number) >= len(run.stages):
                    raise RamifyError(f"--set {key}: this recipe has {len(run.stages)} stage(s), counted from 0.")
                stages = list(run.stages)
                stages[int(number)] = _set(stages[int(number)], name, text, key)
                run = replace(run, stages=tuple(stages))
            else:
                run = _set(run, key, text, key)
        return run


def sized(model: TreeMLMConfig | BertConfig, init: str) -> TreeMLMConfig | BertConfig:
    """The config with all that a checkpoint to start from settles: sizes and conventions of the BERT family, the whole config
    of a model that Ramify saved. Whatever is changed afterwards must suit it, or `prepare` refuses the run."""
    if not init:
        return model
    saved = hub.saved_config(init)
    if saved is not None:
        own, theirs = _name(model), _name(saved.model)
        if own != theirs:
            raise RamifyError(
                f"{init} is a {theirs} model of Ramify's: a {own} run starts from a {own} model, or from a BERT-family "
                "checkpoint in Hugging Face's form."
            )
        return saved.model
    config = hf.read_config(hf.locate(init))
    if isinstance(model, TreeMLMConfig):
        return replace(model, **tree_mlm.config_from_bert(config))
    return replace(bert.config_from_hf(config), **_free(model))


def _free(config: BertConfig) -> dict[str, Any]:
    """What a Bert may have otherwise than the BERT-family checkpoint that it starts from."""
    return {name: getattr(config, name) for name in ("dropout", "attention_dropout", "pooling", "max_tokens")}


def _set(value: Any, path: str, text: str, key: str) -> Any:
    """A dataclass with the field at a dotted path set from text."""
    name, _, rest = path.partition(".")
    kinds = typing.get_type_hints(type(value))
    if name not in kinds:
        raise RamifyError(f"--set {key}: there is no {name!r} here; the fields are {', '.join(kinds)}.")
    if rest:
        inner = getattr(value, name)
        if not dataclasses.is_dataclass(inner):
            raise RamifyError(f"--set {key}: {name} has no fields.")
        return replace(value, **{name: _set(inner, rest, text, key)})
    return replace(value, **{name: _parse(text, kinds[name], key)})


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
    record = hf.read_json(out / RUN_FILE)
    parts = ("run", "data_hash", "mean_step_weight", "cut", "without_tokens", "parameters", "environment")
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
    model_config = next(config for name, (config, _) in MODELS.items() if name == record["model"]["name"])
    parts: dict[str, Any] = {
        "model": model_config,
        "task": MaskedLMConfig,
        "reading": Reading,
        "view": RegimeConfig,
        "tokenizer": TokenizerConfig,
        "dev": DevConfig,
    }
    own = ("recipe", "data", "init", "init_decoder", "seed")
    fields: dict[str, Any] = {name: record[name] for name in own if name in record}
    for name, kind in parts.items():
        fields[name] = kind(**{key: hub.as_tuples(value) for key, value in record[name].items() if key != "name"})
    stages = (TrainConfig(**{key: hub.as_tuples(value) for key, value in stage.items()}) for stage in record["stages"])
    return Run(**fields, stages=tuple(stages))


def to_json(run: Run) -> dict[str, Any]:
    return asdict(run) | {"model": {"name": _name(run.model), **asdict(run.model)}}


def _name(model: TreeMLMConfig | BertConfig) -> str:
    return next(name for name, (config, _) in MODELS.items() if config is type(model))


# --- execution ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prepared:
    """A run with its data opened and its model built: what training, evaluation and reports share."""

    run: Run
    store: Store
    forest: Forest
    task: MaskedLM

    def view(self, trees: Ints, *, seen: Seen | None = None, train: bool = False) -> tuple[Discussions, Collator]:
        """Units of these trees, and their collator: as the run trains (`train`), or whole trees for evaluation."""
        config = self.run.view if train else RegimeConfig(predict_post=self.run.view.predict_post)
        return discussions(self.task, self.forest, trees, seen=seen, regime=config, seed=self.run.seed)


def discussions(
    task: MaskedLM, forest: Forest, trees: Ints, *, seen: Seen | None = None, regime: RegimeConfig | None = None, seed: int = 0
) -> tuple[Discussions, Collator]:
    """Units of some trees as a task reads them (or with other things seen), and their collator."""
    reading = task.reading_as(seen)
    parts = units(forest, trees, **asdict(regime or RegimeConfig()))
    return Discussions(forest, parts, reading, seed=seed, trees=trees), task.collator(forest, reading)


def prepare(run: Run, out: Path) -> Prepared:
    """Open the data, load or train the tokenizer, build the model and initialise it. `out` is where the run lies if it was
    begun before: its tokenizer is taken then."""
    store = Store.open(run.data)
    if len(store.split("train")) == 0:
        raise RamifyError(f"{run.data} has no training trees: build it with a larger share for train (--split).")
    tokenizer = _tokenizer(run, store, out)
    torch.manual_seed(step_seed(run.seed, 0))
    model_config = run.model if run.model.vocab_size else replace(run.model, vocab_size=tokenizer.vocab_size)
    if model_config.vocab_size < tokenizer.vocab_size:
        raise RamifyError(f"the tokenizer has {tokenizer.vocab_size} pieces, the model's vocabulary {model_config.vocab_size}.")
    if model_config.max_tokens < run.reading.longest:
        raise RamifyError(
            f"rows of up to {run.reading.longest} tokens are read, but model.max_tokens is {model_config.max_tokens}: "
            "set model.max_tokens too, or lower reading.max_tokens or reading.concatenate."
        )
    task = _started(run, model_config, tokenizer)
    forest = Forest.open(store, tokenizer, run.reading.max_tokens, run.reading.overflow)
    return Prepared(run, store, forest, task)


def _started(run: Run, config: TreeMLMConfig | BertConfig, tokenizer: Tokenizer) -> MaskedLM:
    """The run's task, with the weights of the checkpoint that it starts from; refuses one that does not suit it."""
    saved = hub.saved_config(run.init) if run.init else None
    from_bert = bool(run.init) and saved is None
    if not run.init_decoder and not (from_bert and isinstance(config, TreeMLMConfig)):
        raise RamifyError("init_decoder=false is for tree-mlm runs that start from a BERT-family checkpoint (--init).")
    if isinstance(config, TreeMLMConfig):
        backbone = TreeMLM(config)
        if from_bert:
            tree_mlm.init_from_bert(backbone, run.init, decoder=run.init_decoder)
    elif from_bert:
        backbone = bert.from_pretrained(run.init, **_free(config))
        hf.require(config, vars(backbone.config), run.init)
    else:
        backbone = Bert(config)
    task = MaskedLM(backbone, tokenizer, run.reading, run.task)
    if saved is not None:
        rates = {name: getattr(config, name) for name in ("dropout", "attention_dropout")}
        hf.require(config, vars(saved.model) | rates, run.init)
        hf.require(run.task, {name: getattr(saved.task, name) for name in ("head", "tie_weights")}, run.init, "task")
        hub.load_own_tensors(task, hf.read_tensors(hf.locate(run.init)), run.init)
    return task


def _tokenizer(run: Run, store: Store, out: Path) -> Tokenizer:
    """A run's own where it was begun before; a tokenizer.json that lies in a folder without a run is none of its."""
    own = out / "tokenizer.json"
    if own.exists() and (out / RUN_FILE).exists():
        return Tokenizer.load(own)
    if run.tokenizer.path and run.init and hub.saved_config(run.init) is not None:
        raise RamifyError(f"{run.init} brings its own tokenizer, which its weights belong to: leave --tokenizer out.")
    path = run.tokenizer.path or run.init
    if path:
        return Tokenizer.load(hf.locate(path) if not Path(path).is_file() else path)
    if run.tokenizer.kind == "unigram" and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RamifyError(
            "two processes do not train the same Unigram tokenizer: train one first (ramify tokenizer train --kind unigram) "
            "and name it with --tokenizer."
        )
    return train_tokenizer(store, run.tokenizer, seed=run.seed)


def train_tokenizer(store: Store, config: TokenizerConfig, *, seed: int = 0) -> Tokenizer:
    """A tokenizer trained on a sample of the training split, in bounded memory."""
    trees = store.split("train") if len(store.split("train")) else store.split("all")
    nodes = (np.arange(int(store.offsets[tree]), int(store.offsets[tree + 1])) for tree in trees)
    texts = (text for each in nodes for text in store.texts(each))
    return Tokenizer.train(
        sample(texts, TOKENIZER_BYTES, seed), kind=config.kind, vocab_size=config.vocab_size, lowercase=config.lowercase
    )


def environment() -> dict[str, Any]:
    """What a result was had with: versions, hardware, command, commit."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else _processor()
    return {
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "commit": _commit(),
        "ramify": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "hardware": device,
        "threads": torch.get_num_threads(),
    }


def _commit() -> str:
    """The commit of the checkout that this package lies in, with a + if files were changed since; nothing if installed."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return ""
    # Asking must take no lock: a run that is killed meanwhile would leave it behind.
    git = ["git", "--no-optional-locks", "-C", str(root)]
    try:
        found = (
            subprocess.run([*git, *command], capture_output=True, text=True, timeout=10, check=True).stdout.strip()
            for command in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
        commit, changed = found
    except (OSError, subprocess.SubprocessError):
        return ""
    return commit + "+" * bool(changed)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def execute(
    run: Run, out: Path, *, resume: bool = False, report: Callable[[dict[str, Any]], None] | None = None, cpu: bool = False
) -> tuple[Prepared, Progress]:
    """Train a run under `out` and leave the best model there, ready for `ramify.load`. Returns before the end only if it was
    interrupted (then `out` holds a checkpoint and no config.json)."""
    before: dict[str, Any] | None = None
    if resume and (out / RUN_FILE).exists():
        before = read_record(out)
        saved, asked = (_resolved(each) for each in (from_json(before["run"]), run))
        different = [name for name in vars(run) if getattr(saved, name) != getattr(asked, name)]
        if different:
            raise RamifyError(
                f"{out} was started with other settings ({', '.join(different)}); resume it with the same command."
            )
    elif (out / RUN_FILE).exists():
        raise RamifyError(f"{out} already holds a run: add --resume to go on with it, or choose another --out.")
    prepared = prepare(run, out)
    task = prepared.task
    stages = []
    dev_trees = first_trees(prepared.forest, prepared.store.split("dev"), run.dev.targets)
    for config in run.stages:
        view, collator = prepared.view(prepared.store.split("train"), train=True)
        _check_norm(run, view, config)
        stages.append(Stage(config, view, collator, _dev_loss(prepared, dev_trees) if len(dev_trees) else None))
    trainer = Trainer(task, stages, out, seed=run.seed, divisors=_divisors(run), report=report, cpu=cpu)
    here = environment() | {"processes": trainer.accelerator.num_processes}
    if before is not None:
        _check_same(before, prepared, here, out)
    if trainer.accelerator.is_main_process:
        make_folder(out)
        if before is None:
            task.tokenizer.save(out)
        record = {
            "run": to_json(run),
            "data_hash": prepared.store.hash,
            "mean_step_weight": trainer.step_weights,
            "cut": {**prepared.forest.cut, "share_over": share_over(prepared.forest.cut)},
            "without_tokens": int((prepared.forest.length == 0).sum()),
            "parameters": sum(parameter.numel() for parameter in task.parameters()),
            "environment": here,
        }
        if run.init:
            record["init_hash"] = hf.content_hash(run.init)
        if before is not None:
            record = before | {"run": to_json(run), "resumed": [*before.get("resumed", []), here]}
        write_text(out / RUN_FILE, json.dumps(record, indent=2) + "\n")
    progress = trainer.run(resume=before is not None)
    trainer.accelerator.wait_for_everyone()
    if not trainer.stopped and trainer.accelerator.is_main_process:
        if (out / BEST).exists():
            hub.load_weights(task, out / BEST)
        hub.save(task, out)
    return prepared, progress


def _check_same(before: dict[str, Any], prepared: Prepared, here: dict[str, Any], out: Path) -> None:
    """What a run was started with beside its settings: the order of its examples follows from these, too."""
    if before["data_hash"] != prepared.store.hash:
        raise RamifyError(f"{prepared.run.data} is not the data set that {out} was started with: it has been built anew.")
    if before["environment"]["processes"] != here["processes"]:
        raise RamifyError(
            f"{out} was started on {before['environment']['processes']} process(es), not {here['processes']}: "
            "resume it on as many."
        )


def _resolved(run: Run) -> Run:
    """As far as two spellings of one run are equal: where the data lies may change, for its hash is compared."""
    return replace(run, data="", reading=replace(run.reading, max_context=run.reading.context_length))


def _check_norm(run: Run, view: Discussions, config: TrainConfig) -> None:
    """Where steps hold different numbers of comments, dividing by a step's own weight undoes what the regime weighs."""
    if run.task.loss_norm != "step" or run.view.regime not in ("threads_debiased", "middle"):
        return
    if run.view.regime == "threads_debiased":
        undone = "brings back the bias that view.regime=threads_debiased takes out"
    elif (pieces := len(view) / len(sampler(view, config, run.seed).steps(0))) < MIXED:
        undone = f"makes a comment that is alone in its piece weigh as much as sixty, where a step holds {pieces:.1f} pieces"
    else:
        return
    raise RamifyError(
        f"task.loss_norm=step weighs a comment by what else is in its step, which {undone}: choose task.loss_norm=constant."
    )


def _divisors(run: Run) -> dict[str, float] | None:
    """What divides the loss: nothing to say for `constant`, one for `sum`, the step's own weight (0) for `step`."""
    if run.task.loss_norm == "constant":
        return None
    return {"masked_lm": 1.0 if run.task.loss_norm == "sum" else 0.0}


def first_trees(forest: Forest, trees: Ints, targets: int) -> Ints:
    """The first trees that together hold this many comments; none where all are bare posts."""
    comments = forest.offsets[trees + 1] - forest.offsets[trees] - 1
    if not comments.any():
        return trees[:0]
    return trees[: int(np.searchsorted(np.cumsum(comments), targets)) + 1]


def _dev_loss(prepared: Prepared, trees: Ints) -> Callable[[], dict[str, float]]:
    config, task = prepared.run.dev, prepared.task
    views = {"dev_loss": prepared.view(trees)}
    if config.without_context and task.reading.seen not in BLIND:
        views["dev_loss_none"] = prepared.view(trees, seen="none")

    def measure() -> dict[str, float]:
        scores = {
            name: evaluate(task, *view, trees, draws=config.draws, mask_rate=config.mask_rate or None)
            for name, view in views.items()
        }
        record = {name: each.summary()["loss"] for name, each in scores.items()}
        spread = context_spread(task, *views["dev_loss"])
        return record if spread is None else record | {"context_spread": spread}

    return measure
