"""Data and models that ship with Ramify."""

from pathlib import Path

FOLDER = Path(__file__).parent

DISCUSSIONS = FOLDER / "discussions.jsonl"

LINKS = FOLDER / "links"
CHECKPOINT = FOLDER / "checkpoint"

MODELS: dict[str, Path] = {"links": LINKS, "tree-mlm-small": CHECKPOINT}
"""Name -> folder. Every command and function that takes a model takes these names."""

SUMMARIES: dict[str, str] = {
    "links": "who replies to whom in a chat log",
    "tree-mlm-small": "masked words of English comments, given their ancestors",
}
"""Name -> the purpose of the model."""


def names() -> str:
    """The names of the models, for messages."""
    return " and ".join(MODELS)
