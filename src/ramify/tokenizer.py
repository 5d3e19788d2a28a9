"""Text to token ids: a thin wrapper over `tokenizers`, which trains, loads and saves tokenizer.json."""

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from string import punctuation
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Engine

from ramify.errors import RamifyError, counted, percent
from ramify.files import STANDARD, StandardInput, read_json, write_text
from ramify.progress import Advance, activity, counted_by
from ramify.special_tokens import FLAGS, ROLES, Role, SpecialTokens

Kind = Literal["wordpiece", "bpe", "unigram", "word"]
TextLayout = Literal["bert", "roberta", "xlnet", "t5", "begin", "plain"]
Layout = TextLayout | Literal["agent"]
"""The name of a row layout in `LAYOUTS`. The end mark of AGENT's rows is no piece, so other models cannot read it."""

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MARKS = ("[EOP]", "[EOD]")
"""The ends of paragraphs and documents, for models of running text."""


def sentinel_piece(number: int) -> str:
    """The spelling of a sentinel, which stands for a span of a text (T5)."""
    return f"<extra_id_{number}>"


CONTINUES, SPACE, BYTE_SPACE = "##", "▁", "Ġ"
"""The beginnings of pieces that mark words: WordPiece's inside a word; Unigram's and byte-level BPE's after a space."""

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""The text of a character whose bytes are not complete."""

BYTE = re.compile("<0x[0-9A-F]{2}>")
"""The spelling of a piece that stands for one byte. Each changes the text of those right before it."""

SETTLED = 8
"""The number of tokens with which the text of further ones is decoded: more than a character has bytes."""

TOKENIZER, ROLES_FILE = "tokenizer.json", "special_tokens.json"
"""The file of a tokenizer, and that of the roles of its special tokens, which is written if other spellings have them."""

ALPHABET = 1000
"""Maximum number of letters in a trained WordPiece vocabulary."""

SHARED_ROLES: tuple[Role, ...] = ("pad", "unk", "bos", "eos", "cls", "sep", "mask")
"""The roles that other libraries know."""


@dataclass(frozen=True)
class LayoutRoles:
    """The roles of the special tokens around one or two texts, and the types of all tokens."""

    before: tuple[Role, ...]
    between: tuple[Role, ...]
    after: tuple[Role, ...]
    types: tuple[int, int] | None = None
    """The type of the first text and of the special tokens up to the second, and that of the second text and of the special
    tokens after it. None: the model has no types."""
    end_type: int | None = None
    """The type of a CLS at the end of the row; None: that of the text before it."""

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles of all special tokens."""
        return tuple(dict.fromkeys((*self.before, *self.between, *self.after)))


LAYOUTS: dict[Layout, LayoutRoles] = {
    "bert": LayoutRoles(("cls",), ("sep",), ("sep",), (0, 1)),
    "roberta": LayoutRoles(("cls",), ("sep", "sep"), ("sep",)),
    "xlnet": LayoutRoles((), ("sep",), ("sep", "cls"), (0, 1), end_type=2),
    "t5": LayoutRoles((), ("stop",), ("stop",)),
    "agent": LayoutRoles((), (), ("end",)),
    "begin": LayoutRoles(("begin",), (), ()),
    "plain": LayoutRoles((), (), ()),
}
"""The special tokens of a row, as each family of models reads them: CLS a SEP b SEP (bert), CLS a SEP SEP b SEP (roberta),
a SEP b SEP CLS (xlnet), a SEP b SEP (t5), a END (agent), BEGIN a b (begin), and the texts alone (plain)."""


@dataclass(frozen=True)
class Frame:
    """The number of special tokens around a text in its row."""

    before: int
    after: int

    @property
    def num_special(self) -> int:
        return self.before + self.after


