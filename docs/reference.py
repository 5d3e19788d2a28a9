"""Tables read from the package itself, so that they cannot fall behind it: settings of a run, and file formats."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from figures import GENERATED, table

from ramify.batching.text_input import TextInput
from ramify.batching.views.comment_trees import RegimeConfig
from ramify.batching.views.documents import LevelInput
from ramify.batching.views.packed import PackConfig, PairConfig
from ramify.batching.views.streams import StreamConfig, StreamInput
from ramify.disentangle.config import ChatInput, DecodingConfig, LinkConfig
from ramify.disentangle.models.bert_pair import BertPairConfig
from ramify.disentangle.models.decomposable_attention import DecomposableAttentionConfig
from ramify.disentangle.models.esim import ESIMConfig
from ramify.disentangle.models.feature_model import FeatureModelConfig
from ramify.disentangle.models.mht import MHTConfig
from ramify.models.agent import AgentConfig
from ramify.models.bert import BertConfig
from ramify.models.name_memory import NameMemoryConfig
from ramify.models.tree_mlm import TreeMLMConfig
from ramify.models.xlnet import XLNetConfig
from ramify.readers import FORMATS
from ramify.runs.comment_trees.run import DevConfig
from ramify.runs.disentanglement.run import BlockConfig, LinkDevConfig, WordsConfig
from ramify.runs.nested_documents.adversary import AdversaryDevConfig
from ramify.runs.nested_documents.run import NestedConfig, NestedDevConfig
from ramify.runs.running_text import RowDevConfig
from ramify.runs.tokenizers import TokenizerConfig
from ramify.tasks.denoising_lm import DenoisingLMConfig
from ramify.tasks.masked_lm import MaskedLMConfig
from ramify.tasks.nested.config import NestedAutoencoderConfig
from ramify.tasks.nested_adversary import NestedAdversaryConfig
from ramify.tasks.permutation_lm import PermutationLMConfig
from ramify.training.config import PhaseSettings, TrainConfig
from ramify.training.optimizers import OPTIMIZERS
from ramify.training.schedules import SCHEDULES

SETTINGS: dict[str, type] = {
    "settings-tree-mlm": TreeMLMConfig,
    "settings-bert": BertConfig,
    "settings-task": MaskedLMConfig,
    "settings-input": TextInput,
    "settings-view": RegimeConfig,
    "settings-train": TrainConfig,
    "settings-phase": PhaseSettings,
    "settings-tokenizer": TokenizerConfig,
    "settings-dev": DevConfig,
    "settings-pairs": PairConfig,
    "settings-packing": PackConfig,
    "settings-row-dev": RowDevConfig,
    "settings-feature-model": FeatureModelConfig,
    "settings-mht": MHTConfig,
    "settings-decatt": DecomposableAttentionConfig,
    "settings-esim": ESIMConfig,
    "settings-bert-pair": BertPairConfig,
    "settings-reply-to": LinkConfig,
    "settings-chat-input": ChatInput,
    "settings-decoding": DecodingConfig,
    "settings-blocks": BlockConfig,
    "settings-words": WordsConfig,
    "settings-link-dev": LinkDevConfig,
    "settings-xlnet": XLNetConfig,
    "settings-permutation": PermutationLMConfig,
    "settings-denoising": DenoisingLMConfig,
    "settings-stream-input": StreamInput,
    "settings-streams": StreamConfig,
    "settings-agent": AgentConfig,
    "settings-name-memory": NameMemoryConfig,
    "settings-nested-autoencoder": NestedAutoencoderConfig,
    "settings-level-input": LevelInput,
    "settings-nested": NestedConfig,
    "settings-nested-dev": NestedDevConfig,
    "settings-nested-adversary": NestedAdversaryConfig,
    "settings-adversary-dev": AdversaryDevConfig,
}


def settings_table(config: type) -> str:
    """A row a field: its name, its default, what it may be, and what its source says of it."""
    kinds = get_type_hints(config)
    said = {name: text for each in reversed(config.__mro__[:-1]) for name, text in docstrings(each)}
    rows = []
    for each in fields(config):
        default = each.default if each.default_factory is MISSING else each.default_factory()
        value = "required" if default is MISSING else f"`{shown(default)}`"
        rows.append((f"`{each.name}`", value, names(each.name) or choices(kinds[each.name]), said.get(each.name, "")))
    return table(("setting", "default", "values", "meaning"), rows).replace(":-:", "---")


def docstrings(config: type) -> Iterator[tuple[str, str]]:
    """(field, the string literal below it) of a dataclass."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(config))).body
    assert isinstance(definition, ast.ClassDef)
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
            yield field.target.id, " ".join(str(below.value.value).split()).replace("|", "\\|")


def shown(default: Any) -> str:
    if is_dataclass(default):
        return "…"
    if default is None:
        return "null"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return str(list(default))
    return str(default) if default != "" else '""'


def names(field: str) -> str:
    """The names in the table that a field chooses from; empty if there is no such table."""
    return ", ".join(f"`{name}`" for name in {"optimizer": OPTIMIZERS, "schedule": SCHEDULES}.get(field, ()))


def choices(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(choices(each) for each in get_args(kind))
    if get_origin(kind) is tuple:
        return "JSON list"
    if is_dataclass(kind):
        return "settings of a `bert`" if kind is BertConfig else "settings below it"
    return {int: "whole number", float: "number", bool: "`true`, `false`", str: "text", NoneType: "`null`"}[kind]


def formats_table() -> str:
    said = {"trees": "whole trees", "logs": "chat logs", "posts": "posts"}
    rows = [(f"`{name}`", each.summary, said[each.yields]) for name, each in FORMATS.items()]
    return table(("format", "what it is", "a record is"), rows).replace(":-:", "---")


def write(folder: Path = GENERATED) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    files = {f"{name}.md": settings_table(config) for name, config in SETTINGS.items()}
    files["formats.md"] = formats_table()
    for name, content in files.items():
        path = folder / name
        if not path.exists() or path.read_text("utf-8") != content:
            path.write_text(content, encoding="utf-8")
