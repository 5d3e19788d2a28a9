"""Models that predict labels of texts: any backbone from scratch or from a checkpoint, fine-tuned or as features."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from ramify.recipes.options import Data, Seed

if TYPE_CHECKING:
    from ramify.runs import Run

Model = Annotated[
    str,
    "A model to train from scratch: bag, bert, bilstm, cnn, elmo, gpt, transformer, tree-mlm or xlnet; or a floor: majority or "
    "tfidf. Give this or --init; with --mode concat, --init and perhaps this: bilstm (the default) or cnn.",
]
LabelInit = Annotated[
    str,
    "A checkpoint to start from, as a directory or hub id: a run or saved model of Ramify, or a Hugging Face directory of the "
    "BERT family, XLNet or GPT-2.",
]
TaskMode = Annotated[
    Literal["finetune", "features", "concat"],
    "finetune: all weights learn. features: the model stays as it is, and a mix of its layers is read. concat: --init stays as "
    "it is, and --model reads the mix of its layers beside its own token vectors, as with ELMo.",
]
ChoiceMode = Annotated[
    Literal["finetune", "features"],
    "finetune: all weights learn. features: the model stays as it is, and a mix of its layers is read.",
]
Field = Annotated[str, "The field of the labels, such as ad_hominem or 0.type. Default: the label itself."]
TextOf = Annotated[
    Literal["own", "parent"], "The text that is classified: that of the labelled node, or that of its parent alone."
]
Above = Annotated[
    Literal["none", "parent", "tree", "mismatched"],
    "The texts above that are read, too: none, the nearest, all, or those of another tree.",
]
AboveAs = Annotated[Literal["text", "vectors"], "How they are read: written before the text, or as a vector each."]

Epochs = Annotated[
    float | None, "Passes over the labelled texts. Default: 3; from scratch or with --mode features or concat, up to 10."
]
Rate = Annotated[
    float | None,
    "Learning rate. Default: 3e-4 for small checkpoints to 3e-5 for large ones; 1e-3 from scratch; 1e-2 for features.",
]
Patience = Annotated[
    int | None,
    "Stop after so many epochs without a better dev score (0: never). Default: 0; from scratch or with --mode features or "
    "concat, 3.",
]

CRF_RATE = 50.0
"""The learning rate of a CRF, as a multiple of that of fine-tuning."""

TagField = Annotated[
    str,
    "The field of the tags. Tables of tokens: another list than tags. Annotated spans: claim.type or type, in place of their "
    "kinds.",
]
Decoder = Annotated[
    Literal["linear", "crf"],
    "linear: each word is tagged alone. crf: the words of a text are tagged together, and spans are well formed.",
]


def classify(
    data: Data,
    *,
    model: Model = "",
    init: LabelInit = "",
    mode: TaskMode = "finetune",
    label: Field = "",
    text: TextOf = "own",
    context: Above = "none",
    context_as: AboveAs = "text",
    epochs: Epochs = None,
    lr: Rate = None,
    patience: Patience = None,
    label_kind: Annotated[
        Literal["auto", "classes", "several", "numbers"],
        "The kind of the labels. auto: lists are several classes; numbers are classes if they are whole and few.",
    ] = "auto",
    class_weights: Annotated[
        Literal["none", "balanced"], "balanced: all classes have the same weight in the loss, however frequent they are."
    ] = "none",
    seed: Seed = 0,
) -> "Run":
    """Predict labels of texts: one class, several classes or a number per text, or per pair of texts.

    The labels of the training split say which of these they are, unless `--label-kind` does.

    Example: ramify train classify --data data/reviews --model bert --out runs/reviews

    Example: ramify train classify --data data/reviews --init runs/elmo --mode concat --out runs/elmo-reviews

    Example: ramify train classify --data data/reviews --model tfidf --out runs/floor
    """
    from ramify.recipes.backbones import FLOORS, stages_of, start_of, task_mode
    from ramify.runs.labelled.classification import ClassificationRun
    from ramify.runs.labelled.floors import FloorRun
    from ramify.tasks.classification import ClassificationConfig

    start = start_of(model, init, FLOORS, mode=mode)
    kind: Any = ClassificationRun if start.fitted is None else FloorRun
    return kind(
        recipe="classify",
        data=data,
        model=start.model,
        task=ClassificationConfig(mode=task_mode(mode), class_weights=class_weights, **start.task, **(start.fitted or {})),
        input=start.input(label=label, text=text, context=context, context_as=context_as),
        tokenizer=start.tokenizer,
        stages=stages_of(start, model, mode, linear=True, epochs=epochs, lr=lr, patience=patience),
        init=init,
        label_kind=label_kind,
        seed=seed,
    )


def choose(
    data: Data,
    *,
    model: Model = "",
    init: LabelInit = "",
    mode: ChoiceMode = "finetune",
    question: Annotated[
        Literal["connective", "text"],
        "The words that ask for a cause or an effect (COPA): because or so before the choice, or a question.",
    ] = "connective",
    epochs: Epochs = None,
    lr: Rate = None,
    patience: Patience = None,
    seed: Seed = 0,
) -> "Run":
    """Find the right one of several choices, such as those of COPA, SWAG and RACE.

    Example: ramify train choose --data data/copa --init sentence-transformers/all-MiniLM-L6-v2 --out runs/copa

    Example: ramify train choose --data data/copa --model tfidf --out runs/copa-floor
    """
    from ramify.batching.views.choices import ChoiceInput
    from ramify.recipes.backbones import CHOICE_FLOORS, stages_of, start_of
    from ramify.runs.labelled.choices import ChoiceRun
    from ramify.tasks.multiple_choice import MultipleChoiceConfig

    start = start_of(model, init, CHOICE_FLOORS)
    return ChoiceRun(
        recipe="choose",
        data=data,
        model=start.model,
        task=MultipleChoiceConfig(mode=mode, **start.task, **(start.fitted or {})),
        input=ChoiceInput(start.max_tokens, start.layout, question),
        tokenizer=start.tokenizer,
        stages=stages_of(start, model, mode, linear=True, epochs=epochs, lr=lr, patience=patience),
        init=init,
        seed=seed,
    )


def answer(
    data: Data,
    *,
    model: Model = "",
    init: LabelInit = "",
    mode: TaskMode = "finetune",
    max_tokens: Annotated[int, "Longest row: a question with a part of its passage. Models that read less read less."] = 384,
    stride: Annotated[
        int | None,
        "Tokens between the beginnings of two parts of a long passage. Default: 128, or half of --max-tokens if that is less.",
    ] = None,
    end: Annotated[
        Literal["independent", "conditional"] | None,
        "The end of an answer is scored alone, or given its start. Default: conditional for xlnet, independent for others.",
    ] = None,
    epochs: Epochs = None,
    lr: Rate = None,
    patience: Patience = None,
    seed: Seed = 0,
) -> "Run":
    """Answer questions by spans of a passage, as in SQuAD 1.1 and 2.0.

    If some training questions have no answer, the model learns to say so, and the dev split chooses the threshold.

    Example: ramify train answer --data data/squad --init google-bert/bert-base-uncased --out runs/squad

    Example: ramify train answer --data data/squad --model tfidf --out runs/squad-floor
    """
    from ramify.batching.views.questions import QuestionInput
    from ramify.recipes.backbones import ANSWER_FLOORS, stages_of, start_of, task_mode
    from ramify.runs.labelled.answers import AnswerRun
    from ramify.tasks.span_qa import SpanQAConfig

    start = start_of(model, init, ANSWER_FLOORS, max_tokens, mode=mode)
    published = start.model.published
    task: dict[str, Any] = {"end": end or published.answer_end, "candidates": published.answer_candidates}
    # Half of a short row is left to the passage.
    half = start.max_tokens // 2
    read = QuestionInput(
        max_tokens=start.max_tokens,
        stride=min(128, half) if stride is None else stride,
        question_tokens=min(64, half),
        # A mark must stand for rows without the answer, and separates the question.
        layout="t5" if start.layout in ("plain", "begin") else start.layout,
        order=published.order,
    )
    return AnswerRun(
        recipe="answer",
        data=data,
        model=start.model,
        task=SpanQAConfig(mode=task_mode(mode), **task | dict(start.fitted or {})),
        input=read,
        tokenizer=start.tokenizer,
        stages=stages_of(start, model, mode, refused={"end": end}, epochs=epochs, lr=lr, patience=patience),
        init=init,
        seed=seed,
    )


def tag(
    data: Data,
    *,
    model: Model = "",
    init: LabelInit = "",
    mode: TaskMode = "finetune",
    label: TagField = "",
    decoder: Decoder = "linear",
    epochs: Epochs = None,
    lr: Rate = None,
    patience: Patience = None,
    seed: Seed = 0,
) -> "Run":
    """Predict the tags of words: spans, such as names or claims, or tags that stand alone, such as parts of speech.

    The data are tables of tokens (ramify data build --format conll), or texts whose labels are spans by characters. With --mode
    features, a bidirectional LSTM reads the states of the model. With --mode concat, it reads them beside its own vectors of
    tokens, as Peters et al. (2018) tag names.

    Example: ramify train tag --data data/conll --model bilstm --decoder crf --out runs/names

    Example: ramify train tag --data data/cmv-modes --init sentence-transformers/all-MiniLM-L6-v2 --decoder crf --out runs/cmv

    Example: ramify train tag --data data/conll --init runs/elmo --mode concat --decoder crf --out runs/elmo-names

    Example: ramify train tag --data data/conll --model tfidf --out runs/names-floor
    """
    from ramify.recipes.backbones import TAG_FLOORS, stages_of, start_of, task_mode
    from ramify.runs.labelled.tagging import TaggingRun
    from ramify.tasks.tagging import TaggingConfig

    start = start_of(model, init, TAG_FLOORS, mode=mode)
    # The scores of a CRF begin with zero. The rates of fine-tuning would hardly move them.
    lr_scale = ((r"^crf\.", CRF_RATE),) if init and mode == "finetune" and decoder == "crf" else None
    task: dict[str, Any] = {
        "mode": task_mode(mode),
        "decoder": decoder,
        "between": "bilstm" if mode == "features" else "nothing",
    }
    task |= start.fitted or {}
    return TaggingRun(
        recipe="tag",
        data=data,
        model=start.model,
        task=TaggingConfig(**task),
        input=start.input(label=label),
        tokenizer=start.tokenizer,
        stages=stages_of(
            start,
            model,
            mode,
            refused={"decoder": None if decoder == "linear" else decoder},
            epochs=epochs,
            lr=lr,
            patience=patience,
            lr_scale=lr_scale,
        ),
        init=init,
        seed=seed,
    )
