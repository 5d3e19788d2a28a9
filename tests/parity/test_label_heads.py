"""Heads on labelled texts of transformers: random checkpoints give the same answers here, and models of ours the same there."""

import inspect
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from test_bert_family import COMMON, FAMILY
from test_exports import TEXTS, loaded, spread, trained
from tokenizers import Tokenizer as Engine

import ramify
from fixtures.commands import call
from ramify import hub
from ramify.batching.views.labelled import LabelInput
from ramify.dataset.build import build
from ramify.dataset.questions import Questions
from ramify.errors import RamifyError
from ramify.inference.answer import Answerer
from ramify.inference.classify import Classifier
from ramify.inference.tag import Tagger
from ramify.models.bert import BertConfig
from ramify.models.cnn import CnnConfig
from ramify.models.recurrent import RecurrentConfig
from ramify.models.transformer import TransformerConfig
from ramify.models.xlnet import XLNetConfig
from ramify.tasks.classification import Classification, ClassificationConfig
from ramify.tasks.span_qa import SpanQA, SpanQAConfig
from ramify.tasks.tagging import Tagging

transformers = pytest.importorskip("transformers", reason="parity needs transformers: pip install 'ramify[hf]'")

WORDS = trained("wordpiece")
FAMILIES = ["Bert", "Roberta", "DistilBert", "Albert", "XLNet", "GPT2"]
SIZES = {**FAMILY, "Bert": {**COMMON, "max_position_embeddings": 80}}
SIZES["Albert"] = {**SIZES["Albert"], "max_position_embeddings": 80}
SIZES["Roberta"] = {**SIZES["Roberta"], "max_position_embeddings": 82}
SIZES["DistilBert"] = {**SIZES["DistilBert"], "max_position_embeddings": 80}
SIZES["XLNet"] = {"d_model": 24, "n_layer": 2, "n_head": 4, "d_inner": 40}
SIZES["GPT2"] = {"n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 80}
LAYOUTS = {"Roberta": "roberta", "XLNet": "xlnet", "GPT2": "plain"}
PROBLEMS = {"single_label_classification": 3, "multi_label_classification": 3, "regression": 1}
PAIRS = [(TEXTS[0], TEXTS[1]), (TEXTS[2], TEXTS[0])]


def foreign(folder, family, kind, tokenizer=WORDS, **changes):
    """A random model of transformers in a folder, with well-spread weights, and the tokenizer of its layout."""
    torch.manual_seed(0)
    labels = changes.pop("labels", None)
    if labels is not None:
        changes |= {"id2label": dict(enumerate(labels)), "label2id": {label: number for number, label in enumerate(labels)}}
    config = getattr(transformers, f"{family}Config")(**SIZES[family] | {"vocab_size": tokenizer.vocab_size} | changes)
    model = getattr(transformers, f"{family}{kind}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    engine = Engine.from_str(tokenizer.json)
    engine.post_processor = tokenizer.template(tokenizer.layout(LAYOUTS.get(family, "bert")))
    engine.save(str(folder / "tokenizer.json"))
    return model


def theirs_on(model, tokenizer, layout, one, other=None):
    """Their scores of a text, or of a pair, laid out as the architecture reads them."""
    rows = tokenizer.layout(layout)
    parts = [tokenizer.encode(text) for text in (one, *(() if other is None else (other,)))]
    ids = rows.wrap(parts[0]) if other is None else rows.wrap_pair(*parts)
    inputs = {"input_ids": torch.tensor(np.asarray(ids))[None]}
    if rows.types is not None and "token_type_ids" in inspect.signature(model.forward).parameters:
        inputs["token_type_ids"] = torch.tensor(rows.types_of(*map(len, parts)))[None]
    with torch.no_grad():
        return model(**inputs).logits[0]


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("family", FAMILIES)
def test_published_classifiers_answer_as_there(tmp_path, family, problem):
    labels = ["no", "yes", "per/haps"][: PROBLEMS[problem]]
    kind = "ForSequenceClassification"
    model = foreign(tmp_path, family, kind, labels=labels, problem_type=problem, num_labels=len(labels))
    own = ramify.load(tmp_path)
    assert isinstance(own, Classifier)
    assert own.kind == "classification"
    layout = LAYOUTS.get(family, "bert")
    assert own.input.layout == layout
    single = [theirs_on(model, WORDS, layout, text) for text in TEXTS]
    for answer, scores in zip(own.predict(TEXTS), single, strict=True):
        compare(answer, scores, labels, problem)
    # A text is not a pair, and the model says neither.
    if family != "GPT2":
        for answer, pair in zip(own.predict(PAIRS), PAIRS, strict=True):
            compare(answer, theirs_on(model, WORDS, layout, *pair), labels, problem)
    with pytest.raises(RamifyError, match=r"texts and pairs of texts are given together"):
        own.predict([TEXTS[0], PAIRS[0]])
    # Saved here, it is the same model; exported, it is theirs again.
    ramify.save(own, tmp_path / "own")
    assert ramify.load(tmp_path / "own").predict(TEXTS) == own.predict(TEXTS)
    hub.export_hugging_face(own, tmp_path / "theirs")
    again = getattr(transformers, f"{family}{kind}").from_pretrained(tmp_path / "theirs").eval()
    torch.testing.assert_close(theirs_on(again, WORDS, layout, TEXTS[0]), single[0], rtol=0, atol=1e-5)
    config = json.loads((tmp_path / "theirs/config.json").read_text())
    assert config["id2label"] == ({str(n): label for n, label in enumerate(labels)} if len(labels) > 1 else {"0": "LABEL_0"})
    assert config["problem_type"] == problem


def compare(answer, scores, labels, problem):
    if problem == "regression":
        assert answer.label == pytest.approx(float(scores), abs=1e-5)
        return
    shares = scores.softmax(0) if problem == "single_label_classification" else scores.sigmoid()
    assert list(answer.probabilities) == labels
    assert [*answer.probabilities.values()] == pytest.approx(shares.tolist(), abs=1e-5)
    if problem == "single_label_classification":
        assert answer.label == labels[int(scores.argmax())]
    else:
        assert answer.label == tuple(label for label, score in zip(labels, scores.tolist(), strict=True) if score >= 0)


FORM = {"norm": "pre", "position": "learned", "scale_embedding": False}
BERT = {"dim": 16, "num_layers": 2, "num_heads": 2, "ffn_dim": 24, "max_tokens": 64}
CASES = {
    "bert": (BertConfig(**BERT, pooling="pooler"), "bert", "vector", "BertForSequenceClassification"),
    "bert, new pooler": (BertConfig(**BERT), "bert", "pooler", "BertForSequenceClassification"),
    "roberta": (BertConfig(**BERT, type_vocab_size=0), "roberta", "pooler", "RobertaForSequenceClassification"),
    "distilbert": (BertConfig(**BERT, type_vocab_size=0), "bert", "rectifier", "DistilBertForSequenceClassification"),
    "albert": (
        BertConfig(**BERT, shared_layers=True, embedding_dim=8, pooling="pooler"),
        "bert",
        "vector",
        "AlbertForSequenceClassification",
    ),
    "xlnet": (XLNetConfig(dim=16, num_layers=2, num_heads=2, ffn_dim=24), "xlnet", "default", "XLNetForSequenceClassification"),
    "gpt2": (
        TransformerConfig(dim=16, num_heads=2, ffn_dim=24, encoder_layers=0, decoder_layers=2, max_tokens=64, **FORM),
        "plain",
        "default",
        "GPT2ForSequenceClassification",
    ),
}


def classifier(name, labels="classes", head=None, **settings):
    model, layout, own_head, _ = CASES[name]
    tokenizer = trained("wordpiece", marks=name == "xlnet")
    torch.manual_seed(0)
    classes = () if labels == "numbers" else ("bad", "good", "so so")
    config = ClassificationConfig(labels=labels, classes=classes, head=head or own_head, output_bias=name != "gpt2", **settings)
    input = LabelInput(max_tokens=64, layout=layout, pair="none")
    task = Classification(model.for_vocabulary(tokenizer.vocab_size).build(), tokenizer, input, config)
    task.fit(np.array([1.0, 5.0, 3.5])) if labels == "numbers" else task.temperature.fill_(1.7)
    return Classifier(spread(task))


@pytest.mark.parametrize("labels", ["classes", "several", "numbers"])
@pytest.mark.parametrize("name", CASES)
def test_classifiers_of_ours_answer_there_as_here(tmp_path, name, labels):
    """The temperature, and the unit of numbers, are part of the exported weights."""
    if (name, labels) == ("gpt2", "numbers"):
        pytest.skip("its output has no bias, which a mean of numbers needs")
    own = classifier(name, labels)
    hub.export_hugging_face(own, tmp_path)
    fast, theirs = loaded(transformers.AutoModelForSequenceClassification, tmp_path)
    assert type(theirs).__name__ == CASES[name][3]
    answers = own.predict(TEXTS)
    # All texts in one padded batch, by the ordinary path.
    batch = fast(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        scores = theirs(**batch).logits
    problem = theirs.config.problem_type
    for answer, row in zip(answers, scores, strict=True):
        compare(answer, row, ["bad", "good", "so so"], problem)
    if labels != "numbers":
        assert theirs.config.id2label == {0: "bad", 1: "good", 2: "so so"}
        assert theirs.config.label2id == {"bad": 0, "good": 1, "so so": 2}
    again = ramify.load(tmp_path)
    for one, other in zip(again.predict(TEXTS), answers, strict=True):
        assert one.label == pytest.approx(other.label, abs=1e-5) if labels == "numbers" else one.label == other.label
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-6)


def test_models_without_a_form_are_refused(tmp_path):
    with pytest.raises(RamifyError, match=r"form=hugging-face has no card and no dtype of its own"):
        ramify.save(classifier("bert"), tmp_path, form="hugging-face", dtype=torch.float16)
    for own, message in (
        (classifier("bert", mode="features"), r"task\.mode=features has no Hugging Face form"),
        (
            classifier("bert", head="mean"),
            r"task\.head=mean has no Hugging Face form .* Train a model with --set task\.head=pooler",
        ),
        (classifier("bert, new pooler", head="vector"), r"task\.head=vector has no Hugging Face form"),
        (classifier("bert", head="rectifier"), r"task\.head=rectifier has no Hugging Face form"),
        (classifier("gpt2", head="mean"), r"task\.head=mean has no Hugging Face form"),
    ):
        with pytest.raises(RamifyError, match=message):
            hub.export_hugging_face(own, tmp_path)
    own = classifier("gpt2")
    other = Classifier(Classification(own.backbone, own.tokenizer, replace(own.input, layout="roberta"), own.task.config))
    with pytest.raises(RamifyError, match=r"input\.layout=roberta has no Hugging Face form, whose gpt2 reads the layout plain"):
        hub.export_hugging_face(other, tmp_path)
    config = ClassificationConfig(classes=("a", "b"))
    task = Classification(own.backbone, own.tokenizer, own.input, config)
    with pytest.raises(RamifyError, match=r"the output of the task has a bias.* task\.output_bias=false"):
        hub.export_hugging_face(Classifier(spread(task)), tmp_path)
    backbone = RecurrentConfig(own.tokenizer.vocab_size, 8, hidden=4).build()
    with pytest.raises(RamifyError, match=r"this RecurrentEncoder \(Classification\) has no Hugging Face form"):
        hub.export_hugging_face(Classifier(Classification(backbone, own.tokenizer, own.input, config)), tmp_path)


def change_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({k: v for k, v in (config | changes).items() if v is not None}))


def test_checkpoints_without_names_of_labels_have_those_of_transformers(tmp_path):
    foreign(tmp_path, "Bert", "ForSequenceClassification", num_labels=3)
    change_config(tmp_path, id2label=None, label2id=None, problem_type=None)
    assert ramify.load(tmp_path).task.config.classes == ("LABEL_0", "LABEL_1", "LABEL_2")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id2label": {"0": "a", "1": "b"}}, r"id2label has 2 labels, but the head has 3 outputs\. Name every output once"),
        ({"id2label": {"0": "a", "1": "b", "2": "b"}}, r"id2label has 2 labels, but the head has 3 outputs"),
        ({"id2label": ["a", "b", "c"]}, r"id2label must name a label for each number, but is \['a', 'b', 'c'\]"),
        ({"problem_type": "ranking"}, r"problem_type='ranking' with 3 outputs is not supported; only single_label_class"),
        ({"problem_type": "regression"}, r"problem_type='regression' with 3 outputs is not supported"),
        ({"architectures": ["BertForTokenClassification"]}, r"holds tensors|also holds|not"),
    ],
)
def test_damaged_checkpoints_are_refused(tmp_path, changes, message):
    foreign(tmp_path, "Roberta", "ForSequenceClassification", num_labels=3)
    change_config(tmp_path, **changes)
    with pytest.raises(RamifyError, match=message):
        ramify.load(tmp_path)


