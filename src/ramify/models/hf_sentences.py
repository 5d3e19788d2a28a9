"""Directories of sentence-transformers, of every release from 2 to 6: how texts become vectors."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ramify.errors import RamifyError
from ramify.files import make_folder, read_json, write_text
from ramify.models import hf
from ramify.nn.pooling import Pooling

MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"

POOLINGS: dict[str, Pooling] = {"mean": "mean", "cls": "cls", "max": "max"}
"""From the poolings of sentence-transformers to Ramify's."""

NAMED = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""The settings that name poolings in files before release 5, which have no `pooling_mode`."""

OWN = re.compile(r"^sentence_transformers\..*\.")
"""The beginning of the paths of the library's own classes, which differs from release to release."""

ORDERS = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
"""The sequences of modules that Ramify has."""

READ = ("max_seq_length", "do_lower_case")
TEXTS = {"method": "forward", "method_output_name": "last_hidden_state"}
NEEDED = {
    "transformer_task": ("feature-extraction", "gives other outputs than the states of tokens"),
    "module_output_name": ("token_embeddings", "hands other states to the pooling"),
    "modality_config": (TEXTS, "calls the model in another way for texts"),
}
"""The settings of the module Transformer that Ramify reads, and the only supported values of others."""

NORMALIZED = {
    "module_input_name": ("sentence_embedding", "normalizes other vectors"),
    "module_output_name": ("sentence_embedding", "keeps the vectors as they are"),
}
"""The only supported values of settings of the module Normalize."""

WITHOUT_EFFECT = ("unpad_inputs", "query_length", "document_length", "query_expansion")
"""Settings of the module Transformer that do not change the vector which `SentenceTransformer.encode` gives a text."""


@dataclass(frozen=True)
class Prompt:
    """A text that stands before every text."""

    text: str = ""
    pooled: bool = True
    """Whether the vector of a text pools the prompt's tokens, and those before them."""


@dataclass(frozen=True)
class SentenceForm:
    """The embeddings of a sentence-transformers directory."""

    pooling: Pooling
    normalize: bool = False
    prompt: Prompt = Prompt()
    max_tokens: int | None = None
    """The longest row; None: as long as the model reads."""
    lowercase: bool = False
    """Whether texts are written in small letters before the tokenizer reads them."""


def read(directory: Path) -> SentenceForm | None:
    """The embeddings of a sentence-transformers directory; None for any other, and for a classifier of that library.

    Raises `RamifyError` for a setting that changes vectors and that Ramify lacks.
    """
    if not (directory / MODULES).exists():
        return None
    general = read_json(directory / SETTINGS, hf.A_CHECKPOINT) if (directory / SETTINGS).exists() else {}
    if (kind := general.get("model_type", "SentenceTransformer")) == "CrossEncoder":
        return None
    if kind != "SentenceTransformer":
        raise RamifyError(
            f"{directory / SETTINGS}: model_type={kind!r} is not supported; only SentenceTransformer and CrossEncoder are. "
            "Choose another checkpoint."
        )
    if (length := general.get("truncate_dim")) is not None:
        raise RamifyError(
            f"{directory / SETTINGS}: truncate_dim={length} is not supported, because vectors keep their full length here. "
            "Set it to null, or choose another checkpoint."
        )
    folders = _modules(directory)
    transformer = _transformer_settings(folders["Transformer"])
    pooling, pooled = _pooling(folders["Pooling"])
    normalize = "Normalize" in folders
    if normalize and (folders["Normalize"] / hf.CONFIG).exists():
        path = folders["Normalize"] / hf.CONFIG
        hf.check_settings(path, read_json(path, hf.A_CHECKPOINT), NORMALIZED, "the module Normalize")
    longest = transformer.get("max_seq_length") or _tokenizer_limit(directory)
    lowercase = bool(transformer.get("do_lower_case"))
    return SentenceForm(pooling, normalize, Prompt(_default_prompt(directory, general), pooled), longest, lowercase)


