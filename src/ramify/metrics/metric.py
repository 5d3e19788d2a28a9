"""A measure by which trained weights are chosen."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A number measured on held-out data, and the direction in which it improves."""

    name: str
    """Its key in metrics.jsonl."""
    greater_is_better: bool

    def improves(self, value: float, best: float | None) -> bool:
        """Whether a value is better than the best before it; the first one always is."""
        if best is None:
            return True
        return value > best if self.greater_is_better else value < best

    @property
    def label(self) -> str:
        """Its name for messages."""
        return self.name.replace("_", " ")


DEV_LOSS = Metric("dev_loss", greater_is_better=False)
"""The mean loss on the dev split."""