@dataclass(frozen=True)
class RowLayout:
    """The special tokens around one or two texts in a row, and the types of all tokens."""

    before: tuple[int, ...]
    between: tuple[int, ...] | None
    """None: the tokenizer lacks a token that separates two texts."""
    after: tuple[int, ...]
    types: tuple[int, int] | None
    """See `LayoutRoles`."""
    end_type: int | None

    @property
    def frame(self) -> Frame:
        return Frame(len(self.before), len(self.after))

    @property
    def num_special(self) -> int:
        """The number of special tokens around a single text."""
        return self.frame.num_special

    @property
    def separator(self) -> tuple[int, ...]:
        """The special tokens between two texts. Raises `RamifyError` if the tokenizer cannot separate them."""
        if self.between is None:
            raise RamifyError(
                f"the tokenizer has no sep token ({' or '.join(ROLES['sep'])}), which is needed for rows of several texts. Use "
                "a tokenizer that has one, such as those that `ramify tokenizer train` makes."
            )
        return self.between

    def wrap(self, ids: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of one text."""
        return _joined(self.before, ids, self.after)

    def wrap_pair(self, one: Sequence[int] | NDArray[np.int64], other: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of two texts. Raises `RamifyError` if the tokenizer cannot separate them."""
        return _joined(self.before, one, self.separator, other, self.after)

    def types_of(self, one: int, other: int | None = None) -> NDArray[np.int64]:
        """The types of the tokens of a row whose texts have these lengths; zeros if the layout has no types.

        `other` is None for a row of one text.
        """
        between = 0 if other is None else len(self.between or ())
        first, second = len(self.before) + one + between, 0 if other is None else other
        sizes = (first, second + len(self.after)) if other is not None else (first + len(self.after), 0)
        types = np.repeat(self.types or (0, 0), sizes)
        if self.end_type is not None:
            types[-1] = self.end_type
        return types

    def wrap_batch(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of many texts, one after the other. `ids` holds the texts one after the other, and `lengths` their
        lengths."""
        sizes = lengths + self.num_special
        ends = np.cumsum(sizes)
        starts = ends - sizes
        rows = np.empty(int(sizes.sum()), dtype=np.int64)
        for place, token_id in enumerate(self.before):
            rows[starts + place] = token_id
        for place, token_id in enumerate(self.after):
            rows[ends - len(self.after) + place] = token_id
        inside = np.repeat(starts + len(self.before) - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
        rows[inside] = ids
        return rows


@dataclass(frozen=True)
class UnknownTokens:
    """The number of tokens of some text that stand for what the tokenizer cannot spell. Most models cannot tell them apart."""

    count: int
    tokens: int
    """The number of all tokens."""
    characters_read: bool = False
    """Whether the model reads their characters. It predicts them all as the same token."""

    def __bool__(self) -> bool:
        return self.count > 0

    def notes(self, source: str) -> tuple[str, ...]:
        """A note for people, if there are any. `source` names the text."""
        if not self:
            return ()
        share = percent(self.count / self.tokens)
        effect = "Unknown tokens look alike to the model."
        if self.characters_read:
            effect = "The model predicts all unknown tokens as the same token, although it reads their characters."
        tokens = f"{self.count:,} of {counted(self.tokens, 'token')} of {source} ({share})"
        return (f"{tokens} {'is' if self.count == 1 else 'are'} unknown to the tokenizer. {effect}",)


def _tried(engine: Engine) -> Engine:
    """An engine that has encoded a text. Raises what the engine does if its file lacks the pieces for unknown letters."""
    engine.encode("a 1 \u2603")
    return engine


def _engine_of(file: Path) -> Engine:
    try:
        return _tried(Engine.from_file(str(file)))
    except Exception as error:  # tokenizers raises bare Exception for a malformed file
        raise RamifyError(f"{file} is not a tokenizer.json that `tokenizers` can read: {error}") from None


def _wordpiece(directory: Path, stated: SpecialTokens) -> Engine:
    """BERT's tokenizer, from vocab.txt."""
    words = (directory / "vocab.txt").read_text("utf-8").rstrip("\n").split("\n")
    vocabulary = {word: index for index, word in enumerate(words)}
    engine = Engine(models.WordPiece(vocabulary, unk_token=stated.spelling("unk", "[UNK]")))
    normalizer = normalizers.BertNormalizer(
        lowercase=bool(stated.settings.get("do_lower_case", True)),
        strip_accents=stated.settings.get("strip_accents"),
        handle_chinese_chars=bool(stated.settings.get("tokenize_chinese_chars", True)),
    )
    return _bert_pipeline(engine, normalizer)


def _byte_level(directory: Path, stated: SpecialTokens) -> Engine:
    """The tokenizer of GPT-2 and RoBERTa, from vocab.json and merges.txt."""
    files = str(directory / "vocab.json"), str(directory / "merges.txt")
    try:
        engine = Engine(models.BPE.from_file(*files))
    except Exception as error:  # tokenizers raises bare Exception for a malformed file
        raise RamifyError(f"{' and '.join(files)} are not a vocabulary that `tokenizers` can read: {error}") from None
    prefixed = bool(stated.settings.get("add_prefix_space", False))
    engine.pre_tokenizer, engine.decoder = pre_tokenizers.ByteLevel(add_prefix_space=prefixed), decoders.ByteLevel()
    ends: tuple[Role, Role] = ("bos", "eos")
    pieces = [stated.spelling(role, "<|endoftext|>") if stated.settings.get(f"add_{role}_token") else "" for role in ends]
    bos, eos = ([] if (number := engine.token_to_id(piece)) is None else [(piece, number)] for piece in pieces)
    if bos or eos:
        single = [*(piece for piece, _ in bos), "$A", *(piece for piece, _ in eos)]
        engine.post_processor = processors.TemplateProcessing(single=single, special_tokens=[*bos, *eos])
    return engine


def _make_special(engine: Engine) -> None:
    """Make the pieces of a bare vocabulary special that are spelled like special tokens. Added tokens keep their flags."""
    known = {token.content for token in engine.get_added_tokens_decoder().values()}
    pieces = dict.fromkeys(piece for spellings in ROLES.values() for piece in spellings if piece not in known)
    engine.add_special_tokens([piece for piece in pieces if engine.token_to_id(piece) is not None])


VOCABULARIES: dict[str, Callable[[Path, SpecialTokens], Engine]] = {"vocab.txt": _wordpiece, "vocab.json": _byte_level}
"""The files of vocabularies without a tokenizer.json, and how an engine is made of each."""


def _expected(directory: Path) -> str:
    """The files of a tokenizer, for the message about a path without them."""
    if (model := next(directory.glob("*.model"), None)) is not None:
        return (
            f"{TOKENIZER} beside {model.name}. Write one with transformers and sentencepiece: "
            f"AutoTokenizer.from_pretrained({str(directory)!r}).save_pretrained({str(directory)!r})."
        )
    return f"{TOKENIZER} file, or a directory with one, with vocab.txt, or with vocab.json and merges.txt."


def _spelled(engine: Engine, role: Role) -> list[int]:
    """The token that has the first spelling of a role; none if the vocabulary has none of them."""
    ids = (engine.token_to_id(token) for token in ROLES[role])
    return [token_id for token_id in ids if token_id is not None][:1]


def _saved_roles(file: Path) -> dict[Role, tuple[int, ...]]:
    roles = read_json(file, "a tokenizer")
    if not all(role in ROLES and isinstance(ids, list) and all(type(id) is int for id in ids) for role, ids in roles.items()):
        raise RamifyError(f"{file} does not give roles lists of ids, so it is damaged. Restore it.")
    return {role: tuple(roles[role]) for role in ROLES if role in roles}


class Tokenizer:
    """Text to token ids and back.

    `encode` gives the ids of a text alone. `wrap` adds CLS before and SEP after them, if the tokenizer has these tokens. Text
    that spells a special token stays text.
    """

    def __init__(
        self,
        engine: Engine,
        source: str | Path = "",
        *,
        roles: Mapping[Role, Sequence[int]] | None = None,
        lacking: Mapping[Role, str] | None = None,
    ) -> None:
        """`source` is the file that messages name. `roles` are the ids of roles that differ from those of `ROLES`; those that
        are not given belong to the first of these spellings. `lacking` is the reason why a role has no token."""
        engine.no_padding()
        engine.no_truncation()
        self.source = str(source)
        self._lacking = dict(lacking or {})
        self.roles = {role: tuple(ids) for role, ids in (roles or {}).items() if [*ids] != _spelled(engine, role)}
        self.special_ids = sorted(number for number, token in engine.get_added_tokens_decoder().items() if token.special)
        """The ids of all special tokens."""
        self.engine = engine
        # Nothing but their spelling in a text can ask for special tokens without a role.
        held = {number for role in ROLES for number in self.role_ids(role)} | {*self.sentinels}
        self._markers = [number for number in self.special_ids if number not in held]
        self.engine = self._flagged(self._markers, special=False) if self._markers else engine
        self.engine.encode_special_tokens = True

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Load from a tokenizer.json, from a directory that holds one, BERT's vocab.txt, or the vocab.json and merges.txt of
        GPT-2 and RoBERTa, or from standard input (`-`).

        The files beside it state added tokens and the roles of special tokens (`SpecialTokens`).
        """
        path = Path(path)
        if path == STANDARD:
            return cls._from_standard_input()
        directory, file = (path, path / TOKENIZER) if path.is_dir() else (path.parent, path)
        if path.is_dir() and not file.exists():
            file = next((path / name for name in VOCABULARIES if (path / name).exists()), file)
        if not file.exists():
            raise RamifyError(f"{path} holds no tokenizer: expected a {_expected(path)}")
        saved = directory / ROLES_FILE
        if file.name not in (TOKENIZER, *VOCABULARIES):
            return cls(_engine_of(file), file)
        if saved.exists():
            return cls(_engine_of(file), file, roles=_saved_roles(saved))
        stated = SpecialTokens.read(directory)
        engine = VOCABULARIES[file.name](directory, stated) if file.name in VOCABULARIES else _engine_of(file)
        stated.add_to(engine)
        if file.name in VOCABULARIES:
            _make_special(engine)
        roles, lacking = stated.roles(engine)
        return cls(engine, file, roles=roles, lacking=lacking)

    @classmethod
    def _from_standard_input(cls) -> "Tokenizer":
        content = StandardInput().readall()
        try:
            return cls(_tried(Engine.from_str(content.decode())), STANDARD)
        except Exception as error:  # tokenizers raises bare Exception for malformed text
            raise RamifyError(f"standard input is not a tokenizer.json that `tokenizers` can read: {error}") from None

    @staticmethod
    def lies_in(directory: Path) -> bool:
        """Whether the directory holds a tokenizer that `load` can read."""
        return any((directory / name).exists() for name in (TOKENIZER, *VOCABULARIES))

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        *,
        kind: Kind = "wordpiece",
        vocab_size: int = 16_384,
        lowercase: bool = True,
        marks: bool = False,
        sentinels: int = 0,
    ) -> "Tokenizer":
        """Train on texts: WordPiece as in BERT, byte-level BPE as in RoBERTa, or Unigram as in XLNet. The kind `word` has the
        most frequent words, most frequent first; all others are unknown.

        `marks` adds tokens for the ends of paragraphs and documents, and `sentinels` is the number of T5's. Equal texts give
        equal tokenizers, except for Unigram, whose trainer adds up scores in the order of its threads.
        """
        special = (*SPECIAL, *(MARKS if marks else ()), *map(sentinel_piece, range(sentinels)))
        read = list(texts)
        # BPE and words need the texts once. The others count letters first.
        with activity("training the tokenizer", len(read) * (1 if kind in ("bpe", "word") else 2)) as advance:
            trained = cls._train(read, kind, vocab_size, lowercase, special, advance)
        if trained.vocab_size > vocab_size:
            raise _too_few(kind, vocab_size, trained.vocab_size)
        return trained

    @classmethod
    def _train(
        cls,
        texts: list[str],
        kind: Kind,
        vocab_size: int,
        lowercase: bool,
        special: Sequence[str],
        advance: Advance,
    ) -> "Tokenizer":
        if kind == "wordpiece":
            return cls._train_wordpiece(texts, vocab_size, lowercase, special, advance)
        if kind == "bpe":
            engine = Engine(models.BPE())
            engine.normalizer = normalizers.Lowercase() if lowercase else None
            engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
            engine.decoder = decoders.ByteLevel()
            trainer = trainers.BpeTrainer(
                vocab_size=vocab_size,
                special_tokens=_in_texts(special),
                initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                show_progress=False,
            )
        elif kind == "unigram":
            engine = Engine(models.Unigram())
            steps = [normalizers.NFKC(), *([normalizers.Lowercase()] if lowercase else [])]
            engine.normalizer = normalizers.Sequence(steps)
            # If the letters do not fit, the library's trainer fails without a number or exceeds the size.
            normal = map(engine.normalizer.normalize_str, counted_by(advance, texts))
            letters = {letter for text in normal for letter in text} - {" "} | {"▁"}
            if vocab_size <= len(special) + len(letters):
                raise _too_few(kind, vocab_size, len(special) + len(letters) + 1)
            engine.pre_tokenizer = pre_tokenizers.Metaspace()
            engine.decoder = decoders.Metaspace()
            trainer = trainers.UnigramTrainer(
                vocab_size=vocab_size, special_tokens=_in_texts(special), unk_token="[UNK]", show_progress=False
            )
        elif kind == "word":
            engine = _bert_pipeline(
                Engine(models.WordLevel(unk_token="[UNK]")), normalizers.BertNormalizer(lowercase=lowercase)
            )
            trainer = trainers.WordLevelTrainer(vocab_size=vocab_size, special_tokens=list(special), show_progress=False)
        else:
            raise RamifyError(f"kind must be 'wordpiece', 'bpe', 'unigram' or 'word', but is {kind!r}.")
        engine.train_from_iterator(counted_by(advance, texts), trainer)
        return cls(_as_saved(_framed(engine)))

    @classmethod
    def _train_wordpiece(
        cls,
        texts: list[str],
        vocab_size: int,
        lowercase: bool,
        special: Sequence[str],
        advance: Advance,
    ) -> "Tokenizer":
        """Train WordPiece repeatably.

        The library numbers the continuing letters (##a) in the order of a randomly seeded hash table, and these numbers decide
        ties between merges. It also leaves out random ones among the rarest letters. Naming the letters beforehand, and
        removing all others from the texts, makes training repeatable.
        """
        engine = _bert_pipeline(Engine(models.WordPiece(unk_token="[UNK]")), normalizers.BertNormalizer(lowercase=lowercase))
        counts: Counter[str] = Counter()
        for text in counted_by(advance, texts):
            counts.update(engine.normalizer.normalize_str(text))
        letters = sorted(counts, key=lambda letter: (-counts[letter], letter))[:ALPHABET]
        if len(counts) > ALPHABET:
            texts = list(_without(counts.keys() - set(letters), map(engine.normalizer.normalize_str, texts)))
        continuing = [f"##{letter}" for letter in sorted(letters) if not letter.isspace()]
        trainer = trainers.WordPieceTrainer(
            vocab_size=vocab_size,
            special_tokens=[*special, *continuing],
            limit_alphabet=ALPHABET,
            show_progress=False,
        )
        engine.train_from_iterator(counted_by(advance, texts), trainer)
        # The letters were declared special only to fix their numbers. They are ordinary pieces of the final tokenizer.
        final = Engine(models.WordPiece(engine.get_vocab(with_added_tokens=True), unk_token="[UNK]"))
        final.add_special_tokens(list(special))
        return cls(_bert_pipeline(final, engine.normalizer))

    def save(self, path: str | Path) -> None:
        """Write the tokenizer to a file, or as tokenizer.json into a directory.

        Roles that its spellings do not show are written beside tokenizer.json. Raises `RamifyError` for such a tokenizer and a
        file of another name.
        """
        path = Path(path)
        path = path / TOKENIZER if path.is_dir() else path
        if self.roles and path.name != TOKENIZER:
            raise RamifyError(
                f"{path.name} cannot hold the roles of special tokens, which {self.source or 'the tokenizer'} has from other "
                "files. Save to a directory."
            )
        write_text(path, self.json)
        if self.roles:
            write_text(path.parent / ROLES_FILE, json.dumps(self.roles, indent=2) + "\n")
        elif path.name == TOKENIZER:
            (path.parent / ROLES_FILE).unlink(missing_ok=True)

    def export(self, directory: Path, layout: Layout, settings: Mapping[str, Any]) -> None:
        """Write tokenizer.json and tokenizer_config.json for `AutoTokenizer` of transformers, which lays out rows by `layout`.

        `settings` are added to tokenizer_config.json.
        """
        engine, rows = Engine.from_str(self.json), self.layout(layout)
        engine.post_processor = self.template(rows)
        names = ["input_ids", *(["token_type_ids"] if rows.types else []), "attention_mask"]
        tokens = {f"{role}_token": self.token(token_id) for role, token_id in self.shared_ids.items() if token_id is not None}
        # Its class reads tokenizer.json as it stands. That of the model would put its own normalization in place of this one.
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": names, **tokens, **settings}
        write_text(directory / "tokenizer.json", engine.to_str())
        write_text(directory / "tokenizer_config.json", json.dumps(config, indent=2) + "\n")

    @property
    def shared_ids(self) -> dict[Role, int | None]:
        """The special tokens that other libraries know; None for those that the tokenizer lacks."""
        return {role: self.role_id(role) for role in SHARED_ROLES}

    @cached_property
    def json(self) -> str:
        engine = self._flagged(self._markers, special=True) if self._markers else self.engine
        return engine.to_str(pretty=False)

    @cached_property
    def hash(self) -> str:
        roles = repr(sorted(self.roles.items())) if self.roles else ""
        return hashlib.sha256((self.json + roles).encode()).hexdigest()[:16]

    @cached_property
    def text_hash(self) -> str:
        """A hash of all that decides the ids of a text, without the special tokens that other programs add around it."""
        settings = {name: value for name, value in json.loads(self.json).items() if name != "post_processor"}
        return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]

    @cached_property
    def pieces_hash(self) -> str:
        """A hash of all pieces and their ids, however the library writes the file."""
        return hashlib.sha256(repr(sorted(self.ids.items())).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @cached_property
    def vocab_size(self) -> int:
        """One more than the largest id. Some smaller ids may have no piece."""
        return max(self.ids.values(), default=-1) + 1

    def role_id(self, role: Role) -> int | None:
        """The token of a role; None if the vocabulary lacks one."""
        return next(iter(self.role_ids(role)), None)

    def role_ids(self, role: Role) -> tuple[int, ...]:
        """The tokens of a role, the first of which is written. Several tokens may stop a text."""
        if role in self._lacking:
            return ()
        return self.roles[role] if role in self.roles else tuple(_spelled(self.engine, role))

    @cached_property
    def cls_id(self) -> int:
        return self._id("cls", "rows that begin with it")

    @cached_property
    def sep_id(self) -> int:
        return self._id("sep", "rows of several texts")

    @cached_property
    def begin_id(self) -> int:
        return self._id("begin", "texts that are predicted")

    @cached_property
    def stop_id(self) -> int:
        return self._id("stop", "texts that are predicted")

    @cached_property
    def mask_id(self) -> int:
        return self._id("mask", "masked texts")

    @cached_property
    def unk_id(self) -> int | None:
        """The token of text that the vocabulary cannot spell."""
        return self.role_id("unk")

    @cached_property
    def eop_id(self) -> int | None:
        return self.role_id("eop")

    @cached_property
    def eod_id(self) -> int | None:
        return self.role_id("eod")

    @cached_property
    def sentinels(self) -> list[int]:
        """The tokens that stand for spans of a text, in order."""
        pieces = takewhile(self.ids.__contains__, map(sentinel_piece, range(self.vocab_size)))
        return [self.ids[piece] for piece in pieces]

    def require(self, roles: Sequence[Role], what: str) -> None:
        """Raise if the tokenizer lacks a special token that `what` needs."""
        for role in roles:
            self._id(role, what)

    def _id(self, role: Role, what: str) -> int:
        token_id = self.role_id(role)
        if role in self._lacking:
            raise RamifyError(f"the {role} token is needed for {what}, but {self._lacking[role]}")
        if token_id is None:
            raise RamifyError(
                f"the tokenizer{self.source and f' {self.source}'} has no {role} token ({' or '.join(ROLES[role])}), which is "
                f"needed for {what}. Use a tokenizer that has one, such as those that `ramify tokenizer train` makes."
            )
        return token_id

    # --- special tokens around texts ----------------------------------------------------------------------------------------

    def layout(self, name: Layout, vocab_size: int | None = None) -> RowLayout:
        """The special tokens of a row layout. Those that the tokenizer lacks are left out at the ends of rows.

        `vocab_size` is the number of pieces of the model, which precede AGENT's end mark. None: that of the tokenizer.
        """
        roles = LAYOUTS[name]
        end_id = self.vocab_size if vocab_size is None else vocab_size

        def ids(wanted: Sequence[Role]) -> tuple[int, ...]:
            named = (end_id if role == "end" else self.role_id(role) for role in wanted)
            return tuple(token_id for token_id in named if token_id is not None)

        between, after = ids(roles.between), ids(roles.after)
        ends = len(after) == len(roles.after)
        return RowLayout(
            ids(roles.before),
            between if len(between) == len(roles.between) else None,
            after,
            roles.types,
            roles.end_type if ends else None,
        )

    @cached_property
    def around(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The special tokens that the tokenizer's own file puts before and behind a text, for models without a layout."""
        encoding = self.engine.encode("a 1")
        inside = [place for place, text in enumerate(encoding.sequence_ids) if text is not None] or [len(encoding)]
        return tuple(encoding.ids[: inside[0]]), tuple(encoding.ids[inside[-1] + 1 :])

    def template(self, layout: RowLayout) -> processors.TemplateProcessing:
        """The layout as the post-processor of a tokenizer.json, by which other programs add special tokens.

        Raises `RamifyError` for a layout of pairs that the tokenizer cannot separate, or with a mark that is no piece.
        """
        one, other = layout.types or (0, 0)
        end = one if layout.end_type is None else layout.end_type
        if marks := [id for id in (*layout.before, *layout.after) if id >= self.vocab_size]:
            raise RamifyError(
                f"the row layout holds the mark {marks[0]}, which is no piece of the tokenizer, so tokenizer.json cannot hold "
                "the layout. Choose another layout."
            )

        def named(ids: Sequence[int], type_id: int) -> list[str]:
            return [f"{self.token(id)}:{type_id}" for id in ids]

        def ending(type_id: int) -> list[str]:
            after = named(layout.after, type_id)
            return after if layout.end_type is None else [*after[:-1], *named(layout.after[-1:], end)]

        before = named(layout.before, one)
        pair = [*before, f"$A:{one}", *named(layout.separator, one), f"$B:{other}", *ending(other)]
        special = dict.fromkeys((*layout.before, *layout.separator, *layout.after))
        return processors.TemplateProcessing(
            single=[*before, f"$A:{one}", *ending(one)], pair=pair, special_tokens=[(self.token(id), id) for id in special]
        )

    def unknown(self, ids: Sequence[int] | NDArray[np.integer]) -> UnknownTokens:
        """Count the tokens that the tokenizer cannot spell. One without a token for them spells all text."""
        count = 0 if self.unk_id is None else int(np.count_nonzero(np.asarray(ids) == self.unk_id))
        return UnknownTokens(count, len(ids))

    def encode(self, text: str, *, masks: bool = False) -> list[int]:
        """Ids of one text. With `masks`, the mask token's spelling in the text becomes the mask token."""
        engine = self._mask_engine if masks and self.token(self.mask_id) in text else self.engine
        return engine.encode(text, add_special_tokens=False).ids

    def spaced_masks(self, text: str) -> list[bool]:
        """Whether each mask of a text stands for a word with the space before it."""
        encoding = self._mask_engine.encode(text, add_special_tokens=False)
        places = (place for place, number in zip(encoding.offsets, encoding.ids, strict=True) if number == self.mask_id)
        return [text[start:end][:1].isspace() for start, end in places]

    def encode_sentinels(self, text: str) -> list[int]:
        """Ids of one text, in which the spellings of sentinels become sentinels."""
        marked = any(self.token(sentinel) in text for sentinel in self.sentinels)
        engine = self._sentinel_engine if marked else self.engine
        return engine.encode(text, add_special_tokens=False).ids

    @cached_property
    def _mask_engine(self) -> Engine:
        return self._flagged([self.mask_id], special=False)

    @cached_property
    def _sentinel_engine(self) -> Engine:
        return self._flagged(self.sentinels, special=False)

    def _flagged(self, tokens: Sequence[int], *, special: bool) -> Engine:
        """A copy of the engine, for which some tokens are special or not. It finds those that are not in a text, and the spaces
        that each takes along."""
        settings = json.loads(self.engine.to_str())
        added = {token["id"]: token for token in settings["added_tokens"]}
        for number in tokens:
            plain = {"id": number, "content": self.token(number), **dict.fromkeys(FLAGS, False)}
            added[number] = added.get(number, plain) | {"special": special}
        settings["added_tokens"] = [added[number] for number in sorted(added)]
        engine = Engine.from_str(json.dumps(settings))
        engine.encode_special_tokens = True
        return engine

    @cached_property
    def pieces(self) -> list[str]:
        """The spelling of every id in the vocabulary; empty for an id without a piece."""
        pieces = [""] * self.vocab_size
        for piece, token_id in self.ids.items():
            pieces[token_id] = piece
        return pieces

    @cached_property
    def word_starts(self) -> NDArray[np.bool_]:
        """Whether each piece begins a word: WordPiece without ##; Unigram and byte-level BPE with their sign of a space.

        Special tokens are words, and so is punctuation. Raises for a tokenizer that marks no words.
        """
        mark = self._word_mark
        if mark == CONTINUES:
            begins = [not piece.startswith(CONTINUES) for piece in self.pieces]
        else:
            alone = set(punctuation)
            begins = [not mark or piece.startswith((mark, "<")) or piece in alone for piece in self.pieces]
        starts = np.array(begins, dtype=bool)
        starts[self.special_ids] = True
        return starts

    @cached_property
    def whole_words(self) -> dict[str, int]:
        """The ids of the pieces that begin a word, by their texts without its mark. Special tokens are left out."""
        mark = self._word_mark
        words: dict[str, int] = {}
        for number in np.flatnonzero(self.word_starts).tolist():
            text = self.pieces[number].removeprefix(mark if mark != CONTINUES else "")
            # A byte-level piece spells bytes.
            text = self.decode([number]).strip() if mark == BYTE_SPACE else text
            if text and number not in self.special_ids:
                words.setdefault(text, number)
        return words

    @cached_property
    def piece_bytes(self) -> NDArray[np.int64]:
        """Number of UTF-8 bytes of each piece's text. A sign of a space counts as one byte; special tokens have none."""
        mark = self._word_mark
        if mark == CONTINUES:
            sizes = [len(piece.removeprefix(CONTINUES).encode()) for piece in self.pieces]
        elif mark == BYTE_SPACE:
            # In byte-level BPE, each letter stands for one byte.
            sizes = [len(piece) for piece in self.pieces]
        else:
            sizes = [len((piece.replace(mark, " ") if mark else piece).encode()) for piece in self.pieces]
        piece_bytes = np.array(sizes, dtype=np.int64)
        piece_bytes[self.special_ids] = 0
        return piece_bytes

    @cached_property
    def _word_mark(self) -> str:
        """The sign that marks the pieces inside words (`CONTINUES`) or those that begin one; empty if every piece is a word."""
        model = self.engine.model
        if isinstance(model, models.WordPiece):
            return CONTINUES
        if isinstance(model, models.WordLevel):
            return ""
        for mark in (BYTE_SPACE, SPACE):
            if any(piece.startswith(mark) for piece in self.pieces):
                return mark
        raise RamifyError(
            f"the tokenizer{self.source and f' {self.source}'} does not mark where words begin ({CONTINUES}, {SPACE} or "
            f"{BYTE_SPACE}), so words cannot be told from their pieces. Use a tokenizer of the kind wordpiece, unigram or bpe."
        )

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of every piece by its spelling in the vocabulary."""
        return self.engine.get_vocab(with_added_tokens=True)

    def encode_batch(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ids of all texts, one after the other, and the length of each text."""
        encodings = self.engine.encode_batch_fast(list(texts), add_special_tokens=False)
        lists = [encoding.ids for encoding in encodings]
        lengths = np.fromiter((len(ids) for ids in lists), dtype=np.int64, count=len(lists))
        flat = np.fromiter((token for ids in lists for token in ids), dtype=np.int64, count=int(lengths.sum()))
        return flat, lengths

    def encode_offsets(
        self, texts: Sequence[str]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """As `encode_batch`, and where each token begins and ends in its text, in characters.

        `text[starts[i] : ends[j]]` is the text of the tokens i to j. It begins and ends without white space, and with all
        marks that combine with its last letter. A token of white space alone is empty there. Tokens for the bytes of one
        letter have the same place.
        """
        encodings = self.engine.encode_batch(list(texts), add_special_tokens=False)
        blanks = {self.ids[piece] for piece in (SPACE, BYTE_SPACE) if piece in self.ids}
        places: list[tuple[int, int]] = []
        for text, encoding in zip(texts, encodings, strict=True):
            limits = (start for start, _ in (*encoding.offsets[1:], (len(text), len(text))))
            for token_id, (start, end), limit in zip(encoding.ids, encoding.offsets, limits, strict=False):
                # The library places a space that it adds before a text on the first letter.
                places.append((start, start) if token_id in blanks else _letters(text, start, end, limit))
        lengths = np.array([len(encoding.ids) for encoding in encodings], dtype=np.int64)
        flat = np.array([token for encoding in encodings for token in encoding.ids], dtype=np.int64)
        starts, ends = np.array(places, dtype=np.int64).reshape(-1, 2).T
        return flat, lengths, starts, ends

    def encode_open(self, texts: Sequence[str], words: dict[str, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """As `encode_batch`, but a word that the vocabulary lacks has its number in `words`, behind the vocabulary. Words are
        added as they come."""
        encodings = self.engine.encode_batch(list(texts), add_special_tokens=False)
        lengths = np.array([len(encoding.ids) for encoding in encodings], dtype=np.int64)
        flat: list[int] = []
        for text, encoding in zip(texts, encodings, strict=True):
            for token_id, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True):
                if token_id == self.unk_id:
                    word = text[start:stop]
                    if self.engine.normalizer is not None:
                        word = self.engine.normalizer.normalize_str(word)
                    token_id = words.setdefault(word, self.vocab_size + len(words))
                flat.append(token_id)
        return np.array(flat, dtype=np.int64), lengths

    def decode(self, ids: Sequence[int]) -> str:
        return self.engine.decode(list(ids), skip_special_tokens=False)

    def token(self, token_id: int) -> str:
        """The spelling of an id in the vocabulary."""
        token = self.engine.id_to_token(token_id)
        return token if token is not None else f"[{token_id}]"

    def shown(self, token_id: int) -> str:
        """The spelling of an id for people. Of a byte-level BPE, letters stand for the bytes, and `SPACE` for a space; a piece
        that holds a part of a character keeps its spelling in the vocabulary."""
        piece = self.token(token_id)
        text = self.decode([token_id]) if self._spells_bytes else UNFINISHED
        return piece if UNFINISHED in text else text.replace(" ", SPACE)

    @cached_property
    def _spells_bytes(self) -> bool:
        """Whether the letters of pieces stand for bytes."""
        return isinstance(self.engine.model, models.BPE) and any(piece.startswith(BYTE_SPACE) for piece in self.pieces)


class IncrementalDecoder:
    """Decodes tokens as they come, each in constant time. The parts are, together, the text that `decode` gives them."""

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()) -> None:
        """`before` are the tokens before the first. Their text is not given out."""
        self._tokenizer = tokenizer
        self._ids = [*before]
        """The last tokens."""
        self._given = len(tokenizer.decode(self._ids))
        """The number of letters of their text that are given out, or that are before the first token."""

    def add(self, token_id: int) -> str:
        """The text that the next token completes. Tokens for single bytes wait for the next token of another kind."""
        self._ids.append(token_id)
        if BYTE.fullmatch(self._tokenizer.token(token_id)):
            return ""
        text = self._tokenizer.decode(self._ids)
        complete = len(text) - text.endswith(UNFINISHED)
        part = text[self._given : complete]
        self._given = max(self._given, complete)
        if len(self._ids) > 2 * SETTLED:
            waiting = len(text) - self._given
            self._ids = self._ids[-SETTLED:]
            self._given = len(self._tokenizer.decode(self._ids)) - waiting
        return part

    def rest(self) -> str:
        """The text of a character that remains incomplete after the last token."""
        return self._tokenizer.decode(self._ids)[self._given :]


def _letters(text: str, start: int, end: int, limit: int) -> tuple[int, int]:
    """The place of a token without white space around it, and with the marks after it that its normalization dropped. The
    next token begins at `limit`."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    while start < end < limit and unicodedata.category(text[end]).startswith("M"):
        end += 1
    return start, end


def _joined(*parts: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])


def _in_texts(special: Iterable[str]) -> list[AddedToken]:
    """Special tokens. A mask and a sentinel stand for words, and the piece of a word holds the space before it."""
    return [AddedToken(piece, special=True, lstrip=piece not in (*SPECIAL[:-1], *MARKS)) for piece in special]


def _too_few(kind: Kind, vocab_size: int, least: int) -> RamifyError:
    return RamifyError(
        f"a vocabulary of {counted(vocab_size, 'piece')} is too small: special tokens and single letters of these texts take "
        f"{least:,} in a {kind} tokenizer. Set vocab_size to at least this number (--vocab-size; in a run, --set "
        "tokenizer.vocab_size=N)."
    )


def _without(letters: Collection[str], texts: Iterable[str]) -> Iterator[str]:
    """The texts without these letters. A letter that separates words for BERT's pre-tokenizer becomes a space."""
    parts = {
        letter
        for letter in letters
        if letter.isspace() or letter in punctuation or unicodedata.category(letter).startswith("P")
    }
    table = {ord(letter): " " if letter in parts else "" for letter in letters}
    return (text.translate(table) for text in texts)


def _bert_pipeline(engine: Engine, normalizer: normalizers.BertNormalizer) -> Engine:
    engine.normalizer = normalizer
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece()
    framed = all(engine.token_to_id(token) is not None for token in ("[CLS]", "[SEP]"))
    return _framed(engine) if framed else engine


def _framed(engine: Engine) -> Engine:
    """Add [CLS] and [SEP] for other programs that load the tokenizer.json. Ramify adds them in its batches instead."""
    sep_id, cls_id = engine.token_to_id("[SEP]"), engine.token_to_id("[CLS]")
    assert sep_id is not None
    assert cls_id is not None
    engine.post_processor = processors.BertProcessing(("[SEP]", sep_id), ("[CLS]", cls_id))
    return engine


def _as_saved(engine: Engine) -> Engine:
    """The tokenizer that saving and loading returns, because the library's JSON rounds Unigram's scores."""
    text = engine.to_str()
    while (again := Engine.from_str(text)).to_str() != text:
        text = again.to_str()
    return again


def reservoir_sample(texts: Iterable[str], bytes_held: int, seed: int = 0) -> Iterator[str]:
    """A uniform sample of the texts in bounded memory (algorithm R), in their original order.

    The reservoir's size follows from the mean length of the first texts, so that about `bytes_held` are kept.
    """
    random = np.random.Generator(np.random.Philox(key=seed))
    held: list[tuple[int, str]] = []
    size: int | None = None
    weight = 0
    for number, text in enumerate(texts):
        if size is None:
            held.append((number, text))
            weight += len(text.encode())
            if weight >= bytes_held:
                size = len(held)
        elif (place := int(random.integers(number + 1))) < size:
            held[place] = (number, text)
    yield from (text for _, text in sorted(held))
