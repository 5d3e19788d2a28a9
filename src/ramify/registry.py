"""The names of models and tasks in run.json and config.json."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from ramify.batching.text_input import TextInput
from ramify.batching.views.choices import ChoiceInput
from ramify.batching.views.documents import LevelInput
from ramify.batching.views.labelled import LabelInput
from ramify.batching.views.pairs import PairInput
from ramify.batching.views.questions import QuestionInput
from ramify.batching.views.streams import StreamInput
from ramify.config import from_record
from ramify.disentangle.config import ChatInput, DecodingConfig, LinkConfig
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.models.bert_pair import BertPairConfig
from ramify.disentangle.models.decomposable_attention import DecomposableAttentionConfig
from ramify.disentangle.models.esim import ESIMConfig
from ramify.disentangle.models.feature_model import FeatureModelConfig
from ramify.disentangle.models.mht import MHTConfig
from ramify.disentangle.task import ReplyLinking
from ramify.inference.answer import Answerer
from ramify.inference.base import Pipeline
from ramify.inference.bidirectional import BidirectionalPipeline
from ramify.inference.choose import Chooser
from ramify.inference.classify import Classifier
from ramify.inference.documents.generate import DocumentGenerator
from ramify.inference.documents.pipeline import document_pipeline
from ramify.inference.embed import Embedder
from ramify.inference.fill_mask import MaskFiller
from ramify.inference.permutation import DenoisingPipeline, PermutationPipeline
from ramify.inference.tag import Tagger
from ramify.inference.translate import next_token_pipeline
from ramify.models import bert, transformer, xlnet
from ramify.models.agent import AgentConfig
from ramify.models.bag import BagConfig
from ramify.models.base import AnyBackbone, ModelConfig
from ramify.models.bert import BertConfig
from ramify.models.cnn import CnnConfig
from ramify.models.elmo import ElmoConfig
from ramify.models.features import ConcatConfig
from ramify.models.hf_adapter import HFAdapter
from ramify.models.hf_heads import HeadKind
from ramify.models.recurrent import RecurrentConfig, Seq2SeqConfig
from ramify.models.tfidf import TfidfConfig
from ramify.models.transformer import TransformerConfig
from ramify.models.tree_mlm import TreeMLMConfig
from ramify.models.word_windows import WordWindowConfig
from ramify.models.xlnet import XLNetConfig
from ramify.tasks.base import Task
from ramify.tasks.bidirectional_lm import BidirectionalLM, BidirectionalLMConfig
from ramify.tasks.classification import Classification, ClassificationConfig
from ramify.tasks.denoising_lm import DenoisingLM, DenoisingLMConfig
from ramify.tasks.label_heads import AnswersHead, ChoicesHead, HeadOfTask, RowsHead, TokensHead
from ramify.tasks.masked_lm import MaskedLM, MaskedLMConfig
from ramify.tasks.multiple_choice import MultipleChoice, MultipleChoiceConfig
from ramify.tasks.nested.config import NestedAutoencoderConfig
from ramify.tasks.nested.task import NestedAutoencoder
from ramify.tasks.nested_adversary import NestedAdversary, NestedAdversaryConfig
from ramify.tasks.next_token import NextTokenConfig, NextTokenLM
from ramify.tasks.permutation_lm import PermutationLM, PermutationLMConfig
from ramify.tasks.span_qa import SpanQA, SpanQAConfig
from ramify.tasks.tagging import Tagging, TaggingConfig
from ramify.tokenizer import Tokenizer

MODELS: dict[str, type[ModelConfig]] = {
    "agent": AgentConfig,
    "bag": BagConfig,
    "bert": BertConfig,
    "bert-pair": BertPairConfig,
    "cnn": CnnConfig,
    "concat": ConcatConfig,
    "decatt": DecomposableAttentionConfig,
    "elmo": ElmoConfig,
    "esim": ESIMConfig,
    "feature-model": FeatureModelConfig,
    "mht": MHTConfig,
    "recurrent": RecurrentConfig,
    "seq2seq": Seq2SeqConfig,
    "tfidf": TfidfConfig,
    "transformer": TransformerConfig,
    "tree-mlm": TreeMLMConfig,
    "word-window": WordWindowConfig,
    "xlnet": XLNetConfig,
}
"""The config class of each model, by name. A config builds its model."""


@dataclass(frozen=True)
class TaskKind:
    """A task, the classes of the settings that are saved with its models, and its pipeline."""

    config: type
    task: type[Task[Any]]
    input: type
    pipeline: Callable[..., Pipeline]
    further: Mapping[str, type] = field(default_factory=dict)
    """The classes of settings that only the pipeline has, by name."""

    @property
    def parts(self) -> dict[str, type]:
        """The class of each value in `Pipeline.parts`, by name."""
        return {"task": self.config, "input": self.input, **self.further}

    def build(self, backbone: AnyBackbone, tokenizer: Tokenizer, parts: Mapping[str, Any]) -> Pipeline:
        """Build the pipeline of a new task from the value of each part."""
        return self.wrap(self.task(backbone, tokenizer, parts["input"], parts["task"]), parts)

    def wrap(self, task: Task[Any], parts: Mapping[str, Any]) -> Pipeline:
        """The pipeline of a task."""
        return self.pipeline(task, **{name: parts[name] for name in self.further})


TASKS = {
    "bidirectional-lm": TaskKind(BidirectionalLMConfig, BidirectionalLM, StreamInput, BidirectionalPipeline),
    "classification": TaskKind(ClassificationConfig, Classification, LabelInput, Classifier),
    "denoising-lm": TaskKind(DenoisingLMConfig, DenoisingLM, StreamInput, DenoisingPipeline),
    "masked-lm": TaskKind(MaskedLMConfig, MaskedLM, TextInput, MaskFiller),
    "multiple-choice": TaskKind(MultipleChoiceConfig, MultipleChoice, ChoiceInput, Chooser),
    "nested-adversary": TaskKind(NestedAdversaryConfig, NestedAdversary, LevelInput, DocumentGenerator),
    "nested-autoencoder": TaskKind(NestedAutoencoderConfig, NestedAutoencoder, LevelInput, document_pipeline),
    "next-token": TaskKind(NextTokenConfig, NextTokenLM, PairInput, next_token_pipeline),
    "permutation-lm": TaskKind(PermutationLMConfig, PermutationLM, StreamInput, PermutationPipeline),
    "reply-to": TaskKind(LinkConfig, ReplyLinking, ChatInput, Disentangler, {"decoding": DecodingConfig}),
    "span-qa": TaskKind(SpanQAConfig, SpanQA, QuestionInput, Answerer),
    "tagging": TaskKind(TaggingConfig, Tagging, LabelInput, Tagger),
}


@dataclass(frozen=True)
class HFForm:
    """An architecture of Hugging Face: what reads it, and what its checkpoints become."""

    adapter: HFAdapter[Any]
    task: str
    """The name in `TASKS` of the task that a checkpoint's heads make."""
    kind: str
    """The name of the kind of run that evaluates the model."""
    input: Any
    """The input settings of a checkpoint that states none."""
    headless: Callable[..., Pipeline] | None = None
    """The pipeline of a checkpoint without a head; None: it is refused."""