@pytest.mark.parametrize("family", ["Bert", "XLNet", "GPT2"])
def test_a_missing_output_is_named(tmp_path, family):
    foreign(tmp_path, family, "ForSequenceClassification")
    name = {"Bert": "classifier.weight", "XLNet": "logits_proj.weight", "GPT2": "score.weight"}[family]
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors[name]
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(RamifyError, match=rf"holds no tensor '{name}'"):
        ramify.load(tmp_path)


@pytest.mark.parametrize("family", FAMILIES)
def test_fine_tuned_checkpoints_start_other_tasks(tmp_path, family):
    """Their body, with the pooler of BERT, is a start as any other."""
    model = foreign(tmp_path, family, "ForSequenceClassification", num_labels=2)
    start = hub.encoder_of(tmp_path)
    assert start.layout == LAYOUTS.get(family, "bert")
    backbone = start.model.build()
    start.model.initialize(backbone, hub.checkpoint(tmp_path))
    own = ramify.load(tmp_path).backbone
    tensors = backbone.state_dict()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in own.state_dict().items())
    if family == "Bert":
        assert torch.equal(backbone.pool.hidden.weight, model.bert.pooler.dense.weight)


def test_a_checkpoint_without_a_pooler_says_before_training_what_has_a_form(tmp_path):
    """Its default vector is its own mean of states, as in sentence encoders, which no class of transformers reads."""
    torch.manual_seed(0)
    model = transformers.BertModel(
        transformers.BertConfig(**SIZES["Bert"] | {"vocab_size": WORDS.vocab_size}), add_pooling_layer=False
    )
    model.save_pretrained(tmp_path / "start")
    WORDS.save(tmp_path / "start")
    texts = [sentence for sentence in TEXTS for _ in range(4)]
    rows = [json.dumps({"text": f"{text} {number}", "label": "ab"[number % 2]}) for number, text in enumerate(texts)]
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    data = build([tmp_path / "train.jsonl"], "labelled", tmp_path / "data").path
    words = ("train", "classify", "--data", data, "--init", tmp_path / "start", "--epochs", 1)
    whole = call(*words, "--out", tmp_path / "mean")
    reason = "task.head=vector has no Hugging Face form in this model, whose ForSequenceClassification reads another vector"
    remedy = "Train a model with --set task.head=pooler, which has one."
    assert f"note: the trained model cannot be saved in Hugging Face's form: {reason}" in whole.stderr
    assert whole.stderr.index(remedy) < whole.stderr.index("report:")
    own = ramify.load(tmp_path / "mean")
    assert (own.task.head_name, own.backbone.config.pooling) == ("vector", "mean")
    with pytest.raises(RamifyError, match=reason.replace(".", r"\.")):
        ramify.save(own, tmp_path / "exported", form="hugging-face")
    pooled = call(*words, "--out", tmp_path / "pooler", "--set", "task.head=pooler")
    assert "note:" not in pooled.stderr
    own = ramify.load(tmp_path / "pooler")
    fast, theirs, _ = exported_again(own, tmp_path / "exported", transformers.AutoModelForSequenceClassification)
    with torch.no_grad():
        scores = theirs(**fast(TEXTS, padding=True, return_tensors="pt")).logits
    for answer, row in zip(own.predict(TEXTS), scores, strict=True):
        compare(answer, row, ["a", "b"], "single_label_classification")


