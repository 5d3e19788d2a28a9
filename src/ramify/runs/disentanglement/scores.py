"""Scores of disentanglement models, as JSON and as lines for a terminal."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from ramify.disentangle.inference.evaluation import HISTORY_TEXT, LinkEvaluation
from ramify.disentangle.inference.reply_trees import ReplyEvaluation
from ramify.errors import counted
from ramify.metrics.conversations import Match, bootstrap, score
from ramify.runs.base import Evaluation

RESAMPLES = 1000
"""Number of bootstrap resamples in an evaluation."""


@dataclass(frozen=True)
class LinkScores(Evaluation):
    """Scores of links and of the conversations they form, under one protocol."""

    match: Match
    protocol: Literal["official", "chunk50"]
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The conditions of the evaluation, for JSON."""
    unknown: tuple[str, ...] = ()
    """Scores that the data do not determine."""
    closing: str = ""
    """The same conditions as a sentence."""
    resamples: int = RESAMPLES

    @classmethod
    def of(cls, measured: LinkEvaluation, protocol: Literal["official", "chunk50"]) -> "LinkScores":
        facts = {"history": measured.history, "into_context": measured.into_context, "starts": measured.starts}
        return cls(measured.match, protocol, facts, measured.unknown, measured.describe())

    @cached_property
    def scores(self) -> dict[str, Any]:
        return score(self.match.logs, self.protocol)

    @cached_property
    def intervals(self) -> dict[str, Any]:
        if not self.resamples or len(self.match.logs) < 2:
            return {}
        intervals = bootstrap(self.match.logs, self.protocol, resamples=self.resamples)
        return _flat({name: interval for name, interval in intervals.items() if name not in self.unknown})

    @property
    def dropped(self) -> dict[str, int]:
        return {reason: count for reason, count in self.match.dropped.items() if count}

    def to_json(self) -> dict[str, Any]:
        facts = {"protocol": self.protocol, "dropped": self.dropped, "missing": self.match.missing, **self.facts}
        facts["intervals"] = {name: [interval.low, interval.high] for name, interval in self.intervals.items()}
        return self.scores | dict.fromkeys(self.unknown) | facts

    def lines(self) -> list[str]:
        logs = self.match.logs
        messages = sum(len(log.messages) for log in logs)
        lines = [f"protocol {self.protocol}, {counted(len(logs), 'log')}, {counted(messages, 'message')}"]
        low_high = {name: f"  ({interval.low:.2f} to {interval.high:.2f})" for name, interval in self.intervals.items()}
        for name, value in _flat({name: part for name, part in self.scores.items() if name not in self.unknown}).items():
            lines.append(f"{name:>18} {value:>7.2f}{low_high.get(name, '')}")
        for reason, count in self.dropped.items():
            lines.append(f"{counted(count, 'predicted link')} left out: {reason.replace('_', ' ')}")
        if self.match.missing:
            missing = counted(self.match.missing, "message")
            lines.append(f"{missing} had no predicted link and started a conversation (--missing self)")
        return [*lines, self.closing] if self.closing else lines


@dataclass(frozen=True)
class ReplyScores(Evaluation):
    """Graph and conversation accuracy on reply trees, beside rules that read no text."""

    measured: ReplyEvaluation

    def to_json(self) -> dict[str, Any]:
        replies = self.measured.model
        intervals = replies.intervals(resamples=RESAMPLES)
        return replies.scores() | {
            "history": self.measured.history,
            "conversations": len(replies.comments),
            "comments": int(replies.comments.sum()),
            "beyond_window": self.measured.beyond_window,
            "intervals": {name: [interval.low, interval.high] for name, interval in intervals.items()},
            "baselines": {name: baseline.scores() for name, baseline in self.measured.baselines.items()},
        }

    def lines(self) -> list[str]:
        model = self.measured.model
        sizes = f"{counted(len(model.comments), 'conversation')}, {counted(int(model.comments.sum()), 'comment')}"
        lines = [f"{sizes}; 95 % intervals over conversations"]
        for system, replies in ({"model": model} | self.measured.baselines).items():
            for name, interval in replies.intervals(resamples=RESAMPLES).items():
                title = name.replace("_", " ")
                lines.append(f"{system:>9} {title:<29} {interval.value:>6.2f}  ({interval.low:.2f} to {interval.high:.2f})")
        if beyond := self.measured.beyond_window:
            lines.append(f"{counted(beyond, 'comment')} with a parent further back than the model looks, counted as wrong")
        return [*lines, HISTORY_TEXT[self.measured.history]]


def _flat(scores: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{name} {part}".strip(): value
        for name, inner in scores.items()
        for part, value in (inner if isinstance(inner, dict) else {"": inner}).items()
    }
