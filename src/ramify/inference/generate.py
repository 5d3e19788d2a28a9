"""Generation: the verb of every pipeline whose task scores the next token."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from ramify.batching.characters import Lexicon
from ramify.batching.encoder_input import EncoderInput
from ramify.errors import RamifyError, counted
from ramify.inference.answers import Generated, GeneratedHypothesis, nothing_written
from ramify.inference.base import TOKENS, Pipeline, verb
from ramify.inference.search import Beam, Hypothesis, Limits, Sampling, Step, beam_search, collect, sample
from ramify.inference.texts import read_texts
from ramify.inference.verbs import CONTINUES
from ramify.models.base import reads_characters
from ramify.nn.modes import evaluating
from ramify.nn.ragged import runs
from ramify.tokenizer import IncrementalDecoder


class GeneratingPipeline(Pipeline, ABC):
    """A pipeline of a model that generates text."""

    abilities: ClassVar[tuple[str, ...]] = (CONTINUES,)
    task: Any
    """A task that `Decodes`; each pipeline narrows the type."""
    ends: tuple[int, ...] = ()
    """Tokens that end every text, because the model has learned where texts end."""
    longest: int | None = None
    """The greatest number of tokens that the model reads, with the one before the text; None: any number."""
    begin_id: int | None = None
    """The token before each text of training; None: the model has none."""
    begins: bool = False
    """Whether this token is also put before prompts, unless users decide."""

    @abstractmethod
    def _notes(self, tokens: int) -> tuple[str, ...]:
        """Reservations about a text of so many tokens, the prompt included, that the model generates."""

    @verb
    def generate(
        self,
        prompt: str | Sequence[str] = "",
        *,
        tokens: int = 50,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | Sequence[int] = 0,
        stop: str | Sequence[str] | None = None,
        begin: bool | None = None,
        beam: int | None = None,
        n_best: int = 1,
        length_penalty: float = Beam.length_penalty,
        level: str | None = None,
        count: int = 1,
        copyedit: int = 1,
        epsilon: float = 0.1,
        passing: Literal["raw", "rescaled", "bank_mean", "snap"] = "raw",
        show: Callable[[str], None] | None = None,
    ) -> Generated | list[Generated]:
        """Continue a prompt from left to right by at most `tokens` tokens. A list of prompts gives a list of answers.

        By default, tokens are sampled. `temperature` 0 takes the likeliest token. `top_k` and `top_p` keep the likeliest
        tokens, so many or of so much probability together. A prompt in a list is continued as if it were alone: equal seeds
        give equal texts, and a list of seeds has one for each prompt.

        `beam` is the width of a beam search, which finds likely continuations instead. The answer then also holds the `n_best`
        of them as `hypotheses`, ordered by log p / ((5 + length) / 6)^`length_penalty`.

        Special tokens are never chosen, but for the end that some models predict. A token of `stop`, in the vocabulary's
        spelling, ends a text and is no part of it.

        `begin` puts the token before each text of training before the prompt, too, or does not. None: as saved with the model.
        Models that Ramify has trained begin with it. A GPT-2 checkpoint continues the prompt alone, as in transformers. An
        empty prompt always begins with it.

        `level`, `count`, `copyedit`, `epsilon` and `passing` are for models with generators of documents.

        `show` is called with each part of the sampled text as soon as it is known. Together, the parts are the text. A beam
        search knows no part before its end, and does not call it.
        """
        prompts = _strings(prompt)
        seeds = [*seed] if isinstance(seed, Iterable) else [seed] * len(prompts)
        if len(seeds) != len(prompts):
            raise RamifyError(f"seed={seeds} must hold one seed for each of {counted(len(prompts), 'prompt')}. Check the list.")
        sampling, limits = Sampling(temperature, top_k, top_p), self._limits(stop)
        if beam is None and n_best != 1:
            raise RamifyError(f"n_best={n_best} needs a beam search. Set beam to at least {n_best}.")
        if beam is not None and sampling != Sampling():
            raise RamifyError(f"beam={beam} draws no tokens. Leave out temperature, top_k and top_p.")
        if show is not None and not isinstance(prompt, str):
            raise RamifyError(f"show={show!r} shows one text, but a list of prompts is given. Pass a string, or no show.")
        given = [self.tokenizer.encode(text) for text in prompts]
        begin = self.begins if begin is None else begin
        most = max(map(len, given), default=0)
        # The last token is not read.
        if self.longest is not None and max(most + begin, 1) + tokens - 1 > self.longest:
            raise RamifyError(
                f"tokens={tokens} behind a prompt of {counted(most, 'token')} is more than the {self.longest} tokens that this "
                "model reads. Lower tokens, or shorten the prompt."
            )
        answers: list[Generated] = []
        search = None if beam is None else Beam(beam, n_best, length_penalty)
        if search is not None:
            search.check(self.backbone.config.vocab_size)
        costs = np.array([(len(ids) + tokens) * (beam or 1) for ids in given], dtype=np.int64)
        for start, end in runs(costs, TOKENS):
            rows = self._rows(prompts[start:end], begin).to(self.device)
            maximums = [tokens] * (end - start)
            with evaluating(self.module):
                if search is None:
                    steps = sample(self.task, rows, sampling, limits, maximums=maximums, seeds=seeds[start:end])
                    if show is not None:
                        steps = self._showing(show, given[start], steps)
                    answers += map(self._answer, prompts[start:end], given[start:end], collect(steps, len(maximums)))
                else:
                    best = beam_search(self.task, rows, search, limits, maximums=maximums)
                    answers += map(self._ranking, prompts[start:end], given[start:end], best)
        answers = [replace(answer, notes=answer.notes + nothing_written(_written(answer))) for answer in answers]
        return answers[0] if isinstance(prompt, str) else answers

    def _rows(self, prompts: Sequence[str], begin: bool) -> EncoderInput:
        layout = self.tokenizer.layout("plain")
        if begin and self.begin_id is not None:
            layout = replace(layout, before=(self.begin_id,))
        if not reads_characters(self.backbone):
            return EncoderInput.of_texts(self.tokenizer.encode_batch(prompts), layout, None)
        words: dict[str, int] = {}
        rows = EncoderInput.of_texts(self.tokenizer.encode_open(prompts, words), layout, None)
        return rows.spelled(Lexicon.of(self.tokenizer, [*words]))

    def _limits(self, stop: str | Sequence[str] | None) -> Limits:
        stops = [stop] if isinstance(stop, str) else [*(stop or ())]
        for piece in stops:
            if piece not in self.tokenizer.ids:
                raise RamifyError(
                    f"stop={piece!r} is not in this model's vocabulary. Choose one of its pieces, spelled with the mark of its "
                    "word's start, if any."
                )
        ids = [*self.ends, *(self.tokenizer.ids[piece] for piece in stops)]
        return Limits(tuple(ids), tuple(token for token in self.tokenizer.special_ids if token not in ids))

    def _showing(self, show: Callable[[str], None], given: Sequence[int], steps: Iterable[Step]) -> Iterator[Step]:
        """The steps of one sequence, whose text is shown meanwhile."""
        decoder = IncrementalDecoder(self.tokenizer, given)
        for step in steps:
            if not step.stopped[0] and (part := decoder.add(int(step.ids[0]))):
                show(part)
            yield step
        if rest := decoder.rest():
            show(rest)

    def _answer(self, prompt: str, given: Sequence[int], ids: Sequence[int]) -> Generated:
        # Decoded behind the prompt, a first word keeps the space before it.
        text = self.tokenizer.decode([*given, *ids]).removeprefix(self.tokenizer.decode(given))
        unknown = self.tokenizer.unknown(given)
        notes = self._notes(len(given) + len(ids))
        if not reads_characters(self.backbone):
            notes += unknown.notes("the prompt")
        return Generated(prompt, text, len(ids), unknown.count, notes=notes)

    def _ranking(self, prompt: str, given: Sequence[int], best: Sequence[Hypothesis]) -> Generated:
        answers = [self._answer(prompt, given, hypothesis.ids) for hypothesis in best]
        hypotheses = tuple(
            GeneratedHypothesis(answer.text, answer.tokens, hypothesis.log_probability, hypothesis.score)
            for answer, hypothesis in zip(answers, best, strict=True)
        )
        return replace(answers[0], hypotheses=hypotheses)


def _written(answer: Generated) -> list[str]:
    return [hypothesis.text for hypothesis in answer.hypotheses] or [answer.text]


def _strings(prompt: Any) -> list[str]:
    """The prompts in a string, a list or a column of a data frame. A data frame itself would yield the names of its columns."""
    prompts: list[str] = []
    for text in read_texts(prompt, "generate").items:
        if not isinstance(text, str):
            raise RamifyError("generate continues strings, not a Tree. Pass the beginning of a text.")
        prompts.append(text)
    return prompts