@pytest.mark.parametrize(("name", "message"), [("t5", "t5 has no form for a head on labelled texts"), ("cnn", "")])
def test_refusals_name_the_forms_of_the_model_and_the_task(tmp_path, name, message):
    settings = {"vocab_size": WORDS.vocab_size, "dim": 8}
    if name == "t5":
        form = {
            "norm": "pre",
            "norm_kind": "rms",
            "position": "relative",
            "bias": False,
            "scale_embedding": False,
            "attention_scale": "none",
        }
        config = TransformerConfig(**settings, **form, num_heads=2, ffn_dim=12, encoder_layers=1, decoder_layers=1)
    else:
        config = CnnConfig(WORDS.vocab_size)
        message = r"has no Hugging Face form; Bert and Transformer and XLNet with classification have one"
    task = Classification(
        config.build(), WORDS, LabelInput(max_tokens=16, layout="t5", pair="none"), ClassificationConfig(classes=("a", "b"))
    )
    with pytest.raises(RamifyError, match=message):
        hub.export_hugging_face(Classifier(task), tmp_path)


# --- tokens, answers, choices -------------------------------------------------------------------------------------------------

TAGS = ["NOUN", "VERB", "DET"]


def exported_again(own, folder, auto):
    """The class of transformers that an exported model has, its tokenizer, and the same model loaded here again."""
    ramify.save(own, folder, form="hugging-face")
    fast, theirs = loaded(auto, folder)
    return fast, theirs, ramify.load(folder)


