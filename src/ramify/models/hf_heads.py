"""Heads of tasks on labelled texts in Hugging Face's form: their kinds, the names of their tensors, and their labels."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor

from ramify.errors import RamifyError, counted
from ramify.models.base import RowHead

HeadKind = Literal["rows", "tokens", "answers", "choices"]
"""A head predicts labels of rows, labels of tokens, the start and the end of an answer, or a score of each choice."""

Problem = Literal["single_label_classification", "multi_label_classification", "regression"]
"""The objective of a head on rows, as config.json names it."""

KINDS: dict[str, HeadKind] = {
    "ForSequenceClassification": "rows",
    "ForTokenClassification": "tokens",
    "ForQuestionAnswering": "answers",
    "ForQuestionAnsweringSimple": "answers",
    "ForMultipleChoice": "choices",
}
"""The kinds of heads, by the end of the names of their classes."""

HIDDEN, OUTPUT = "hidden", "output"
"""The two maps of a head: the one that makes a row's vector, which not every head has, and the one that makes scores."""


@dataclass(frozen=True)
class LabelHead:
    """A head between its two forms."""

    kind: HeadKind
    weight: Float[Tensor, "output dim"]
    bias: Float[Tensor, " output"] | None
    """None: zeros."""
    read: RowHead | None = None
    """The vector of a row; None: the head reads the states of tokens."""
    hidden_weight: Float[Tensor, "dim dim"] | None = None
    """The map that makes the vector; None: the backbone has it, or there is none."""
    hidden_bias: Float[Tensor, " dim"] | None = None
    labels: tuple[str, ...] = ()
    """The names of the outputs, of heads on rows and tokens."""
    problem: Problem | None = None
    """The kind of labels, for heads on rows."""


@dataclass(frozen=True)
class HeadForm:
    """The names of a head's maps in an architecture."""

    ending: str
    """The end of the name of its class."""
    output: str
    reads: tuple[RowHead, ...] = ()
    """The vectors of rows that it may read; none: it reads the states of tokens."""
    hidden: str = ""
    """Empty: it has none."""
    bias: bool = True
    """Whether the output has a bias."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its tensors."""
        maps = [f"{self.hidden}.weight", f"{self.hidden}.bias"] if self.hidden else []
        return (*maps, f"{self.output}.weight", *([f"{self.output}.bias"] if self.bias else []))


Forms = Mapping[HeadKind, HeadForm]


def head_kind(config: Mapping[str, Any]) -> HeadKind | None:
    """The kind of head that a config.json names; None: a head of another kind, or none."""
    names = config.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        return None
    return next((kind for ending, kind in KINDS.items() if names[0].endswith(ending)), None)


def read_head(config: Mapping[str, Any], path: Path, forms: Forms, tensor: Callable[[str], Tensor]) -> LabelHead | None:
    """The head that a config.json names, whose tensors have the names of its form; None if it names none.

    Raises `RamifyError` for a kind of head without a form, and for labels that do not fit the outputs.
    """
    kind = head_kind(config)
    if kind is None:
        return None
    form = form_of(forms, kind, f"{path}: architectures={config['architectures']}")
    if not config["architectures"][0].endswith(form.ending):
        raise RamifyError(
            f"{path}: architectures={config['architectures']} is not supported; of its heads on {kind}, only …{form.ending} "
            "is. Choose another checkpoint."
        )
    weight = tensor(f"{form.output}.weight")
    hidden = [tensor(f"{form.hidden}.{part}") for part in ("weight", "bias")] if form.hidden else [None, None]
    named = kind in ("rows", "tokens")
    return LabelHead(
        kind,
        weight,
        tensor(f"{form.output}.bias") if form.bias else None,
        form.reads[0] if form.reads else None,
        *hidden,
        labels=_labels(config, len(weight), path) if named else (),
        problem=_problem(config, len(weight), path) if kind == "rows" else None,
    )


def form_of(forms: Forms, kind: HeadKind, where: str) -> HeadForm:
    """The form of a kind of head. Raises `RamifyError` if the architecture has none."""
    if not forms:
        raise RamifyError(
            f"{where} has no form for a head on labelled texts. Choose another model, or save it in Ramify's form."
        )
    if kind not in forms:
        known = ", ".join(form.ending for form in forms.values())
        raise RamifyError(f"{where} has no form for a head on {kind}. The architecture has {known}. Choose one of these.")
    return forms[kind]


def head_tensors(form: HeadForm, head: LabelHead, vector: tuple[Tensor, Tensor] | None = None) -> dict[str, Tensor]:
    """The tensors of a head under the names of its form. `vector` is the map that the backbone's own vector is made with.

    Raises `RamifyError` if the head reads another vector than the form, or has a bias that the form lacks.
    """
    tensors = {f"{form.output}.weight": head.weight}
    hidden = vector if head.read == "vector" else None
    if head.hidden_weight is not None and head.hidden_bias is not None:
        hidden = head.hidden_weight, head.hidden_bias
    if head.read is not None and (head.read not in form.reads or (hidden is None) == bool(form.hidden)):
        raise RamifyError(
            f"task.head={head.read} has no Hugging Face form in this model, whose {form.ending} reads another vector of a row. "
            f"Train a model with --set task.head={form.reads[0]}, which has one."
        )
    if hidden is not None:
        tensors |= {f"{form.hidden}.weight": hidden[0], f"{form.hidden}.bias": hidden[1]}
    bias = head.weight.new_zeros(len(head.weight)) if head.bias is None else head.bias
    if form.bias:
        tensors[f"{form.output}.bias"] = bias
    elif bias.any():
        raise RamifyError(
            f"the output of the task has a bias, but that of {form.ending} has none. Train a model with task.output_bias=false."
        )
    return tensors


def head_settings(head: LabelHead) -> dict[str, Any]:
    """The settings of a head in config.json."""
    if not head.labels:
        return {}
    settings: dict[str, Any] = {
        "id2label": {str(number): label for number, label in enumerate(head.labels)},
        "label2id": {label: number for number, label in enumerate(head.labels)},
    }
    return settings if head.problem is None else settings | {"problem_type": head.problem}


def _labels(config: Mapping[str, Any], count: int, path: Path) -> tuple[str, ...]:
    """The names of the outputs, in their order. Checkpoints without names have LABEL_0, LABEL_1 …, as in transformers."""
    names = config.get("id2label") or {str(number): f"LABEL_{number}" for number in range(count)}
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise RamifyError(f"{path}: id2label must name a label for each number, but is {names!r:.80}. Correct it.")
    found = tuple(names.get(str(number)) for number in range(count))
    if None in found or len(names) != count or len(set(found)) != count:
        raise RamifyError(
            f"{path}: id2label has {counted(len(set(names.values())), 'label')}, but the head has {counted(count, 'output')}. "
            "Name every output once."
        )
    return tuple(name for name in found if name is not None)


def _problem(config: Mapping[str, Any], count: int, path: Path) -> Problem:
    """The objective, which transformers derives from the number of outputs if config.json states none."""
    given = config.get("problem_type")
    if given is None:
        return "regression" if count == 1 else "single_label_classification"
    known: dict[str, Problem] = {
        "single_label_classification": "single_label_classification",
        "multi_label_classification": "multi_label_classification",
        "regression": "regression",
    }
    counts = {"single_label_classification": count > 1, "regression": count == 1}
    if given not in [*known] or not counts.get(given, True):
        raise RamifyError(
            f"{path}: problem_type={given!r} with {counted(count, 'output')} is not supported; only {', '.join(known)} are, "
            "the first with two or more and the last with one. Choose another checkpoint."
        )
    return known[given]
