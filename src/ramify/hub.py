"""Save models to disk or the hub, and load them strictly: config.json, model.safetensors, tokenizer.json and a model card."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import torch
from tokenizers import normalizers
from torch import Tensor, nn

from ramify.checkpoints import CHECKPOINTS, BestWeights, best_weights
from ramify.config import from_record
from ramify.errors import RamifyError, counted, printable, with_article
from ramify.files import check_format, make_folder, read_json, replacing, write_text
from ramify.inference.base import Pipeline
from ramify.models import hf, hf_sentences
from ramify.models.base import BACKBONE, Checkpoint, Encodes, TextModelConfig
from ramify.models.hf import CONFIG, WEIGHTS
from ramify.models.hf_adapter import ForeignFiles, PortableModel
from ramify.models.hf_heads import LabelHead
from ramify.registry import (
    HF_FORMS,
    LABEL_FORMS,
    MODELS,
    TASKS,
    HFForm,
    TaskKind,
    model_name,
    model_of,
    model_record,
    task_name,
)
from ramify.tasks.base import Task, belongs
from ramify.tensors import load_strictly, load_tensors, owned, save_tensors
from ramify.tokenizer import LAYOUTS, ROLES_FILE, TOKENIZER, Layout, Tokenizer
from ramify.version import __version__

CARD = "README.md"
FORMAT = 4
"""The format number of config.json. A file with another number, or none, is refused."""

Kind = TypeVar("Kind")


def own_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The values of every parameter and persistent buffer (`tensors.owned`)."""
    return {name: tensor.detach().contiguous() for name, tensor in owned(model).items()}


def load_own_tensors(model: nn.Module, tensors: Mapping[str, Tensor], where: str | Path) -> None:
    """Copy tensors into the parameters and persistent buffers. Raises if any is missing, left over or of another shape."""
    load_strictly(owned(model), tensors, where)


def check_settings(task: Task[Any], saved: "Saved", where: str | Path) -> None:
    """Raise `RamifyError` if a task cannot start from a saved one, because their settings differ (`Task.matching`)."""
    settings = saved.parts["task"]
    hf.require(task.config, {name: getattr(settings, name) for name in task.matching}, where, "task")


def start_from(task: Task[Any], tensors: Mapping[str, Tensor], where: str | Path) -> None:
    """Let a new task start from the tensors of a saved one. The task says which of them begin anew (`Task.fresh`), and which a
    saved task may lack or have in addition (`Task.optional`, and those of its backbone). Raises if others are missing, left
    over or of another shape."""
    current = own_tensors(task)
    optional = (*task.optional, *(BACKBONE + name for name in task.backbone.optional))
    free = (*task.fresh, *optional)
    new = {name: tensor for name, tensor in current.items() if belongs(name, free)}
    kept = {
        name: tensor
        for name, tensor in tensors.items()
        if not belongs(name, task.fresh) and (name in current or not belongs(name, optional))
    }
    load_own_tensors(task, new | kept, where)


SaveForm = Literal["ramify", "hugging-face"]
"""The form of a saved model: that of Ramify, which holds all of it, or that of transformers (`export_hugging_face`)."""