@pytest.mark.parametrize("family", FAMILIES)
def test_taggers(tmp_path, family):
    model = foreign(tmp_path, family, "ForTokenClassification", labels=TAGS, num_labels=3)
    own = ramify.load(tmp_path)
    assert (own.kind, own.task.config.scheme, own.task.config.tags) == ("tagging", "plain", tuple(TAGS))
    layout = LAYOUTS.get(family, "bert")
    fast, theirs, again = exported_again(own, tmp_path / "theirs", transformers.AutoModelForTokenClassification)
    assert type(theirs) is type(model)
    for text, answer, other in zip(TEXTS, own.predict(TEXTS), again.predict(TEXTS), strict=True):
        row = fast(text, return_offsets_mapping=True, return_tensors="pt")
        offsets = row.pop("offset_mapping")[0].tolist()
        with torch.no_grad():
            shares = theirs(**row).logits[0].softmax(-1)
        torch.testing.assert_close(shares, theirs_on(model, WORDS, layout, text).softmax(-1), rtol=0, atol=1e-5)
        first = {start: place for place, (start, end) in reversed([*enumerate(offsets)]) if end > start}
        assert answer.tokens
        for word, its_other in zip(answer.tokens, other.tokens, strict=True):
            expected = shares[first[word.start]]
            assert (word.tag, its_other.tag) == (TAGS[int(expected.argmax())],) * 2
            assert word.probability == pytest.approx(float(expected.max()), abs=1e-5)


