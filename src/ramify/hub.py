"""Save models to disk or the hub, and load them strictly: config.json, model.safetensors, tokenizer.json and a model card."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ramify.batching.views.comment_trees import TextInput
from ramify.batching.views.streams import StreamInput
from ramify.config import from_record
from ramify.errors import RamifyError
from ramify.files import check_format, make_folder, read_json, replacing, write_text
from ramify.inference.base import Pipeline
from ramify.inference.embed import Embedder
from ramify.inference.fill_mask import MaskFiller
from ramify.inference.permutation import PermutationPipeline
from ramify.models import bert, hf, xlnet
from ramify.models.base import Checkpoint
from ramify.models.bert import Bert
from ramify.registry import MODELS, TASKS, TaskKind, model_name, task_name
from ramify.tasks.base import Task, belongs
from ramify.tasks.masked_lm import MaskedLM, MaskedLMConfig
from ramify.tasks.permutation_lm import PermutationLM, PermutationLMConfig
from ramify.tensors import load_strictly, load_tensors, save_tensors
from ramify.tokenizer import Tokenizer
from ramify.version import __version__

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
CARD = "README.md"
FORMAT = 2
"""The format number of config.json. A file with another number, or none, is refused."""

Kind = TypeVar("Kind")


def own_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return every parameter and persistent buffer once, under its first name. Tied weights have several names."""
    return {name: tensor.detach().contiguous() for name, tensor in _owned(model).items()}


def load_own_tensors(model: nn.Module, tensors: Mapping[str, Tensor], where: str | Path) -> None:
    """Copy tensors into the parameters and persistent buffers. Raises if any is missing, left over or of another shape."""
    load_strictly(_owned(model), tensors, where)


def start_from(task: Task[Any], tensors: Mapping[str, Tensor], where: str | Path) -> None:
    """Let a new task start from the tensors of a saved one. The task says which of them begin anew (`Task.fresh`), and which a
    saved task may lack or have in addition (`Task.optional`). Raises if others are missing, left over or of another shape."""
    own = own_tensors(task)
    free = (*task.fresh, *task.optional)
    new = {name: tensor for name, tensor in own.items() if belongs(name, free)}
    kept = {
        name: tensor
        for name, tensor in tensors.items()
        if not belongs(name, task.fresh) and (name in own or not belongs(name, task.optional))
    }
    load_own_tensors(task, new | kept, where)


def _owned(model: nn.Module) -> dict[str, Tensor]:
    kept = model.state_dict(keep_vars=True).keys()
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in kept}
    return dict(model.named_parameters()) | buffers


def save(pipeline: Pipeline, directory: str | Path, *, card: str | None = None, dtype: torch.dtype | None = None) -> None:
    """Save a model to a directory, which `load` and `push_to_hub` accept.

    `card` is the text of README.md; None: that of `model_card`. `dtype` is the type of the stored weights, for example
    `torch.float16`; None: that of the model. Raises `RamifyError` if the pipeline has no task, such as an `Embedder`
    of another library's checkpoint, whose own directory is its saved form.
    """
    if not isinstance(pipeline, Pipeline):
        raise RamifyError(f"save takes a pipeline, such as `ramify.load` returns, not a {type(pipeline).__name__}.")
    task = _task_name(pipeline)
    if task is None:
        raise RamifyError(
            f"a {type(pipeline).__name__} has no saved form, because it has no task ({', '.join(TASKS)}). Load the directory "
            "or hub id that it came from."
        )
    directory = Path(directory)
    config = {
        "library_name": "ramify",
        "ramify_version": __version__,
        "format": FORMAT,
        "pieces": pipeline.tokenizer.pieces_hash,
        "model": {"name": model_name(pipeline.backbone.config), **asdict(pipeline.backbone.config)},
        **{name: asdict(part) for name, part in pipeline.parts().items()},
    }
    config["task"] = {"name": task, **config["task"]}
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
    write_text(directory / CONFIG, json.dumps(config, indent=2) + "\n")


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