def save(
    pipeline: Pipeline,
    directory: str | Path,
    *,
    card: str | None = None,
    dtype: torch.dtype | None = None,
    form: SaveForm = "ramify",
) -> None:
    """Save a model to a directory, which `load` accepts, and `push_to_hub` in Ramify's form.

    `card` is the text of README.md; None: that of `model_card`. `dtype` is the type of the stored weights, for example
    `torch.float16`; None: that of the model. Both belong to Ramify's form. Raises `RamifyError` if the model has no such form:
    an `Embedder` of another library's checkpoint has no task, and its own directory is its saved form.
    """
    if not isinstance(pipeline, Pipeline):
        raise RamifyError(f"save takes a pipeline, such as `ramify.load` returns, not a {type(pipeline).__name__}.")
    if form == "hugging-face":
        if card is not None or dtype is not None:
            raise RamifyError("form=hugging-face has no card and no dtype of its own. Leave them out, or set form=ramify.")
        export_hugging_face(pipeline, directory)
        return
    task = _task_name(pipeline)
    if task is None:
        raise RamifyError(
            f"a {type(pipeline).__name__} has no saved form, because it has no task ({', '.join(TASKS)}). Load the directory "
            "or hub id that it came from."
        )
    directory = Path(directory)
    make_folder(directory)
    tensors = own_tensors(pipeline.module)
    if dtype is not None:
        tensors = {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    with replacing(directory / WEIGHTS) as scratch:
        save_tensors(scratch, tensors)
        # config.json marks a complete directory. So it is removed before the old weights are replaced, and written last.
        (directory / CONFIG).unlink(missing_ok=True)
    pipeline.tokenizer.save(directory)
    write_text(directory / CARD, card or model_card(pipeline))
    write_text(directory / CONFIG, json.dumps(_config(pipeline, task), indent=2) + "\n")


RUN_FILE = "run.json"
"""The file that marks a folder as a run."""

CHOSEN_BY = "chosen_by"
"""The entry of a run's `CONFIG` among its checkpoints that names the metric of each stage."""


def save_unfinished(pipeline: Pipeline, out: Path, metrics: Sequence[str]) -> None:
    """Write the settings of a run's model beside its checkpoints, so that `load` can read these before the run is finished.

    `metrics` names the measure by which each stage chooses its best weights.
    """
    config = _config(pipeline, task_name(pipeline.parts()["task"])) | {CHOSEN_BY: list(metrics)}
    make_folder(out / CHECKPOINTS)
    write_text(out / CHECKPOINTS / CONFIG, json.dumps(config, indent=2) + "\n")


def _config(pipeline: Pipeline, task: str) -> dict[str, Any]:
    """The content of config.json."""
    parts = {name: asdict(part) for name, part in pipeline.parts().items()}
    return {
        "library_name": "ramify",
        "ramify_version": __version__,
        "format": FORMAT,
        "kind": pipeline.kind,
        "pieces": pipeline.tokenizer.pieces_hash,
        "model": model_record(pipeline.backbone.config),
        **parts,
        "task": {"name": task, **parts["task"]},
    }


def _task_name(pipeline: Pipeline) -> str | None:
    """The name of the pipeline's task; None if it has none."""
    config = pipeline.parts().get("task")
    return None if config is None else task_name(config)


def find_device(name: str | torch.device = "auto") -> torch.device:
    """Return the device with this torch name. `auto` selects the accelerator that torch finds, or else the CPU.

    Raises `RamifyError` if this machine has no such device.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is not None and accelerator.type == "mps":
        accelerator = None  # Apple's GPUs do not support double precision, which weights and counts need
    if name == "auto":
        return accelerator or torch.device("cpu")
    counts = {"cpu": 1} | ({accelerator.type: torch.accelerator.device_count()} if accelerator else {})
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or (device.index or 0) >= counts.get(device.type, 0):
        raise RamifyError(f"device={str(name)!r} is not available on this machine. Choose auto, {' or '.join(counts)}.")
    return device


def load(
    source: str | Path,
    *,
    revision: str | None = None,
    device: str | torch.device | None = None,
    input: Mapping[str, Any] | None = None,
) -> Pipeline:
    """Load a trained model in evaluation mode.

    `source` is a run directory, a Hugging Face directory (BERT family or sentence-transformers), a hub id, or the name of a
    model that ships with Ramify: links or tree-mlm-small. Of a run that has not finished, the best weights so far are loaded,
    and a line on stderr says so. `revision` is a branch, tag or commit of a hub id, which `owner/name@revision` names too.
    `device` is a name for `find_device`; None: the CPU. `input` replaces settings of the model's input, such as
    `{"max_tokens": 64}`. Raises `RamifyError` if `source` holds no complete model.
    """
    if revision and Path(source).exists():
        raise RamifyError(
            f"revision={revision!r} cannot apply to {source}, a local path: only models on the hub have revisions. Leave it "
            f"out, or load '{source}@{revision}' for the hub's model of that name."
        )
    source = f"{source}@{revision}" if revision else source
    place = find_device(device or "cpu")
    directory = hf.locate(source)
    _check_own_model(directory)
    unfinished = _is_unfinished(directory)
    best = _best_so_far(directory) if unfinished else None
    if not (unfinished or (directory / CONFIG).exists()):
        hf_sentences.read(directory)  # says which module lies elsewhere
    saved = _saved(directory / CHECKPOINTS if unfinished else directory)
    changes = input or {}
    try:
        pipeline = _load_hugging_face(directory, changes) if saved is None else _load_saved(directory, saved, changes, best)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise RamifyError(
            f"{directory}: the values of {CONFIG} or the weights are not those of such a model "
            f"({printable(f'{type(error).__name__}: {error}'.splitlines()[0])}). Save or download the model again."
        ) from error
    pipeline.module.eval()
    return pipeline.to(place)


@dataclass(frozen=True)
class Saved:
    """The content of a config.json that `save` wrote."""

    model: Any
    parts: dict[str, Any]
    """The settings of each part in `TaskKind.parts`, by name."""
    task_kind: TaskKind
    kind: str | None
    """The name of the kind of run that made the model; None: no run made it."""
    pieces: str
    """The hash of the tokenizer's pieces."""


def saved_config(source: str | Path) -> Saved | None:
    """Read the settings of a model that `save` wrote; None for another library's checkpoint."""
    return _saved(_locate(source))


def checkpoint(source: str | Path) -> Checkpoint:
    """Find the checkpoint in a directory or under a hub id, from which a model may start."""
    directory = _locate(source)
    saved = _saved(directory)
    return Checkpoint(str(source), directory, None if saved is None else saved.model)


@dataclass(frozen=True)
class EncoderStart:
    """A model that encodes texts, from which a task on labelled texts may start."""

    model: Any
    layout: Layout
    """The special tokens around labelled texts."""
    max_tokens: int | None
    """The longest row that it reads; None: rows have no limit."""
    width: int
    """The length of a token's state."""


def encoder_of(source: str | Path) -> EncoderStart:
    """The settings of the model in a directory or under a hub id. Raises `RamifyError` if it does not encode texts.

    A checkpoint of the BERT family with a pooler gives that vector, unless it is a sentence-transformers directory, which names
    its pooling.
    """
    directory = _locate(source)
    saved = _saved(directory)
    if saved is None:
        form, sentences = _form_of(directory), hf_sentences.read(directory)
        model: Any = form.adapter.read_config(directory)
        portable = form.adapter.read(Checkpoint(str(source), directory, None), model)
        layout = model.published.layout or portable.input.get("layout", form.input.layout)
        if layout == "plain":
            layout = _followed({"layout": layout}, _tokenizer(directory, model.vocab_size))["layout"]
        if sentences is None:
            model = replace(model, **portable.options)
        elif issubclass(form.adapter.model, TextModelConfig):
            model = replace(model, pooling=sentences.pooling)
    else:
        model, layout = saved.model, saved.parts["input"].layout
    # Only the properties of the model are asked for, so it needs no weights.
    with torch.device("meta"):
        backbone = model.build()
    if not isinstance(backbone, Encodes):
        raise RamifyError(
            f"{source} holds {with_article(type(backbone).__name__)}, which gives no states of single texts. Choose a model of "
            "texts, such as a bert, xlnet or elmo."
        )
    return EncoderStart(model, model.published.layout or layout, backbone.max_tokens, backbone.layer_dims()[-1])


def _locate(source: str | Path) -> Path:
    """The directory of a complete model."""
    directory = hf.locate(source)
    if _is_unfinished(directory):
        raise RamifyError(f"{directory} is a run that has not finished. {_resuming(directory)}")
    return directory


def _check_own_model(directory: Path) -> None:
    """Raise if a folder holds the seeds of a run, or other variants of it, of which none was copied to it yet."""
    runs = sorted(file.parent for file in directory.glob(f"*/{RUN_FILE}"))
    if runs and not (directory / CONFIG).exists() and not (directory / RUN_FILE).exists():
        raise RamifyError(
            f"{directory} holds no model yet, only runs: {', '.join(run.name for run in runs)}. Name one of these, or resume "
            f"the others. {_resuming(runs[0])}"
        )


def _is_unfinished(directory: Path) -> bool:
    return (directory / RUN_FILE).exists() and not (directory / CONFIG).exists()


def _best_so_far(directory: Path) -> BestWeights:
    """The best weights of a run that has not finished; a line on stderr describes them."""
    best = best_weights(directory, _say)
    settings = directory / CHECKPOINTS / CONFIG
    if best is None or not settings.exists():
        lacks = "no checkpoint yet" if best is None else f"no {settings}"
        raise RamifyError(f"{directory} is a run that has not finished and has {lacks}. {_resuming(directory)}")
    measured = "not measured on dev yet"
    if best.value is not None:
        measured = f"{read_json(settings, A_RUN)[CHOSEN_BY][best.stage].replace('_', ' ')} {best.value:.4f}"
    _say(
        f"{directory} is a run that has not finished, so its best weights so far are loaded: of step {best.step}, {measured}. "
        f"{_resuming(directory)}"
    )
    return best


A_RUN = "a run"


def _resuming(directory: Path) -> str:
    """The remedy for a run that has not finished."""
    environment = read_json(directory / RUN_FILE, A_RUN).get("environment", {})
    command = environment.get("command", "")
    named = re.search(r" --out[ =](\S+)", command)
    # The seeds of a run lie in its folder.
    if not command.startswith("ramify train ") or not (
        named and Path(named[1]).resolve() in (directory.resolve(), directory.resolve().parent)
    ):
        return f"Resume it with the command that started it, --out {directory} and --resume."
    return f"Resume it with: {command.removesuffix(' --resume')} --resume"


def _say(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


def _saved(directory: Path) -> Saved | None:
    config = hf.read_config(directory)
    if config.get("library_name") != "ramify":
        return None
    check_format(config, FORMAT, directory / CONFIG)
    try:
        _named(MODELS, config["model"])
        task_kind = _named(TASKS, config["task"])
        parts = {name: _settings(part, config[name]) for name, part in task_kind.parts.items()}
        return Saved(model_of(config["model"]), parts, task_kind, config["kind"], config["pieces"])
    except (KeyError, TypeError, AttributeError) as error:
        raise RamifyError(
            f"{directory / CONFIG}: a part is missing or unknown ({error}). Save or download the model again."
        ) from None
    except RamifyError as error:
        raise RamifyError(f"{directory / CONFIG}: {error}") from None


def _named(table: Mapping[str, Kind], record: Mapping[str, Any]) -> Kind:
    if record["name"] not in table:
        raise RamifyError(
            f"name={record['name']!r} is not one of {', '.join(table)}. Load it with the version of Ramify that saved it."
        )
    return table[record["name"]]


def _settings(kind: type[Kind], record: Mapping[str, Any]) -> Kind:
    return from_record(kind, {name: value for name, value in record.items() if name != "name"})


def _load_saved(directory: Path, saved: Saved, changes: Mapping[str, Any], best: BestWeights | None) -> Pipeline:
    """The model of a directory, or with its `best` weights so far."""
    tokenizer = _tokenizer(directory, saved.model.vocab_size)
    if saved.pieces != tokenizer.pieces_hash:
        raise RamifyError(
            f"{directory}: tokenizer.json has other pieces, or other ids of them, than the model was saved with. Restore the "
            "tokenizer that was saved with the model."
        )
    tensors = hf.read_tensors(directory, None if best is None else [best.file])
    _check_sizes(saved.model, tensors, directory)
    backbone = saved.model.build()
    input = _input(type(saved.parts["input"]), vars(saved.parts["input"]), changes, backbone, directory)
    pipeline = saved.task_kind.build(backbone, tokenizer, saved.parts | {"input": input})
    load_own_tensors(pipeline.module, tensors, directory / WEIGHTS if best is None else best.file)
    pipeline.kind = saved.kind
    return pipeline


LENGTHS = ("max_tokens", "max_source_tokens", "concatenate")
"""The settings of inputs that are lengths of rows."""


def _input(kind: type[Kind], settings: Mapping[str, Any], changes: Mapping[str, Any], backbone: Any, directory: Path) -> Kind:
    """The settings of a model's input with the changes of `load`, which the message for settings that do not fit names."""
    names = [field.name for field in fields(cast(Any, kind))]
    if other := [name for name in changes if name not in names]:
        raise RamifyError(f"input.{other[0]} is no setting of {directory}, which has {', '.join(names)}. Choose one of them.")
    try:
        changed = from_record(kind, {**settings, **changes})
    except RamifyError as error:
        raise RamifyError(
            f"{directory}: {error} `ramify.load(…, input={{NAME: VALUE}})` sets input.NAME, and `ramify.save` keeps it for "
            "commands."
        ) from None
    longest = backbone.max_tokens if isinstance(backbone, Encodes) else None
    if over := [name for name in LENGTHS if longest is not None and (changes.get(name) or 0) > longest]:
        raise RamifyError(
            f"input.{over[0]}={changes[over[0]]} is more than the {counted(longest or 0, 'token')} that {directory} reads. "
            f"Lower input.{over[0]}."
        )
    return changed


FEWEST = 1 << 14
"""A size up to this may be greater than the number of weights: the greatest length of a text, in a model without positions."""


def _check_sizes(config: Any, tensors: Mapping[str, Tensor], directory: Path) -> None:
    """Raise `RamifyError` if a size in a config is greater than the number of weights, before memory for it is asked for."""
    weights = sum(tensor.numel() for tensor in tensors.values())
    for name in config.inner:
        _check_sizes(getattr(config, name), tensors, directory)
    for field in fields(config):
        value = getattr(config, field.name)
        for size in value if isinstance(value, tuple) else (value,):
            if isinstance(size, int) and size > max(FEWEST, weights):
                raise RamifyError(
                    f"{directory / CONFIG}: {field.name}={size} fits no model of {weights:,} weights. Save or download "
                    "the model again."
                )


def _tokenizer(directory: Path, vocab_size: int) -> Tokenizer:
    tokenizer = Tokenizer.load(directory)
    if tokenizer.vocab_size > vocab_size:
        raise RamifyError(
            f"{directory}: the tokenizer has {tokenizer.vocab_size} pieces, but the model's vocab_size is {vocab_size}. "
            "Restore the tokenizer that was saved with the model."
        )
    return tokenizer


def load_weights(task: Task, file: Path) -> None:
    """Load a file of `own_tensors` into a task."""
    load_own_tensors(task, load_tensors(file), file)


# --- the forms of other libraries ---------------------------------------------------------------------------------------------


def _load_hugging_face(directory: Path, changes: Mapping[str, Any]) -> Pipeline:
    """Load a checkpoint of another library, with the task that its heads make. A sentence-transformers directory embeds,
    whatever heads it holds, as `hf_sentences.SentenceForm` says."""
    form, sentences = _form_of(directory), hf_sentences.read(directory)
    config: Any = form.adapter.read_config(directory)
    if sentences is not None:
        if form.headless is None or not issubclass(form.adapter.model, TextModelConfig):
            raise RamifyError(
                f"{directory / hf_sentences.MODULES} pools the states of {with_article(model_name(config))}, which Ramify does "
                "not. Choose another checkpoint."
            )
        config = replace(config, pooling=sentences.pooling)
    checkpoint_ = Checkpoint(str(directory), directory, None)
    _check_sizes(config, checkpoint_.tensors, directory)
    model = form.adapter.read(checkpoint_, config)
    backbone = config.build()
    load_strictly(backbone.state_dict(), model.backbone, directory)
    tokenizer = _tokenizer(directory, config.vocab_size)
    if sentences is None and model.label_head is not None:
        return _with_label_head(directory, backbone, tokenizer, model, model.label_head, changes)
    settings = vars(form.input) | {**model.input}
    if "begin" in settings:
        settings = _followed(settings, tokenizer)
    if sentences is not None:
        settings["max_tokens"] = min(sentences.max_tokens or config.max_tokens, config.max_tokens)
    input = _input(type(form.input), settings, changes, backbone, directory)
    tokenizer.require(LAYOUTS[input.layout].roles, f"rows of {input.layout}")
    if sentences is not None and form.headless is not None:
        if sentences.lowercase:
            steps = [normalizers.Lowercase(), tokenizer.engine.normalizer]
            tokenizer.engine.normalizer = normalizers.Sequence([step for step in steps if step is not None])
        return form.headless(backbone, tokenizer, input, sentences)
    if not model.heads:
        if form.headless is None:
            raise RamifyError(
                f"{directory} holds no head, so this {type(backbone).__name__} predicts no words. Choose a checkpoint that "
                "holds its head."
            )
        return form.headless(backbone, tokenizer, input)
    kind = TASKS[form.task]
    pipeline = kind.build(backbone, tokenizer, {"task": kind.config(**model.task), "input": input})
    load_own_tensors(pipeline.module, own_tensors(pipeline.module) | {**model.heads}, directory)
    pipeline.kind = form.kind
    return pipeline


def _followed(input: dict[str, Any], tokenizer: Tokenizer) -> dict[str, Any]:
    """The input of a checkpoint whose kind of model has no special tokens around a text, but whose tokenizer may put one before
    it. Raises `RamifyError` for other ones."""
    if input["layout"] != "plain" or tokenizer.around == ((), ()):
        return input
    begins = tokenizer.layout("begin")
    if tokenizer.around != (begins.before, begins.after):
        before, behind = (" ".join(map(tokenizer.token, ids)) or "nothing" for ids in tokenizer.around)
        begin = "the token that begins texts" if not begins.before else tokenizer.token(begins.before[0])
        raise RamifyError(
            f"{tokenizer.source} puts {before} before a text and {behind} behind it, but such a model reads texts alone or "
            f"behind {begin}. Choose another checkpoint."
        )
    return input | {"layout": "begin"} | ({"begin": True} if "begin" in input else {})


def _with_label_head(
    directory: Path,
    backbone: Any,
    tokenizer: Tokenizer,
    model: PortableModel[Any],
    head: LabelHead,
    changes: Mapping[str, Any],
) -> Pipeline:
    """The pipeline of a checkpoint with a head on labelled texts."""
    form = LABEL_FORMS[head.kind]
    kind = TASKS[form.task]
    input = _input(kind.input, _followed({**model.input, **form.head.input}, tokenizer), changes, backbone, directory)
    tokenizer.require(LAYOUTS[input.layout].roles, f"rows of {input.layout}")
    pipeline = kind.build(backbone, tokenizer, {"task": kind.config(**form.head.settings(head)), "input": input})
    load_own_tensors(pipeline.module, own_tensors(pipeline.module) | form.head.tensors(head), directory)
    pipeline.kind = form.kind
    return pipeline


def _form_of(directory: Path) -> HFForm:
    name = hf.read_config(directory).get("model_type")
    # A damaged file may hold a list, which is no key.
    if name not in [*HF_FORMS]:
        raise RamifyError(
            f"{directory / CONFIG}: model_type={name!r} is not one of {', '.join(HF_FORMS)}, whose checkpoints can be loaded. "
            "Choose another checkpoint."
        )
    return HF_FORMS[name]


def foreign_heads(checkpoint: Checkpoint, config: Any) -> dict[str, Tensor]:
    """The heads of another library's checkpoint, for a model of this config, under the names that its task gives them."""
    return {**_form_of(checkpoint.directory).adapter.read(checkpoint, config).heads}


def export_hugging_face(pipeline: Pipeline, directory: str | Path) -> None:
    """Write a model for the ordinary loaders of transformers: config.json, model.safetensors, tokenizer.json and
    tokenizer_config.json, which lays out texts and pairs as the model reads them.

    A Bert becomes the architecture of its family that has its settings, such as a `BertForMaskedLM` or a `RobertaForMaskedLM`;
    a `BertForPreTraining` if it also predicts the next sentence; and a `BertModel` if it has no task. The latter holds no
    pooling but that of the first token. An XLNet becomes an `XLNetLMHeadModel`; a Transformer with the settings of GPT-2 or T5
    becomes a `GPT2LMHeadModel` or a `T5ForConditionalGeneration`. A task on labelled texts becomes the
    `…ForSequenceClassification`, `…ForTokenClassification`, `…ForQuestionAnswering` or `…ForMultipleChoice` of its model, whose
    probabilities are those of `predict`. Raises `RamifyError` if the model has no such form.
    """
    directory, tokenizer, files = Path(directory), pipeline.tokenizer, foreign_files(pipeline)
    roles = {name: tokenizer.role_ids(role) for name, role in files.roles.items()}
    ids = {name: [*tokens] if len(tokens) > 1 else next(iter(tokens), None) for name, tokens in roles.items()}
    hf.write(directory, {**files.config, **ids}, files.tensors)
    tokenizer.export(directory, files.layout, files.tokenizer)
    sentences = pipeline.parts().get("sentences")
    if sentences is not None:
        written = replace(sentences, max_tokens=pipeline.input.max_tokens, lowercase=False)
        hf_sentences.write(directory, written, pipeline.backbone.vector_dim)


def has_foreign_form(config: Any) -> bool:
    """Whether models with a config of this class have a Hugging Face form, with some task and some settings."""
    return any(form.adapter.model is type(config) for form in HF_FORMS.values())


def foreign_files(pipeline: Pipeline) -> ForeignFiles:
    """The content of a model in Hugging Face's form (`export_hugging_face`). Raises `RamifyError` if it has no such form."""
    task = _task_name(pipeline)
    forms = [form for form in HF_FORMS.values() if form.adapter.model is type(pipeline.backbone.config)]
    labels = next((labels for labels in LABEL_FORMS.values() if labels.task == task), None)
    fits = [form for form in forms if labels or task == form.task or (task is None and type(pipeline) is form.headless)]
    form = next(iter(fits), None)
    if form is None:
        raise RamifyError(
            f"this {type(pipeline.backbone).__name__} ({type(pipeline.module).__name__}) has no Hugging Face form; "
            f"{_known_forms(forms, task)}. Train such a model, or save this one in Ramify's form."
        )
    heads = {}
    if task is not None and labels is None:
        heads = {name: tensor for name, tensor in own_tensors(pipeline.module).items() if not name.startswith(BACKBONE)}
    return form.adapter.write(
        PortableModel(
            pipeline.backbone.config,
            {name: tensor.detach() for name, tensor in pipeline.backbone.state_dict().items()},
            heads=heads,
            task={} if task is None else vars(pipeline.parts()["task"]),
            input=vars(pipeline.input),
            label_head=None if labels is None else labels.head.write(pipeline.module),
            pad_id=pipeline.tokenizer.role_id("pad"),
        )
    )


def _known_forms(forms: Sequence[HFForm], task: str | None) -> str:
    """The forms that exist: of the same model with other tasks, or else of other models with the same task, or else all."""
    labels = {labels.task for labels in LABEL_FORMS.values()}
    if forms:
        names, tasks = {_class_of(form) for form in forms}, {form.task for form in forms} | labels
    elif task in labels:
        names, tasks = {_class_of(form) for form in HF_FORMS.values()}, {task}
    else:
        return f"{' and '.join(sorted({f'{_class_of(form)} with {form.task}' for form in HF_FORMS.values()}))} have one"
    return f"{' and '.join(sorted(names))} with {' or '.join(sorted(tasks))} {'have' if len(names) > 1 else 'has'} one"


def _class_of(form: HFForm) -> str:
    return form.adapter.model.__name__.removesuffix("Config")


def push_to_hub(directory: str | Path, repo: str, *, private: bool = False, run_record: bool = False) -> str:
    """Upload a saved model (config, weights, tokenizer and card) and return its address. Needs a login (`hf auth login`).

    `run_record` adds run.json, which contains the path of the data, the command and the hardware of the training. Raises
    `RamifyError` if the directory holds no finished model that Ramify saved. No repository is created then.
    """
    from huggingface_hub import HfApi

    if not Path(directory).is_dir() or saved_config(directory) is None:
        raise RamifyError(
            f"{directory} holds no model that Ramify saved. Name the directory of a finished run, or one that "
            "`ramify.save` wrote."
        )
    files = [CONFIG, WEIGHTS, TOKENIZER, ROLES_FILE, CARD, *([RUN_FILE] if run_record else [])]
    api = HfApi()
    try:
        address = api.create_repo(repo, private=private, exist_ok=True)
        api.upload_folder(folder_path=str(directory), repo_id=repo, allow_patterns=files)
    except Exception as error:
        reason, remedy = hf.hub_failure(error)
        raise RamifyError(f"{directory} cannot be uploaded as {repo}: {reason}. {remedy}.") from None
    return str(address)


def model_card(
    pipeline: Pipeline, *, title: str = "", license: str = "", notes: str = "", results: Mapping[str, Any] | None = None
) -> str:
    """The README of a saved model, with metadata for the hub. `license` is the hub's identifier of a license."""
    parameters = sum(parameter.numel() for parameter in pipeline.module.parameters())
    name = model_name(pipeline.backbone.config)
    kinds = type(pipeline.backbone).__name__, type(pipeline.module).__name__
    article = "An" if kinds[0][0] in "AEIOU" else "A"
    lines = [
        "---",
        "library_name: ramify",
        f"tags: [ramify, {name}, {_task_name(pipeline)}]",
        *(["pipeline_tag: fill-mask"] if "fill_mask" in pipeline.verbs else []),
        *([f"license: {license}"] if license else []),
        "---",
        "",
        f"# {title or name}",
        "",
        f"{article} {kinds[0]} with {parameters:,} parameters, trained as {kinds[1]} by Ramify {__version__}.",
        "",
        "```python",
        "import ramify",
        "",
        'model = ramify.load("this directory or its hub id")',
        *pipeline.usage,
        "```",
        "",
        "| setting | value |",
        "|---|---|",
        *(f"| {field.name} | {getattr(pipeline.backbone.config, field.name)} |" for field in fields(pipeline.backbone.config)),
    ]
    if notes:
        lines += ["", notes]
    if results:
        lines += ["", "## Held-out results", "", "| measure | value |", "|---|---|"]
        lines += [f"| {key} | {value} |" for key, value in results.items()]
    return "\n".join(lines) + "\n"