def test_tags_of_spans_are_told_from_others(tmp_path):
    foreign(tmp_path, "Bert", "ForTokenClassification", labels=["O", "B-PER", "I-PER"], num_labels=3)
    own = ramify.load(tmp_path)
    assert own.task.config.scheme == "spans"
    assert all(span.tag == "PER" for span in own.predict(TEXTS[0]).spans)
    for settings in ({"decoder": "crf"}, {"between": "bilstm"}):
        task = Tagging(own.backbone, own.tokenizer, own.input, replace(own.task.config, **settings))
        (name, value), *_ = settings.items()
        with pytest.raises(
            RamifyError, match=rf"task\.{name}={value} has no Hugging Face form.* Train a model with task\.{name}="
        ):
            hub.export_hugging_face(Tagger(task), tmp_path / "theirs")


@pytest.mark.parametrize("family", FAMILIES)
def test_answerers(tmp_path, family):
    kind = "ForQuestionAnsweringSimple" if family == "XLNet" else "ForQuestionAnswering"
    model = foreign(tmp_path, family, kind)
    own = ramify.load(tmp_path)
    assert own.kind == "answers"
    _, theirs, again = exported_again(own, tmp_path / "theirs", transformers.AutoModelForQuestionAnswering)
    assert type(theirs) is type(model)
    question, passage = TEXTS[2], TEXTS[1]
    view = own.view(Questions.about([question], [passage]))
    batch = own.task.collator([view.example(0)])
    assert len(batch.order) == 1
    states = own.task.states(batch)
    nothing = torch.zeros(1, dtype=torch.int64)
    inputs = {"input_ids": batch.input.ids[None]}
    if batch.input.token_types is not None:
        inputs["token_type_ids"] = batch.input.token_types[None]
    for each in (model, theirs):
        with torch.no_grad():
            output = each(**inputs)
        torch.testing.assert_close(own.task.start_table(batch, states), output.start_logits, rtol=0, atol=1e-5)
        torch.testing.assert_close(own.task.end_table(batch, states, nothing), output.end_logits, rtol=0, atol=1e-5)
    answer, other = own.answer(question, passage), again.answer(question, passage)
    assert answer.best.text
    assert passage[answer.best.start : answer.best.end] == answer.best.text == other.best.text
    assert answer.best.score == pytest.approx(other.best.score, abs=1e-6)
    if family == "Bert":
        conditional = SpanQA(own.backbone, own.tokenizer, own.input, SpanQAConfig(end="conditional", null="none"))
        with pytest.raises(RamifyError, match=r"task\.end=conditional has no Hugging Face form, whose ends do not depend"):
            hub.export_hugging_face(Answerer(conditional), tmp_path / "conditional")