@dataclass(frozen=True)
class LabelForm:
    """The task that a kind of head on labelled texts makes, whatever the architecture of the checkpoint of Hugging Face."""

    task: str
    """The name in `TASKS` of the task."""
    kind: str
    """The name of the kind of run that evaluates the model."""
    head: HeadOfTask


LABEL_FORMS: dict[HeadKind, LabelForm] = {
    "answers": LabelForm("span-qa", "answers", AnswersHead()),
    "choices": LabelForm("multiple-choice", "multiple-choice", ChoicesHead()),
    "rows": LabelForm("classification", "classification", RowsHead()),
    "tokens": LabelForm("tagging", "tagging", TokensHead()),
}


_BERT_FAMILY = HFForm(bert.ADAPTER, "masked-lm", "packed-text", TextInput(context="none"), Embedder)

_TRANSFORMER = HFForm(transformer.ADAPTER, "next-token", "generative", PairInput())

HF_FORMS: dict[str, HFForm] = {
    "albert": _BERT_FAMILY,
    "bert": _BERT_FAMILY,
    "distilbert": _BERT_FAMILY,
    "gpt2": _TRANSFORMER,
    "roberta": _BERT_FAMILY,
    "t5": _TRANSFORMER,
    "xlnet": HFForm(xlnet.ADAPTER, "permutation-lm", "streams", StreamInput(row_tokens=512, reused_tokens=256)),
}
"""The checkpoints of other libraries that can be loaded, by their `model_type`."""


def model_name(config: Any) -> str:
    """The registered name of the model with this config."""
    return next(name for name, kind in MODELS.items() if kind is type(config))


def model_record(config: ModelConfig) -> dict[str, Any]:
    """The settings of a model in JSON, with its name, and so those of the models inside it."""
    record = {"name": model_name(config), **asdict(cast(Any, config))}
    return record | {name: model_record(getattr(config, name)) for name in config.inner}


def model_of(record: Mapping[str, Any]) -> ModelConfig:
    """The settings from the output of `model_record`. Raises `KeyError` for an unknown name."""
    kind = MODELS[record["name"]]
    settings = {name: model_of(value) if name in kind.inner else value for name, value in record.items() if name != "name"}
    return from_record(kind, settings)


def task_name(config: Any) -> str:
    """The registered name of the task with this config."""
    return next(name for name, kind in TASKS.items() if kind.config is type(config))
