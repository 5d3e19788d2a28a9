"""Runs on chat logs, from a built data set to conversations."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import ramify
from fixtures import bert_task, built, channel, chat_store, tree_task
from ramify import hub
from ramify.batching.encoder_input import EncoderInput
from ramify.disentangle.batch import LinkBatch
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.evaluation import match_links
from ramify.disentangle.inference.result import split_by_gold
from ramify.disentangle.task import ReplyLinking
from ramify.errors import RamifyError
from ramify.inference.fill_mask import MaskFiller
from ramify.metrics.conversations import score
from ramify.models import bert
from ramify.nn.ragged import Rows
from ramify.recipes import RECIPES
from ramify.recipes.disentanglement import candidate_pruner, reranker
from ramify.report import write_report
from ramify.runs import Run, execute
from ramify.runs.disentanglement.report import curves
from ramify.training.metrics_log import read_metrics
from ramify.training.trainer import Trainer
from ramify.tree import Tree

SMALL = {
    "train.steps": "60",
    "train.budget": "32",
    "train.lr": "0.01",
    "train.evaluate_every": "20",
    "train.checkpoint_every": "10",
    "train.log_every": "10",
    "model.hidden": "32",
    "model.dim": "8",
    "input.window": "20",
    "tokenizer.min_count": "3",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return chat_store(tmp_path_factory.mktemp("chats"))


def small(store, **settings: str) -> Run:
    changes = {name.replace("__", "."): value for name, value in settings.items()}
    return RECIPES["feature-model"](str(store.path)).changed(SMALL | changes)


@pytest.fixture(scope="module")
def trained(store, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "run"
    execute(small(store), out, cpu=True)
    return out


def test_model_learns_reply_links(store, trained):
    """The model beats rules that read nothing: each message answers the previous one, or none."""
    last = read_metrics(trained)[-1]
    messages = np.arange(len(dev(store)[0]))
    previous = score(match_links(*dev(store), np.stack([messages, messages - 1], axis=1)).logs)["link"]["f1"]
    assert last["dev_link_f1"] > 70 > previous + 30
    assert 0 < last["dev_loss"] < 2
    record = json.loads((trained / "run.json").read_text())
    assert record["messages"] == 120 * len(store.split("train"))
    assert record["messages_with_links"] == record["messages"] * 4 // 5
    assert record["beyond_window"] < 0.02 * record["messages"]


def dev(store):
    prepared = small(store).prepare(store.path / "nowhere")
    return prepared.dev, prepared.dev_names


def test_distillation_learns_without_gold_links(store, trained, tmp_path):
    """Almost nothing is annotated in these logs. With distillation weight 1, links do not count."""
    assert json.loads((trained / "run.json").read_text())["messages_with_links"] > 100
    run = small(store, view__teachers=json.dumps([str(trained)]), view__distillation_weight="1", train__steps="80")
    execute(run, tmp_path / "run", cpu=True)
    assert read_metrics(tmp_path / "run")[-1]["dev_link_f1"] > 70
    prepared = run.prepare(tmp_path / "nowhere")
    stage = prepared.stage(0)
    assert sum(stage.view.sizes) == len(prepared.logs) > len(prepared.logs.linked)
    both = replace(run, view=replace(run.view, conversations=0.5)).prepare(tmp_path / "nowhere")
    more = sum(both.stage(0).view.sizes) - len(prepared.logs)
    other = ramify.load(trained)
    with torch.no_grad():
        next(other.task.parameters()).add_(1)
    there = tmp_path / "teacher"
    hub.save(other, there)
    distilled = small(store, view__teachers=json.dumps([str(there)]), train__steps="2")
    execute(distilled, tmp_path / "again", cpu=True)
    hub.save(ramify.load(trained), there)
    with pytest.raises(RamifyError, match=r"teacher does not hold the weights that .*again was started with"):
        execute(distilled, tmp_path / "again", resume=True, cpu=True)
    # Teachers are not asked about single conversations, and links to messages before them are unknown.
    assert 0.4 * more < both.logs.annotated[len(prepared.logs) :].sum() == more


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"view__distillation_weight": "1.5"}, r"view\.distillation_weight=1\.5 must be from 0 to 1"),
        ({"task__objective": "binary"}, r"view\.teachers needs task\.objective=listwise, not binary"),
    ],
)
def test_invalid_distillation_settings_are_refused(store, trained, tmp_path, settings, message):
    with pytest.raises(RamifyError, match=message):
        execute(small(store, view__teachers=json.dumps([str(trained)]), **settings), tmp_path / "run", cpu=True)


def test_conversations_become_separate_logs():
    log = channel(60, seed=3)
    parts = split_by_gold(log)
    assert all(node.time is None for part in parts for node in part.nodes)
    by_id = {node.id: node for node in log.nodes}
    seen = [node.id for part in parts for node in part.nodes]
    assert len(seen) == len(set(seen))
    for part in parts:
        assert [int(node.id) for node in part.nodes] == sorted(int(node.id) for node in part.nodes)
        for node in part.nodes:
            known = by_id[node.id].parents
            assert (node.parents is None) == (known is None)
            assert [part.nodes[parent].id for parent in node.parents or ()] == [str(parent) for parent in known or ()]
    # Every message with a known parent is there, and so is the parent.
    linked = {each for node in log.nodes if node.parents for each in (node.id, *map(str, node.parents))}
    assert linked == set(seen)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_share_of_messages_in_single_conversations(store, tmp_path, share):
    prepared = small(store, view__conversations=str(share)).prepare(tmp_path / "run")
    first = sum(len(tree) for tree in store.trees(store.split("train")))
    known = int(prepared.logs.annotated[:first].sum())
    more = len(prepared.logs) - first
    assert share * known <= more <= share * known + 60
    again = small(store, view__conversations=str(share)).prepare(tmp_path / "run").logs
    assert np.array_equal(again.ids, prepared.logs.ids)
    assert len(prepared.dev) == sum(len(tree) for tree in store.trees(store.split("dev")))


def test_loaded_model_disentangles(trained):
    model = ramify.load(trained)
    assert isinstance(model, Disentangler)
    log = channel(150, seed=77)
    found = model.disentangle(log, ignore_replies=True)
    truth = [log.nodes[i].parents for i in range(150)]
    right = sum(parents == node.parents for parents, node in zip(truth, found.tree.nodes) if parents is not None)
    assert right > 80
    assert ((found.probability > 0) & (found.probability <= 1)).all()
    assert found.links()[:, 1].tolist() == list(range(150))
    # Conversations are the components of the links, numbered by their starts, and hold every message once.
    trees = found.conversations()
    assert sorted(node.id for tree in trees for node in tree.nodes) == sorted(node.id for node in log.nodes)
    starts = [int(tree.nodes[0].id) for tree in trees]
    assert starts == sorted(starts)
    assert all(len(tree.roots) == 1 for tree in trees)
    assert all(0 < node.label["probability"] <= 1 for tree in trees for node in tree.nodes)


def test_messages_need_no_tree(trained):
    model = ramify.load(trained)
    log = channel(80, seed=5)
    found = model.disentangle(log.nodes, ignore_replies=True)
    again = model.disentangle(log, ignore_replies=True)
    assert [node.parents for node in found.tree.nodes] == [node.parents for node in again.tree.nodes]
    assert model.disentangle([]).conversations() == []
    assert len(model.disentangle(log.nodes[:1]).conversations()) == 1


BY_THE_PAPER = {
    "train__optimizer": "sgd",
    "train__schedule": "epochs",
    "train__epoch_decay": "0.1",
    "train__weight_decay": "1e-7",
}


@pytest.mark.parametrize("settings", [{}, BY_THE_PAPER])
def test_killed_run_resumes_to_the_same_weights(store, tmp_path_factory, settings):
    run = small(store, **settings)
    trained, tmp_path = (tmp_path_factory.mktemp(name) for name in ("whole", "killed"))
    execute(run, trained, cpu=True)
    for until in (25, None):
        prepared = run.prepare(tmp_path)
        stages = [prepared.stage(number) for number in range(len(run.stages))]
        trainer = Trainer(prepared.task, stages, tmp_path, seed=run.seed, cpu=True)
        trainer.run(resume=until is None, until=until)
    final = read_metrics(trained)[-1], read_metrics(tmp_path)[-1]
    assert final[0]["loss"] == final[1]["loss"]
    assert final[0]["dev_loss"] == final[1]["dev_loss"]


def test_report_shows_scores_and_curves(trained, store):
    page = write_report(trained).read_text()
    assert "Links and conversations" in page
    assert "one-to-one overlap" in page
    assert "training messages" in page
    assert "finds the messages that a message answers, among the 20 before it" in page
    assert "To add one" in write_report(trained, evaluate=False).read_text()


def test_curves_show_dev_scores_without_a_dev_loss():
    metrics = [{"step": step, "loss": 2.0 / step, "dev_link_f1": 60.0 + step, "dev_cluster_f1": 30.0} for step in (1, 2)]
    (charts,) = curves(metrics, "gold").blocks
    loss, scores = charts.charts
    assert [line.name for line in loss.lines] == ["train"]
    assert scores.lines[0].y.tolist() == [61.0, 62.0]
    assert [line.name for line in scores.lines] == ["links", "conversations"]


def test_run_starts_from_another_run(store, trained, tmp_path):
    prepared, _ = execute(small(store, init=str(trained), train__lr="1e-9", train__steps="1"), tmp_path / "more", cpu=True)
    first, second = ramify.load(trained), ramify.load(tmp_path / "more")
    for one, two in zip(first.task.parameters(), second.task.parameters(), strict=True):
        torch.testing.assert_close(one, two)
    assert prepared.task.tokenizer.json == first.tokenizer.json


@pytest.mark.parametrize("recipe", ["decatt", "esim"])
def test_word_models_start_from_learned_word_vectors(store, tmp_path, recipe):
    words = small(store).prepare(tmp_path).task.backbone.embedding
    for kind, same in (("trained", True), ("random", False)):
        settings = {"model.dim": "8", "tokenizer.min_count": "3", "tokenizer.vectors": kind}
        own = RECIPES[recipe](str(store.path)).changed(settings).prepare(tmp_path).task.backbone
        assert torch.equal(own.embedding.weight, words.weight) == same


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    task = bert_task(dtype=torch.float32, task={"head": "bert"}, max_tokens=128)
    hub.export_hugging_face(MaskFiller(task), folder)
    return folder


def test_pairs_are_read_by_the_encoder_of_a_checkpoint(store, checkpoint, tmp_path):
    run = RECIPES["bert-pair"](str(store.path), init=str(checkpoint), features="head")
    assert run.model.encoder.pooling == "cls"
    own, theirs = run.prepare(tmp_path).task.backbone, bert.from_pretrained(checkpoint)
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(own.encoder.state_dict()[name], tensor), name


MASKED_LMS = {
    "tree-mlm": lambda: tree_task(dtype=torch.float32, max_tokens=128, pooling="attn"),
    "tree-mlm as BERT": lambda: tree_task(
        dtype=torch.float32,
        position="learned",
        scale_embedding=False,
        embedding_norm=True,
        share_embeddings=False,
        max_tokens=128,
    ),
    "bert": lambda: bert_task(dtype=torch.float32, pooling="max", max_tokens=128),
}


@pytest.mark.parametrize("kind", MASKED_LMS)
def test_encoder_of_a_masked_language_model_encodes_messages(store, tmp_path, kind):
    saved = MASKED_LMS[kind]().eval()
    hub.save(MaskFiller(saved), tmp_path / "saved")
    run = RECIPES["mht"](str(store.path), init=str(tmp_path / "saved"))
    task = run.prepare(tmp_path / "run").task.eval()
    assert task.tokenizer.json == saved.tokenizer.json
    texts = [torch.arange(5, 9), torch.arange(7, 20), torch.arange(3, 5)]
    rows = EncoderInput.of_rows(torch.cat(texts), Rows.build([len(text) for text in texts]))
    torch.testing.assert_close(task.backbone.encoder.vectors(rows), saved.backbone.vectors(rows))
    pairs = RECIPES["bert-pair"](str(store.path), init=str(tmp_path / "saved")).prepare(tmp_path / "pairs").task.backbone
    assert pairs.config.encoder.pooling == "cls"
    assert torch.equal(pairs.encoder.embedding.weight, task.backbone.encoder.embedding.weight)
    with pytest.raises(RamifyError, match=r"needs model\.encoder\.activation = '\w+' \(not 'gelu_tanh'\)"):
        run.changed({"model.encoder.activation": "gelu_tanh"}).prepare(tmp_path / "run")
    with pytest.raises(
        RamifyError,
        match=r"holds a (TreeMLM|Bert) that Ramify saved; a Decomposable\w+ starts from a \w+ that Ramify saved\. Set",
    ):
        RECIPES["decatt"](str(store.path), init=str(tmp_path / "saved"))


@pytest.mark.parametrize("recipe", ["decatt", "esim", "feature-model"])
def test_word_models_refuse_bert_checkpoints(store, checkpoint, recipe):
    with pytest.raises(
        RamifyError, match=r"holds no model that Ramify saved; an? (\w+) starts from an? \1 that Ramify saved\. Set init"
    ):
        RECIPES[recipe](str(store.path), init=str(checkpoint))


def test_word_piece_encoders_name_their_requirements(store, checkpoint, tmp_path):
    for recipe in ("bert-pair", "mht"):
        with pytest.raises(RamifyError, match="--init"):
            RECIPES[recipe](str(store.path)).prepare(tmp_path)
        with pytest.raises(RamifyError, match=r"input\.texts=pieces"):
            RECIPES[recipe](str(store.path), init=str(checkpoint)).changed({"input.texts": "words"}).prepare(tmp_path)
    for key, value in (("input.max_tokens", "129"), ("input.window", "128")):
        with pytest.raises(RamifyError, match=rf"(?i)lower {key.replace('.', '[.]')}"):
            RECIPES["mht"](str(store.path), init=str(checkpoint)).changed({key: value}).prepare(tmp_path)


def test_pair_encoder_starts_with_other_parts(store, tmp_path):
    settings = {"train.steps": "1", "model.hidden": "8", "model.dim": "8", "input.window": "5"}
    execute(RECIPES["decatt"](str(store.path)).changed(settings), tmp_path / "first", cpu=True)
    changes = {"train.steps": "1", "train.lr": "0", "model.chunk_tokens": "500", "model.dropout": "0"}
    more = RECIPES["decatt"](str(store.path), window=5, init=str(tmp_path / "first")).changed(changes)
    execute(more, tmp_path / "second", cpu=True)
    first, second = ramify.load(tmp_path / "first"), ramify.load(tmp_path / "second")
    assert (second.backbone.config.chunk_tokens, second.backbone.config.hidden) == (500, 8)
    assert all(torch.equal(one, two) for one, two in zip(first.task.parameters(), second.task.parameters(), strict=True))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"input.window": "0"}, "input.window"),
        ({"view.block": "0"}, "view.block"),
        ({"view.negative_sampling_rate": "1.5"}, r"view\.negative_sampling_rate=1\.5 must be from 0 to 1"),
        (
            {"view.negative_sampling_rate": "0.5", "view.teachers": '["run"]'},
            r"view\.negative_sampling_rate=0\.5 .*view\.teachers",
        ),
        ({"model.hidden": "0"}, "model.hidden"),
        ({"task.positive_weight": "0"}, "positive_weight"),
        ({"task.objective": "what"}, "listwise, ranking, binary"),
        ({"dev.by": "luck"}, "link, cluster, loss"),
    ],
)
def test_invalid_settings_are_refused(store, settings, message):
    with pytest.raises(RamifyError, match=message):
        RECIPES["feature-model"](str(store.path)).changed(settings)


def test_model_learns_from_sampled_candidates(store, tmp_path):
    run = small(store, view__negative_sampling_rate="0.25", input__window="40")
    execute(run, tmp_path / "run", cpu=True)
    assert read_metrics(tmp_path / "run")[-1]["dev_link_f1"] > 70
    stage = run.prepare(tmp_path / "nowhere").stage(0)
    batch = stage.collator([stage.view.example(number) for number in range(9)])
    assert isinstance(batch, LinkBatch)
    assert batch.importance_weight is not None
    assert set(batch.importance_weight.tolist()) == {1.0, 4.0}
    assert (batch.importance_weight[batch.target_probability > 0] == 1).all()
    links = RECIPES["links"](str(store.path)).changed({"view.negative_sampling_rate": "0.5"})
    with pytest.raises(
        RamifyError,
        match=r"view\.negative_sampling_rate=0\.5 needs a model that scores candidates independently; feature-model reads",
    ):
        links.prepare(tmp_path / "nowhere")


def test_logs_without_links_are_refused(tmp_path):
    logs = [channel(30, seed) for seed in range(6)]
    blank = [Tree(tuple(replace(node, parents=None, self_link=False) for node in log.nodes), id=log.id) for log in logs]
    store = built(blank, tmp_path, split=(0.5, 0.5, 0.0))
    with pytest.raises(RamifyError, match="has no known links in its training logs"):
        execute(small(store), tmp_path / "run", cpu=True)


def test_unsupported_verbs_are_refused(trained):
    with pytest.raises(RamifyError, match="has no embed; it can disentangle"):
        ramify.load(trained).embed(channel(5))


@pytest.mark.parametrize(("name", "setting"), [("candidate_pruner", "num_candidates"), ("reranker", "reranker_dim")])
def test_pruner_and_reranker_are_refused_in_training(store, trained, tmp_path, name, setting):
    with pytest.raises(RamifyError, match=f"ramify train {name.replace('_', '-')}"):
        small(store, **{f"task__{setting}": "8"}).prepare(tmp_path)
    if name == "candidate_pruner":
        extended = candidate_pruner(str(trained), str(store.path), num_candidates=8)
    else:
        extended = reranker(str(trained), unseen=[f"{trained}={store.path}"], hidden=8)
    hub.save(extended, tmp_path / "looking")
    assert isinstance(loaded := ramify.load(tmp_path / "looking").task, ReplyLinking)
    assert getattr(loaded, name) is not None
    begun = small(store, init=str(tmp_path / "looking")).prepare(tmp_path / "more").task
    assert getattr(begun, name) is None
    own, theirs = dict(begun.named_parameters()), dict(ramify.load(trained).task.named_parameters())
    assert own.keys() == theirs.keys()
    assert all(torch.equal(own[name], theirs[name]) for name in own)


def test_models_without_pruner_or_reranker_refuse_them(store, trained, checkpoint, tmp_path):
    for mask, features, reason in (
        ("ancestors", "none", "reads features"),
        ("ancestors", "head", "as a history"),
        ("temporal", "head", "as a history"),
    ):
        model = tmp_path / mask / features
        run = RECIPES["mht"](str(store.path), init=str(checkpoint), features=features).changed({"model.mask": mask})
        hub.save(run.prepare(tmp_path).pipeline(), model)
        if mask == "ancestors":
            with pytest.raises(RamifyError, match="reads its own decisions, and a reranker needs"):
                reranker(str(model), unseen=[f"{trained}={store.path}"])
        with pytest.raises(RamifyError, match=reason):
            candidate_pruner(str(model), str(store.path))


def test_pruner_is_fitted_before_a_reranker(store, trained, tmp_path):
    hub.save(reranker(str(trained), unseen=[f"{trained}={store.path}"], hidden=8), tmp_path / "twice")
    with pytest.raises(RamifyError, match=r"has a reranker.*Add the pruner first"):
        candidate_pruner(str(tmp_path / "twice"), str(store.path))


def test_dev_logs_without_links_in_the_window(store, tmp_path):
    """There is no dev loss to select weights by; links are still scored."""
    trees = list(store.trees(store.split("train")))
    for tree in store.trees(store.split("dev")):
        nodes = (replace(node, parents=(3,) if place == 90 else None, self_link=False) for place, node in enumerate(tree.nodes))
        trees.append(replace(tree, nodes=tuple(nodes)))
    far = built(trees, tmp_path / "far", split=(0.7, 0.3, 0.0))
    changes = {"train__steps": "4", "train__evaluate_every": "2"}
    with pytest.raises(RamifyError, match=r"dev\.by=loss needs known links within input\.window"):
        execute(small(far, dev__by="loss", **changes), tmp_path / "loss", cpu=True)
    execute(small(far, dev__by="link", **changes), tmp_path / "link", cpu=True)
    assert all("dev_loss" not in record for record in read_metrics(tmp_path / "link"))