def test_rows_without_a_special_token_have_no_place_for_no_answer(tmp_path):
    foreign(tmp_path, "GPT2", "ForQuestionAnswering")
    own = ramify.load(tmp_path)
    with pytest.raises(RamifyError, match=r"task\.null=token needs a special token .* but input\.layout=plain has none"):
        SpanQA(own.backbone, own.tokenizer, own.input, SpanQAConfig(null="token"))
    # A window without the answer has a token of the question for its target, which is never an answer.
    (passage,) = (own.tokenizer.encode(TEXTS[1] * 8),)
    view = own.view(Questions.about([TEXTS[2]], [TEXTS[1] * 8]))
    batch = own.task.collator([replace(view.example(0), answer=(len(passage) - 2, len(passage) - 1))])
    windows = batch.part
    assert windows.answered.tolist().count(False) >= 1
    assert batch.targets[~windows.answered].tolist() == [[0, 0]] * int((~windows.answered).sum())
    assert not windows.passage[batch.input.rows.offsets[:-1].long()].any()


def test_short_rows_name_the_setting_that_shortens_questions(tmp_path):
    foreign(tmp_path, "Bert", "ForQuestionAnswering", max_position_embeddings=40)
    with pytest.raises(
        RamifyError, match=r"Set input\.question_tokens=10, .* longer rows\. `ramify\.load\(…, input=\{NAME: VALUE\}\)` sets"
    ):
        ramify.load(tmp_path)
    own = ramify.load(tmp_path, input={"question_tokens": 10})
    answer = own.answer(TEXTS[2], TEXTS[1] * 4)
    assert answer.best.text in TEXTS[1] * 4
    for changes, message in (
        ({"question_tokens": 10, "max_tokens": 41}, r"input\.max_tokens=41 is more than the 40 tokens that .* reads"),
        ({"questions": 1}, r"input\.questions is no setting of .*, which has max_tokens, stride, question_tokens"),
    ):
        with pytest.raises(RamifyError, match=message):
            ramify.load(tmp_path, input=changes)
    hub.save(own, tmp_path / "own")
    assert ramify.load(tmp_path / "own").input == own.input
    assert ramify.load(tmp_path / "own", input={"stride": 9}).input == replace(own.input, stride=9)


