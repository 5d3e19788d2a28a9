"""A decoder-only Transformer against transformers' GPT2LMHeadModel, both ways, on random weights; and refused checkpoints."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, pre_tokenizers, processors

import ramify
from fixtures import bare_rows
from ramify.batching.pair_batch import PairCollator
from ramify.batching.views.pairs import Pair
from ramify.errors import RamifyError
from ramify.hub import export_hugging_face
from ramify.inference.search import GREEDY, Beam, Limits, Sampling, beam_search, collect, sample
from ramify.models.base import Checkpoint
from ramify.models.hf import write
from ramify.models.transformer import ADAPTER, TransformerConfig
from ramify.nn.linear import linear
from ramify.tasks.base import Decodes
from ramify.tensors import load_strictly
from ramify.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers", reason="parity needs transformers: pip install 'ramify[hf]'")

END = 30
SIZES = {"vocab_size": 31, "n_embd": 24, "n_layer": 3, "n_head": 4, "n_positions": 40, "bos_token_id": END, "eos_token_id": END}
TEXTS = [[1], [2, 3, 4], [5, 6, 7, 8, 9, 10, 11], [12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]]


def saved(folder, **changes):
    """A random transformers model with well-spread weights, in a directory."""
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**SIZES | changes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)
    return model.double()


def loaded(folder):
    """Our model of a directory, and the output map."""
    checkpoint = Checkpoint(str(folder), folder, None)
    portable = ADAPTER.read(checkpoint, ADAPTER.read_config(folder))
    model = portable.config.build().eval()
    load_strictly(model.state_dict(), portable.backbone, folder)
    output = portable.backbone["embedding.weight"] if portable.task["tie_weights"] else portable.heads["head.weight"]
    assert not portable.heads["head.bias"].any()
    return model.double(), output.double(), portable


class Words(Decodes):
    """The scores of a bare output map."""

    def __init__(self, model, output):
        self.model, self.output = model, output

    def start(self, prompts, *, source=None):
        states, cache = self.model.read_prompts(prompts, source)
        return linear(states, self.output), cache

    def step(self, ids, cache):
        states, cache = self.model.read_tokens(ids, cache)
        return linear(states, self.output), cache


@torch.no_grad()
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"n_inner": 40, "activation_function": "relu", "tie_word_embeddings": False},
        *({"activation_function": name} for name in ("gelu_pytorch_tanh", "gelu", "gelu_fast", "silu", "tanh")),
        {"activation_function": "gelu_accurate", "reorder_and_upcast_attn": True},
    ],
)
def test_scores_are_those_of_transformers(tmp_path, changes):
    theirs, (model, output, portable) = saved(tmp_path / "theirs", **changes), loaded(tmp_path / "theirs")
    assert portable.task == {"tie_weights": "tie_word_embeddings" not in changes, "output_bias": False}
    files = ADAPTER.write(portable)
    write(tmp_path / "ours", files.config, files.tensors)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours").double().eval()
    batch = PairCollator(END, END)([Pair(torch.tensor(text).numpy()) for text in TEXTS])
    scores = linear(model(batch), output).split(batch.target.rows.host_lengths.tolist())
    for ids, rows in zip(batch.target.ids.split(batch.target.rows.host_lengths.tolist()), scores, strict=True):
        for other in (theirs, again):
            torch.testing.assert_close(rows, other(ids[None]).logits[0], rtol=0, atol=1e-10)


@torch.no_grad()
def test_texts_are_continued_as_by_transformers(tmp_path):
    """Greedily, each in a batch of unequal prompts; and the likeliest of four beams has their score."""
    theirs, (model, output, _) = saved(tmp_path), loaded(tmp_path)
    prompts, words = bare_rows(TEXTS), Words(model, output)
    steps = sample(words, prompts, GREEDY, Limits((END,)), maximums=[20] * 4, seeds=[0] * 4)
    beams = beam_search(words, prompts, Beam(4, length_penalty=0.0), Limits((END,)), maximums=[20] * 4)
    settings = {"do_sample": False, "max_new_tokens": 20, "pad_token_id": END}
    for text, tokens, hypotheses in zip(TEXTS, collect(steps, 4), beams, strict=True):
        ids = torch.tensor([text])
        expected = theirs.generate(ids, attention_mask=torch.ones_like(ids), **settings)[0, len(text) :].tolist()
        assert tokens == [token for token in expected if token != END]
        best = theirs.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            num_beams=4,
            length_penalty=0.0,
            early_stopping="never",
            output_scores=True,
            return_dict_in_generate=True,
            **settings,
        )
        found = best.sequences[0, len(text) :].tolist()
        assert [*hypotheses[0].ids, *[END] * hypotheses[0].stopped] == found[: len(hypotheses[0].ids) + hypotheses[0].stopped]
        assert hypotheses[0].score == pytest.approx(float(best.sequences_scores[0]), abs=1e-5)


@torch.no_grad()
@pytest.mark.parametrize(
    ("sampling", "settings"),
    [
        (Sampling(), {}),
        (Sampling(temperature=3.0), {"temperature": 3.0}),
        (Sampling(temperature=2.0, top_k=5), {"temperature": 2.0, "top_k": 5}),
        (Sampling(temperature=2.0, top_p=0.8), {"temperature": 2.0, "top_p": 0.8}),
    ],
)
def test_tokens_are_drawn_from_the_distribution_of_transformers(tmp_path, sampling, settings):
    theirs, (model, output, _) = saved(tmp_path), loaded(tmp_path)
    draws = 20_000
    for text in TEXTS:
        scores, _ = Words(model, output).start(bare_rows([text]))
        tokens = sampling.choose(scores.expand(draws, -1), torch.arange(draws), 0)
        shares = tokens.bincount(minlength=END + 1).double() / draws
        ids = torch.tensor([text])
        answer = theirs.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            max_new_tokens=1,
            pad_token_id=END,
            return_dict_in_generate=True,
            output_scores=True,
            **{"top_k": 0} | settings,
        )
        expected = answer.scores[0][0].double().softmax(0)
        assert (shares[expected == 0] == 0).all()
        assert ((shares - expected).abs() <= 5 * (expected * (1 - expected) / draws).sqrt()).all()


@torch.no_grad()
@pytest.mark.parametrize("tied", [True, False])
def test_exported_models_are_read_by_transformers(tmp_path, tied):
    saved(tmp_path / "theirs", tie_word_embeddings=tied)
    model, output, portable = loaded(tmp_path / "theirs")
    files = ADAPTER.write(portable)
    write(tmp_path / "ours", files.config, files.tensors)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours").double().eval()
    ids = torch.tensor([[END, *TEXTS[2]]])
    batch = PairCollator(END, END)([Pair(ids[0, 1:].numpy())])
    torch.testing.assert_close(linear(model(batch), output), theirs(ids).logits[0], rtol=0, atol=1e-10)
    other = replace(portable, config=replace(portable.config, norm="post", scale_embedding=True))
    with pytest.raises(
        RamifyError, match=r"model\.norm=post and model\.scale_embedding=true has no Hugging Face form.*norm=pre"
    ):
        ADAPTER.write(other)
    with pytest.raises(RamifyError, match=r"task\.output_bias=true adds a bias to the output map, but that of gpt2 has none"):
        ADAPTER.write(replace(portable, task=portable.task | {"output_bias": True}))


def test_published_files_without_a_prefix_and_with_masks(tmp_path):
    """OpenAI's own have names without a prefix, and the causal mask of every layer."""
    saved(tmp_path)
    expected = loaded(tmp_path)[0].state_dict()
    tensors = {name.removeprefix("transformer."): tensor for name, tensor in load_file(tmp_path / "model.safetensors").items()}
    tensors |= {f"h.{number}.attn.bias": torch.ones(1, 1, 40, 40).tril() for number in range(3)}
    save_file(tensors, tmp_path / "model.safetensors")
    model = loaded(tmp_path)[0]
    assert all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())
    # A model starts from such a checkpoint, too.
    checkpoint = Checkpoint("gpt2", tmp_path, None)
    config = TransformerConfig(dropout=0.3).adapted_to(checkpoint)
    assert (config.dropout, config.decoder_layers, config.norm) == (0.3, 3, "pre")
    started = config.build()
    config.initialize(started, checkpoint)
    assert all(torch.equal(tensor.double(), expected[name]) for name, tensor in started.state_dict().items())
    with pytest.raises(RamifyError, match=r"gpt2 needs model\.norm = 'pre'"):
        replace(config, norm="post").initialize(started, checkpoint)


