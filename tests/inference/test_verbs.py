"""The table of verbs fits the pipelines, and one decorator gives every verb lists and refusals."""

import inspect
import json
import subprocess
import sys
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass

import numpy as np
import pytest

from fixtures import bert_task, tree_task
from ramify import Node, RamifyError, Tree
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.inference import answers
from ramify.inference.answer import Answerer
from ramify.inference.base import Pipeline
from ramify.inference.bidirectional import BidirectionalPipeline
from ramify.inference.choose import Chooser
from ramify.inference.classify import Classifier
from ramify.inference.documents.generate import DocumentGenerator
from ramify.inference.documents.pipeline import DocumentEncoder, DocumentPipeline
from ramify.inference.embed import Embedder
from ramify.inference.fill_mask import MaskFiller
from ramify.inference.permutation import DenoisingPipeline, PermutationPipeline
from ramify.inference.tag import Tagger
from ramify.inference.translate import TextGenerator, Translator
from ramify.inference.verbs import VERBS, Array, Streams

PIPELINES = (
    BidirectionalPipeline, Disentangler, DocumentEncoder, DocumentGenerator, DocumentPipeline, Embedder, MaskFiller,
    DenoisingPipeline,
    PermutationPipeline, TextGenerator, Translator, Answerer, Chooser, Classifier, Tagger,
)  # fmt: skip
TREE = Tree((Node("ba be", id="post"), Node("ce [MASK] da", (0,), id="below")), id="t")


def test_every_pipeline_is_tested():
    def final(kind: type) -> set[type]:
        return {kind} if not kind.__subclasses__() else set().union(*map(final, kind.__subclasses__()))

    assert {each for each in final(Pipeline) if each.__module__.startswith("ramify.")} == {*PIPELINES}
    assert {name for each in PIPELINES for name in each.verbs} == VERBS.keys()


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_methods_have_the_options_of_their_verbs(pipeline):
    for name in pipeline.verbs:
        method, declared = getattr(pipeline, name), VERBS[name]
        own = inspect.signature(method).parameters
        for option in declared.options:
            assert own[option.name].default == option.default, (name, option.name)
            assert own[option.name].kind is inspect.Parameter.KEYWORD_ONLY
        answer = typing.get_type_hints(method)["return"]
        assert ("show" in own) == (declared.streams is Streams.TEXT)
        if declared.streams is Streams.ANSWERS:
            assert answer == Iterator[declared.answer]
        elif declared.answer is not Array:
            # A method that answers a list together says so.
            one, *many = typing.get_args(answer) if declared.together else (answer,)
            assert issubclass(one, declared.answer)
            assert many == ([list[one]] if declared.together else [])


def test_abilities_are_those_that_options_need():
    needed = {option.needs for each in VERBS.values() for option in each.options} - {""}
    assert needed == {ability for each in PIPELINES for ability in each.abilities}


def test_the_table_imports_nothing_heavy():
    script = "import ramify.inference.verbs, sys; assert not {'torch', 'numpy'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_answers_are_frozen_dataclasses_without_shared_keys_for_notes():
    kinds = [each for each in vars(answers).values() if isinstance(each, type) and issubclass(each, answers.Record)]
    for kind in kinds:
        assert is_dataclass(kind)
        assert kind.__dataclass_params__.frozen
        assert {*kind.optional} <= {each.name for each in fields(kind)}


@pytest.fixture(scope="module")
def model():
    return MaskFiller(tree_task().eval())


def test_lists_give_lists_of_answers(model):
    asked = ["ce [MASK] da", (TREE, "below"), Tree((Node("ce [MASK]", id="a"),), id="u")]
    single = [model.fill_mask(asked[0]), model.fill_mask(TREE, "below"), model.fill_mask(asked[2])]
    assert model.fill_mask(asked) == single
    assert model.fill_mask(asked, top_k=1) == [model.fill_mask(each, top_k=1) for each in (asked[0], *asked[1:])]
    assert model.score([(TREE, "post"), "ba be"], context="none") == [
        model.score(TREE, "post", context="none"), model.score("ba be", context="none"),
    ]  # fmt: skip
    assert [each.node for each in model.attention([(TREE, "post"), (TREE, 1)])] == ["post", "below"]
    assert model.fill_mask([]) == []
    with pytest.raises(RamifyError, match="node='below' names a node of one tree, but a list is given"):
        model.fill_mask([TREE], node="below")


def test_a_tuple_that_is_no_pair_of_a_tree_and_a_node_is_refused(model):
    with pytest.raises(RamifyError, match=r"score got a tuple of 3 values.* Pass several texts or trees as a list"):
        model.score(("one", "two", "three"))


def test_options_of_other_models_are_refused(model):
    for method in (model.score, model.attention):
        with pytest.raises(RamifyError, match="order='forward' needs an XLNet with a query stream, but this is a MaskFiller"):
            method("ba", order="forward")
        with pytest.raises(RamifyError, match=r"seed=3 needs an XLNet .* Leave seed out"):
            method("ba", seed=3)
        assert method("ba", order=None, seed=0)
    for pipeline in (model, MaskFiller(bert_task().eval())):
        with pytest.raises(RamifyError, match="level='sentence' needs a model of nested documents"):
            pipeline.embed("ba", level="sentence")


def test_json_has_a_key_for_each_field_that_is_not_left_out(model):
    filled = model.fill_mask(TREE, "below", top_k=1)
    assert list(filled.to_json()) == ["node", "context", "ancestors", "masks"]
    assert list(model.fill_mask(TREE, "below", top_k=1, joint=True).to_json())[-1] == "joint"
    guess = filled.masks[0].tokens[0]
    assert filled.to_json()["masks"] == [
        {"position": 1, "tokens": [{"token": guess.token, "probability": guess.probability}]}
    ]  # fmt: skip
    head = answers.HeadWeights(1, 2, np.array([[1 / 3, 2 / 3]], dtype=np.float32), notes=("so so",))
    assert json.dumps(head.to_json()) == '{"layer": 1, "head": 2, "weights": [[0.333333, 0.666667]]}'
    score = answers.Likelihood(-1.5, 3, 5, "forward", False, 0, notes=("long",))
    facts = {"log_likelihood": -1.5, "tokens": 3, "bytes": 5, "order": "forward", "longer_than_row": False, "unknown_tokens": 0}
    assert score.to_json() == facts
    assert (score.value, score.num_tokens) == (-1.5, 3)