@pytest.mark.parametrize("family", [*FAMILIES[:4], "XLNet"])
def test_choosers(tmp_path, family):
    model = foreign(tmp_path, family, "ForMultipleChoice")
    own = ramify.load(tmp_path)
    assert own.kind == "multiple-choice"
    fast, theirs, again = exported_again(own, tmp_path / "theirs", transformers.AutoModelForMultipleChoice)
    assert type(theirs) is type(model)
    choices = [TEXTS[1], TEXTS[2], "water"]
    answer = own.predict((TEXTS[0], choices))
    batch = fast([TEXTS[0]] * 3, choices, padding=True, return_tensors="pt")
    for each in (model, theirs):
        with torch.no_grad():
            shares = each(**{name: values[None] for name, values in batch.items()}).logits[0].softmax(-1)
        assert [*answer.probabilities.values()] == pytest.approx(shares.tolist(), abs=1e-5)
    assert again.predict((TEXTS[0], choices)).probabilities == pytest.approx(answer.probabilities, abs=1e-6)


@pytest.mark.parametrize(("family", "kind"), [("GPT2", "ForMultipleChoice"), ("T5", "ForSequenceClassification")])
def test_kinds_of_heads_that_an_architecture_lacks_are_refused(tmp_path, family, kind):
    foreign(tmp_path, "GPT2", "ForSequenceClassification")
    if family == "T5":
        sizes = {"d_model": 24, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 4, "d_ff": 24, "d_kv": 6}
        transformers.T5Config(vocab_size=WORDS.vocab_size, **sizes, architectures=[f"T5{kind}"]).save_pretrained(tmp_path)
    else:
        change_config(tmp_path, architectures=[f"GPT2{kind}"])
    with pytest.raises(RamifyError, match=r"has no form for a head on"):
        ramify.load(tmp_path)


def test_another_head_of_the_kind_is_refused(tmp_path):
    foreign(tmp_path, "XLNet", "ForQuestionAnswering")
    with pytest.raises(RamifyError, match=r"XLNetForQuestionAnswering'\] is not supported; .* only …ForQuestionAnsweringS"):
        ramify.load(tmp_path)


def test_the_commands(tmp_path):
    """`predict`, `answer` and `evaluate` work on published checkpoints."""
    labels = ["negative", "positive"]
    foreign(tmp_path / "classifier", "DistilBert", "ForSequenceClassification", labels=labels, num_labels=2)
    (answer,) = json.loads(call("predict", tmp_path / "classifier", "--text", TEXTS[0], "--json").stdout)
    assert answer["label"] in labels
    assert list(answer["probabilities"]) == labels
    pair = call("predict", tmp_path / "classifier", "--text", TEXTS[0], "--text-pair", TEXTS[1], "--json").stdout
    assert json.loads(pair) != [answer]
    # A table with a second column is one of pairs.
    (tmp_path / "pairs.csv").write_text(f'text,text_pair\n"{TEXTS[0]}","{TEXTS[1]}"\n', "utf-8")
    table = json.loads(call("predict", tmp_path / "classifier", tmp_path / "pairs.csv", "--json").stdout)
    assert table[0]["probabilities"] == json.loads(pair)[0]["probabilities"]
    rows = "".join(f"{text}\t{labels[number % 2]}\n" for number, text in enumerate(TEXTS * 4))
    (tmp_path / "rows.tsv").write_text(f"text\tlabel\n{rows}", "utf-8")
    call("data", "build", tmp_path / "rows.tsv", "--format", "labelled", "--split", "0,1,0", "--out", tmp_path / "data")
    scores = json.loads(
        call("evaluate", tmp_path / "classifier", "--data", tmp_path / "data", "--split", "dev", "--json").stdout
    )
    assert (scores["metric"], scores["majority"]) == ("accuracy", None)
    foreign(tmp_path / "answerer", "Bert", "ForQuestionAnswering")
    (tmp_path / "passage.txt").write_text(TEXTS[1], "utf-8")
    found = json.loads(
        call("answer", tmp_path / "answerer", "--question", TEXTS[2], "--passage", tmp_path / "passage.txt", "--json").stdout
    )
    assert found[0]["text"] in TEXTS[1]