def test_refused_checkpoints(tmp_path):
    saved(tmp_path)
    tensors, settings = load_file(tmp_path / "model.safetensors"), json.loads((tmp_path / "config.json").read_text())
    gone, added = "transformer.h.1.ln_2.weight", "transformer.h.7.ln_2.weight"
    save_file(
        {name: tensor for name, tensor in tensors.items() if name != gone} | {added: tensors[gone]},
        tmp_path / "model.safetensors",
    )
    with pytest.raises(
        RamifyError, match=r"holds no tensor 'h\.1\.ln_2\.weight' and also holds 'transformer\.h\.7\.ln_2\.weight'"
    ):
        loaded(tmp_path)
    for changes, message in (
        ({"scale_attn_by_inverse_layer_idx": True}, "divides the scores of each layer by its number"),
        ({"n_embd": None}, r"n_embd must be whole numbers"),
        ({"model_type": "gptj"}, "model_type='gptj' is not one of gpt2, t5"),
        ({"activation_function": "mish"}, "activation_function='mish' is not one of gelu"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(settings | changes))
        with pytest.raises(RamifyError, match=message):
            ADAPTER.read_config(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(settings | {"tie_word_embeddings": False}))
    with pytest.raises(RamifyError, match=r"tie_word_embeddings=false needs the tensor 'lm_head\.weight'"):
        loaded(tmp_path)


def byte_level():
    """A tokenizer of GPT-2's form: bytes, and one special token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())[:END]
    engine = Engine(models.BPE({piece: number for number, piece in enumerate(alphabet)}, []))
    engine.pre_tokenizer, engine.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    engine.add_special_tokens(["<|endoftext|>"])
    return Tokenizer(engine)


@torch.no_grad()
def test_published_form_is_loaded_and_generates(tmp_path):
    """`ramify.load` and `generate`: the text behind the prompt, and on request behind <|endoftext|> and the prompt."""
    theirs, tokenizer = saved(tmp_path), byte_level()
    tokenizer.save(tmp_path)
    model = ramify.load(tmp_path)
    model.module.double()
    prompts = ["", "01", "+,-./"]
    texts = {}
    for begin in (None, False, True):
        answers = model.generate(prompts, tokens=12, temperature=0, begin=begin)
        texts[begin] = [answer.text for answer in answers]
        for prompt, answer in zip(prompts, answers, strict=True):
            ids = torch.tensor([[*[END] * (begin or not prompt), *tokenizer.encode(prompt)]])
            settings = {"do_sample": False, "max_new_tokens": 12, "pad_token_id": END}
            expected = theirs.generate(ids, attention_mask=torch.ones_like(ids), **settings)[0, ids.shape[1] :].tolist()
            assert answer.text == tokenizer.decode([token for token in expected if token != END])
    assert texts[None] == texts[False] != texts[True]
    # The last token of 40 is not read.
    assert model.generate("01", tokens=39, seed=2, stop=None).tokens <= 39
    with pytest.raises(RamifyError, match="tokens=39 behind a prompt of 2 tokens"):
        model.generate("01", tokens=39, begin=True)
    assert model.embed(prompts).shape == (3, 24)
    # A score needs a token before the first one. Without it, it is the loss of transformers.
    ids = torch.tensor([[END, *tokenizer.encode("01+,")]])
    shares = theirs(ids).logits.log_softmax(2)[0, :-1].gather(1, ids[0, 1:, None]).sum()
    assert model.score("01+,").log_likelihood == pytest.approx(shares.item(), abs=1e-5)
    alone = model.score("01+,", begin=False)
    assert -alone.log_likelihood / 3 == pytest.approx(theirs(ids[:, 1:], labels=ids[:, 1:]).loss.item(), abs=1e-6)
    assert (alone.tokens, alone.bytes) == (3, 3)
    with pytest.raises(RamifyError, match="begin=False leaves nothing to score of the text '0', which has one token"):
        model.score("0", begin=False)
    assert [table.queries for table in model.attention("01+,").attention] == [("0", "1", "+", ",")]
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [END, 3]}))
    stopping, kept = ramify.load(tmp_path), tmp_path / "kept"
    assert stopping.ends == (END, 3)
    ramify.save(stopping, kept)
    assert (ramify.load(kept).ends, ramify.load(kept).begins) == ((END, 3), False)
    ramify.save(model, tmp_path / "ours")
    assert ramify.load(tmp_path / "ours").generate("01", tokens=9, seed=1) == model.generate("01", tokens=9, seed=1)
    export_hugging_face(model, tmp_path / "exported")
    settings = json.loads((tmp_path / "exported" / "config.json").read_text())
    assert (settings["bos_token_id"], settings["eos_token_id"]) == (END, END)
    back = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "exported", dtype=torch.float64).eval()
    ids = torch.tensor([[END, 3, 4, 5]])
    torch.testing.assert_close(back(ids).logits, theirs(ids).logits, rtol=0, atol=1e-10)


MARK = ("<|endoftext|>", END)
BEFORE = processors.TemplateProcessing(single="<|endoftext|> $A", pair="<|endoftext|> $A $B", special_tokens=[MARK])


@pytest.mark.parametrize(
    ("file", "processor", "adds", "begins"),
    [
        ("tokenizer.json", BEFORE, False, True),
        ("tokenizer.json", None, True, False),
        ("vocab.json", None, True, True),
        ("vocab.json", None, False, False),
    ],
)
@torch.no_grad()
def test_a_tokenizer_that_begins_texts_is_followed(tmp_path, file, processor, adds, begins):
    """The files of the tokenizer say whether <|endoftext|> stands before a text, for vectors, prompts and exports."""
    theirs = saved(tmp_path)
    engine = byte_level().engine
    if processor is not None:
        engine.post_processor = processor
    names = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "add_bos_token": adds}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer", **names}))
    (tmp_path / file).write_text(engine.to_str() if file == "tokenizer.json" else json.dumps(engine.get_vocab()))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    ids = transformers.AutoTokenizer.from_pretrained(tmp_path)("01+", return_tensors="pt")["input_ids"]
    assert (ids[0, 0] == END) == begins

    model = ramify.load(tmp_path)
    model.module.double()
    vector = theirs.transformer(ids).last_hidden_state[:, -1]
    torch.testing.assert_close(torch.from_numpy(model.embed(["01+"])).double(), vector, rtol=0, atol=1e-5)
    greedy = {"do_sample": False, "max_new_tokens": 8, "pad_token_id": END}
    expected = theirs.generate(ids, attention_mask=torch.ones_like(ids), **greedy)[0, ids.shape[1] :].tolist()
    found = model.generate("01+", tokens=8, temperature=0).text
    assert found == model.tokenizer.decode([token for token in expected if token != END])
    for form in ("ramify", "hugging-face"):
        ramify.save(model, tmp_path / form, form=form)
        again = ramify.load(tmp_path / form)
        torch.testing.assert_close(again.embed(["01+"]), model.embed(["01+"]), rtol=0, atol=1e-6)
    exported = transformers.AutoTokenizer.from_pretrained(tmp_path / "hugging-face")
    assert exported("01+")["input_ids"] == ids[0].tolist()


def test_a_tokenizer_that_ends_texts_is_refused(tmp_path):
    saved(tmp_path)
    engine = byte_level().engine
    engine.post_processor = processors.TemplateProcessing(single="$A <|endoftext|>", special_tokens=[MARK])
    (tmp_path / "tokenizer.json").write_text(engine.to_str())
    with pytest.raises(RamifyError, match=r"puts nothing before a text and <\|endoftext\|> behind it, but such a model reads"):
        ramify.load(tmp_path)


def test_a_token_that_the_vocabulary_lacks_is_not_put_around_texts(tmp_path):
    (tmp_path / "vocab.json").write_text(json.dumps(byte_level().engine.get_vocab()))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    names = {"bos_token": "<|endoftext|>", "eos_token": "<end>", "add_bos_token": True, "add_eos_token": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(names))
    assert Tokenizer.load(tmp_path).around == ((END,), ())