def load(source: str | Path, *, revision: str | None = None, device: str | torch.device | None = None) -> Pipeline:
    """Load a trained model in evaluation mode.

    `source` is a run directory, a Hugging Face directory (BERT family or sentence-transformers), a hub id, or the name of a
    model that ships with Ramify: links or tree-mlm-small. `revision` is a branch, tag or commit of a hub id, which
    `owner/name@revision` names too. `device` is a name for `find_device`; None: the CPU. Raises `RamifyError` if `source` holds
    no complete model.
    """
    if revision and Path(source).exists():
        raise RamifyError(
            f"revision={revision!r} cannot apply to {source}, a local path: only models on the hub have revisions. Leave it "
            f"out, or load '{source}@{revision}' for the hub's model of that name."
        )
    source = f"{source}@{revision}" if revision else source
    place = find_device(device or "cpu")
    directory = _locate(source)
    saved = _saved(directory)
    pipeline = _load_hugging_face(directory) if saved is None else _load_saved(directory, saved)
    pipeline.module.eval()
    return pipeline.to(place)


@dataclass(frozen=True)
class Saved:
    """The content of a config.json that `save` wrote."""

    model: Any
    parts: dict[str, Any]
    """The settings of each part in `TaskKind.parts`, by name."""
    task_kind: TaskKind
    pieces: str | None
    """The hash of the tokenizer's pieces; None: an earlier version of Ramify saved the model without it."""


def saved_config(source: str | Path) -> Saved | None:
    """Read the settings of a model that `save` wrote; None for another library's checkpoint."""
    return _saved(_locate(source))


def checkpoint(source: str | Path) -> Checkpoint:
    """Find the checkpoint in a directory or under a hub id, from which a model may start."""
    directory = _locate(source)
    saved = _saved(directory)
    return Checkpoint(str(source), directory, None if saved is None else saved.model)


def _locate(source: str | Path) -> Path:
    directory = Path(source)
    if (directory / "run.json").exists() and not (directory / CONFIG).exists():
        raise RamifyError(f"{directory} is a run that has not finished: resume it with `ramify train … --resume`.")
    return hf.locate(source)


def _saved(directory: Path) -> Saved | None:
    config = read_json(directory / CONFIG, hf.A_CHECKPOINT)
    if config.get("library_name") != "ramify":
        return None
    check_format(config, FORMAT, directory / CONFIG)
    try:
        config_kind = _named(MODELS, config["model"])
        task_kind = _named(TASKS, config["task"])
        parts = {name: _settings(part, config[name]) for name, part in task_kind.parts.items()}
        return Saved(_settings(config_kind, config["model"]), parts, task_kind, config.get("pieces"))
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


def _load_saved(directory: Path, saved: Saved) -> Pipeline:
    tokenizer = _tokenizer(directory, saved.model.vocab_size)
    if saved.pieces not in (None, tokenizer.pieces_hash):
        raise RamifyError(
            f"{directory}: tokenizer.json has other pieces, or other ids of them, than the model was saved with. Restore the "
            "tokenizer that was saved with the model."
        )
    pipeline = saved.task_kind.build(saved.model.build(), tokenizer, saved.parts)
    load_own_tensors(pipeline.module, hf.read_tensors(directory), directory / WEIGHTS)
    return pipeline


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


def _load_hugging_face(directory: Path) -> Pipeline:
    """Load a checkpoint of XLNet or of the BERT family."""
    kind = read_json(directory / CONFIG, hf.A_CHECKPOINT).get("model_type")
    return _load_xlnet(directory) if kind == xlnet.MODEL_TYPE else _load_bert(directory)


def _load_xlnet(directory: Path) -> Pipeline:
    """Load an XLNet with its head. It scores texts, generates, fills masks and embeds."""
    config = xlnet.config_from_hf(directory)
    tensors, head = xlnet.tensors_from_hf(hf.read_tensors(directory), config, directory)
    if not head:
        raise RamifyError(f"{directory} holds no lm_loss.bias, so this XLNet predicts no words. Choose one with its head.")
    backbone = config.build()
    load_strictly(dict(backbone.named_parameters()), tensors, directory)
    tokenizer = _tokenizer(directory, config.vocab_size)
    input = StreamInput(row_tokens=512, reused_tokens=256)
    task = PermutationLM(backbone, tokenizer, input, PermutationLMConfig(tie_weights="weight" not in head))
    load_own_tensors(task, own_tensors(task) | {f"head.{name}": value for name, value in head.items()}, directory)
    return PermutationPipeline(task)


