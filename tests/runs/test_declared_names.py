"""Kinds of run, the hub and commands know no loss and no tensor by its name, and assert no type: tasks declare their names."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import ramify
from fixtures import tree_task
from fixtures.nested import task as nested_task
from fixtures.running import INPUT, streams
from fixtures.running import task as permutation_task
from ramify.batching.stream_batch import collate_streams
from ramify.recipes import FITS, RECIPES
from ramify.registry import TASKS
from ramify.tasks.base import MAIN, belongs
from ramify.tasks.permutation_lm import PermutationLM, PermutationLMConfig

ROOT = Path(ramify.__file__).parent
FILES = [ROOT / "hub.py", *sorted((ROOT / "runs").glob("*.py")), *sorted((ROOT / "cli").glob("*.py"))]


@cache
def losses() -> set[str]:
    """The names of the losses of tasks."""
    plain = permutation_task()
    own = PermutationLM(plain.backbone, plain.tokenizer, plain.input, PermutationLMConfig(next_segment=1.0))
    view = streams()
    batch = own.draw(collate_streams([view.example(0)], INPUT), np.zeros(1, dtype=np.int64))
    found = {*tree_task().divided_by, *nested_task().loss_names, *own.counts(batch, MAIN)}
    assert len(found) > 10
    return found


@cache
def tensors() -> set[str]:
    """The modules and tensors that tasks let begin anew. Recipes fit some of them, and have the same names."""
    return {name for kind in TASKS.values() for name in (*kind.task.optional, *kind.task.fresh)} - FITS.keys() - RECIPES.keys()


@cache
def modules() -> set[str]:
    """The modules of tasks."""
    tasks = (tree_task(), nested_task(), permutation_task())
    return {"backbone", *tensors(), *(name.partition(".")[0] for task in tasks for name in task.state_dict())}


@cache
def shared_settings() -> set[str]:
    """The settings in which a task equals a saved one that it starts from."""
    found = {name for kind in TASKS.values() for name in kind.task.matching}
    assert found >= {"head", "tie_weights"}
    return found


def literals(file: Path) -> Iterator[str]:
    """The strings of a file that are no documentation."""
    tree = ast.parse(file.read_text("utf-8"))
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            yield node.value


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_loss_or_tensor_is_named(file):
    named = {text.removeprefix("dev_") for text in literals(file)}
    assert not named & (losses() | tensors() | shared_settings())
    parts = modules()
    assert not [text for text in named if "." in text and belongs(text, parts)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_type_is_asserted(file):
    asserted = [node.test for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Assert)]
    assert not [ast.unparse(test) for test in asserted if "isinstance" in ast.unparse(test)]