def _modules(directory: Path) -> dict[str, Path]:
    """The folder of each module, by the name of its class."""
    path = directory / MODULES
    try:
        modules = json.loads(path.read_text("utf-8"))
        folders = [(OWN.sub("", module["type"]), directory / module["path"]) for module in modules]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise RamifyError(
            f"{path} is not a list of modules with a type and a path each. Download the checkpoint again."
        ) from None
    kinds = [kind for kind, _ in folders]
    if kinds not in ORDERS:
        raise RamifyError(
            f"{path}: the modules {', '.join(kinds)} are not supported; only Transformer and Pooling are, with Normalize or "
            "without. Choose another checkpoint."
        )
    if folders[0][1] != directory:
        raise RamifyError(
            f"{path}: the module Transformer lies in {folders[0][1].name}, but only one beside {MODULES} is read. Save the "
            "model again with a newer release of sentence-transformers, or choose another checkpoint."
        )
    return dict(folders)


def _transformer_settings(directory: Path) -> dict[str, Any]:
    path = next(iter(sorted(directory.glob("sentence_*_config.json"))), None)
    if path is None:
        return {}
    settings = read_json(path, hf.A_CHECKPOINT)
    given = settings | {"modality_config": (settings.get("modality_config") or {}).get("text", TEXTS)}
    hf.check_settings(path, given, NEEDED, "embeddings")
    if other := [name for name in settings if name not in (*READ, *NEEDED, *WITHOUT_EFFECT) and settings[name]]:
        raise RamifyError(
            f"{path}: {other[0]}={settings[other[0]]!r} is not supported for embeddings. Choose another checkpoint."
        )
    return settings


def _pooling(directory: Path) -> tuple[Pooling, bool]:
    """The pooling, and whether it pools prompts, too."""
    settings = read_json(directory / hf.CONFIG, hf.A_CHECKPOINT)
    named = settings.get("pooling_mode") or [mode for name, mode in NAMED.items() if settings.get(name)] or "mean"
    modes = [named] if isinstance(named, str) else named
    if len(modes) != 1 or modes[0] not in [*POOLINGS]:
        raise RamifyError(
            f"{directory}: pooling by {', '.join(map(str, modes))} is not supported; only one of {', '.join(POOLINGS)} is. "
            "Choose another checkpoint."
        )
    return POOLINGS[modes[0]], bool(settings.get("include_prompt", True))


def _default_prompt(directory: Path, general: Mapping[str, Any]) -> str:
    """The prompt that `SentenceTransformer.encode` writes before a text if none is chosen."""
    name, prompts = general.get("default_prompt_name"), {"query": "", "document": "", **(general.get("prompts") or {})}
    if name is None:
        return ""
    if name not in [*prompts]:
        raise RamifyError(
            f"{directory / SETTINGS}: default_prompt_name={name!r} is not one of its prompts ({', '.join(prompts)}). Name one "
            "of them, or set it to null for no prompt."
        )
    return prompts[name] or ""


def _tokenizer_limit(directory: Path) -> int | None:
    path = directory / "tokenizer_config.json"
    return read_json(path, hf.A_CHECKPOINT).get("model_max_length") if path.exists() else None


def write(directory: Path, form: SentenceForm, dim: int) -> None:
    """Write the files of sentence-transformers beside those of the model, whose states have `dim` numbers. Every release from 2
    to 6 reads them."""
    kinds = ORDERS[form.normalize]
    folders = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds) if number)]
    mode = next(mode for mode, pooling in POOLINGS.items() if pooling == form.pooling)
    files = {
        "sentence_bert_config.json": {"max_seq_length": form.max_tokens, "do_lower_case": form.lowercase},
        f"{folders[1]}/{hf.CONFIG}": {
            "word_embedding_dimension": dim,
            **{name: other == mode for name, other in NAMED.items()},
            "include_prompt": form.prompt.pooled,
        },
        SETTINGS: {
            "prompts": {"default": form.prompt.text} if form.prompt.text else {},
            "default_prompt_name": "default" if form.prompt.text else None,
        },
        MODULES: [
            {"idx": number, "name": str(number), "path": folder, "type": f"sentence_transformers.models.{kind}"}
            for number, (kind, folder) in enumerate(zip(kinds, folders, strict=True))
        ],
    }
    for folder in folders:
        make_folder(directory / folder)
    for name, content in files.items():
        write_text(directory / name, json.dumps(content, indent=2) + "\n")