def _load_bert(directory: Path) -> Pipeline:
    """Load a checkpoint of the BERT family. With a masked-LM head it fills masks; without one it embeds texts.

    A sentence-transformers directory determines the pooling, the normalization and the length limit of embeddings.
    """
    pooling, normalize, max_tokens = _sentence_transformers(directory)
    backbone = bert.from_pretrained(directory, pooling=pooling)
    tokenizer = _tokenizer(directory, backbone.config.vocab_size)
    tokenizer.require(("cls", "sep"), "a BERT-family checkpoint")
    input = TextInput(max_tokens=min(max_tokens or 512, backbone.config.max_tokens), context="none")
    head = bert.head_from_hf(hf.bert_tensors(directory))
    if head is None:
        return Embedder(backbone, tokenizer, input, normalize=normalize)
    task = MaskedLM(backbone, tokenizer, input, MaskedLMConfig(head="bert", tie_weights="weight" not in head))
    load_own_tensors(task, own_tensors(task) | {f"head.{name}": value for name, value in head.items()}, directory)
    return MaskFiller(task)


def _sentence_transformers(directory: Path) -> tuple[str, bool, int]:
    """Read (pooling, normalize, maximum length) of a sentence-transformers directory; (mean, False, 0) for any other."""
    if not (directory / "modules.json").exists():
        return "mean", False, 0
    try:
        modules = json.loads((directory / "modules.json").read_text("utf-8"))
        kinds = [module["type"].rsplit(".", 1)[-1] for module in modules]
        paths = [directory / module["path"] for module in modules]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise RamifyError(
            f"{directory / 'modules.json'} is not a list of modules with a type and a path each. Download the checkpoint again."
        ) from None
    if unknown := set(kinds) - {"Transformer", "Pooling", "Normalize"}:
        raise RamifyError(
            f"{directory / 'modules.json'}: modules of type {', '.join(sorted(unknown))} are not supported; only Transformer, "
            "Pooling and Normalize are. Choose another checkpoint."
        )
    pooling = "mean"
    for path, kind in zip(paths, kinds, strict=True):
        if kind == "Pooling":
            modes = read_json(path / CONFIG, hf.A_CHECKPOINT)
            on = [name for name, value in modes.items() if name.startswith("pooling_mode_") and value is True]
            known = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max"}
            if len(on) != 1 or on[0] not in known:
                raise RamifyError(
                    f"{path}: pooling by {', '.join(on) or 'no mode'} is not supported; only one of mean, cls and max is. "
                    "Choose another checkpoint."
                )
            pooling = known[on[0]]
    settings = directory / "sentence_bert_config.json"
    longest = read_json(settings, hf.A_CHECKPOINT).get("max_seq_length") if settings.exists() else None
    return pooling, "Normalize" in kinds, int(longest or 0)


def export_hugging_face(pipeline: Pipeline, directory: str | Path) -> None:
    """Write a Bert with its head in the form of transformers' `BertForMaskedLM`, or of `BertForPreTraining` if it also predicts
    the next sentence; or an XLNet in that of `XLNetLMHeadModel`.

    Raises `RamifyError` if the model has no such form.
    """
    task = pipeline.module
    if isinstance(task, PermutationLM) and isinstance(task.backbone, xlnet.XLNet) and task.config.tie_weights:
        xlnet.save_pretrained(task.backbone, directory, task.head.bias, task.input.reused_tokens)
        task.tokenizer.save(Path(directory))
        return
    if (
        not isinstance(task, MaskedLM)
        or not isinstance(task.backbone, Bert)
        or task.config.head != "bert"
        or not task.config.tie_weights
    ):
        raise RamifyError(
            f"this {type(pipeline.backbone).__name__} ({type(task).__name__}) has no Hugging Face form; only a Bert that was "
            "trained with task.head=bert, and an XLNet, both with task.tie_weights=true, have one. Train such a model."
        )
    bert.save_pretrained(task.backbone, directory, task.head, task.next_head)
    task.tokenizer.save(Path(directory))


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
    api = HfApi()
    address = api.create_repo(repo, private=private, exist_ok=True)
    files = [CONFIG, WEIGHTS, "tokenizer.json", CARD, *(["run.json"] if run_record else [])]
    api.upload_folder(folder_path=str(directory), repo_id=repo, allow_patterns=files)
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
