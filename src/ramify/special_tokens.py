"""The special tokens of a checkpoint, as its own files state them.

Where files contradict each other, the one that transformers follows decides. Predicted texts begin and stop with the ids of
generation_config.json, or else of config.json. All other roles are those of special_tokens_map.json, which is not read if
tokenizer_config.json lists `added_tokens_decoder`; then those of tokenizer_config.json."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tokenizers import AddedToken
from tokenizers import Tokenizer as Engine

from ramify.errors import RamifyError
from ramify.files import read_json

Role = Literal["pad", "unk", "bos", "eos", "cls", "sep", "mask", "eop", "eod", "end", "begin", "stop"]

ROLES: dict[Role, tuple[str, ...]] = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "bos": ("<s>", "<|endoftext|>"),
    "eos": ("</s>", "<|endoftext|>"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
    "eop": ("[EOP]", "<eop>"),
    "eod": ("[EOD]", "<eod>"),
    "end": (),
    "begin": ("[CLS]", "<cls>", "<s>", "<|endoftext|>", "<pad>"),
    "stop": ("[SEP]", "<sep>", "</s>", "<|endoftext|>"),
}
"""Spellings of the special tokens where no file names them: BERT's, XLNet's, then RoBERTa's, whose `<s>` and `</s>` have two
roles each. eop and eod end a paragraph and a document of running text. The end mark of a row of AGENT is no piece of a
vocabulary. begin and stop stand before and behind a text that is predicted token by token; GPT-2 has one token for both, and
T5 begins with padding."""

STATED: dict[Role, tuple[str, ...]] = {
    **{role: (f"{role}_token", f"{role}_token_id") for role in ("pad", "unk", "bos", "eos", "cls", "sep", "mask")},
    "begin": ("decoder_start_token_id", "bos_token_id", "bos_token", "cls_token"),
    "stop": ("eos_token_id", "eos_token", "sep_token"),
}
"""The settings that state each role, the first of which decides."""

TOKENIZER_CONFIG, TOKENS_MAP, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
ID_FILES = ("generation_config.json", "config.json")

NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
LISTS = ("additional_special_tokens", "extra_special_tokens")
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True)
class Statement:
    """A setting of a file."""

    file: Path
    name: str
    value: Any

    def __str__(self) -> str:
        return f"{self.file}: {self.name}={self.value!r}"

    def ids(self, ids: Mapping[str, int], size: int) -> tuple[int, ...] | None:
        """The ids of the tokens that it names; None if one is not below `size`, which is that of the model if it is larger than
        the vocabulary."""
        values = self.value if isinstance(self.value, list) else [self.value]
        found = [ids.get(value) if isinstance(value, str) else value for value in values]
        valid = [number for number in found if type(number) is int and 0 <= number < size]
        return tuple(valid) if found and len(valid) == len(found) else None


@dataclass(frozen=True)
class SpecialTokens:
    """The statements of a checkpoint's files about special and added tokens."""

    settings: Mapping[str, Any]
    """The content of tokenizer_config.json."""
    statements: Mapping[str, Statement]
    """The settings in `STATED` that some file has, by their names."""
    special: Mapping[str, AddedToken]
    """Special tokens, with a role or without one, by their spelling."""
    added: tuple[tuple[AddedToken, Statement], ...]
    """The tokens behind a vocabulary, in the order of their ids, which are the values of the statements."""
    model_size: int
    """The number of ids of the model; 0 if no file states it."""

    @classmethod
    def read(cls, directory: Path) -> "SpecialTokens":
        """Read all files of a folder that name tokens. A folder without such files states nothing.

        Raises `RamifyError` for a damaged file.
        """
        content = {
            name: read_json(directory / name, "a tokenizer") if (directory / name).exists() else {}
            for name in (TOKENIZER_CONFIG, TOKENS_MAP, ADDED, *ID_FILES)
        }
        settings = content[TOKENIZER_CONFIG]
        decoder = settings.get("added_tokens_decoder")
        # The first file decides.
        files = [*ID_FILES, *([TOKENS_MAP] if decoder is None else []), TOKENIZER_CONFIG]
        statements: dict[str, Statement] = {}
        special: dict[str, AddedToken] = {}
        for file in files:
            for name in dict.fromkeys(name for names in STATED.values() for name in names if name in content[file]):
                value, is_id = content[file][name], name.endswith("_id")
                if value is not None and is_id == (file in ID_FILES):
                    statements.setdefault(name, Statement(directory / file, name, value if is_id else _spelling(value)))
            if file not in ID_FILES:
                special = {token.content: token for token in _named(content[file])} | special
        with _damaged(directory / (ADDED if decoder is None else TOKENIZER_CONFIG)) as file:
            if decoder is None:
                tokens = [(number, _token(piece, special=piece in special)) for piece, number in content[ADDED].items()]
            else:
                tokens = [(int(number), _token(token)) for number, token in decoder.items()]
            tokens.sort(key=lambda token: token[0])
            added = tuple((token, Statement(file, token.content, number)) for number, token in tokens)
        size = content["config.json"].get("vocab_size")
        return cls(settings, statements, special, added, size if isinstance(size, int) else 0)

    def spelling(self, role: Role, otherwise: str) -> str:
        """The spelling of a token that a file names, or another one."""
        statement = self.statements.get(f"{role}_token")
        return otherwise if statement is None else statement.value

    def roles(self, engine: Engine) -> tuple[dict[Role, tuple[int, ...]], dict[Role, str]]:
        """The ids of each role that a file states, and for each role whose token does not exist, the reason."""
        ids = engine.get_vocab(with_added_tokens=True)
        size = max(max(ids.values(), default=-1) + 1, self.model_size)
        stated: dict[Role, tuple[int, ...]] = {}
        lacking: dict[Role, str] = {}
        for role, names in STATED.items():
            if any(piece in ids for piece in ROLES[role]):
                # The usual spelling is the default of the tokenizer's class, which does not know the ids of a model.
                names = [name for name in names if name != f"{role}_token_id"]
            statement = next((self.statements[name] for name in names if name in self.statements), None)
            numbers = statement and statement.ids(ids, size)
            if numbers:
                stated[role] = numbers
            elif statement:
                lacking[role] = f"{statement} is not in the vocabulary, whose ids are 0 to {size - 1}. Correct this setting."
        return stated, lacking

    def add_to(self, engine: Engine) -> None:
        """Add the tokens behind the vocabulary, and make those special that a file names. Those that are no pieces are added
        while the model has ids for them.

        Raises `RamifyError` for an added token that has another id than stated.
        """
        known = {token.content for token in engine.get_added_tokens_decoder().values()}
        for token, statement in self.added:
            # tokenizer.json states the flags of its tokens, and added_tokens.json none.
            if token.content not in known or statement.file.name == TOKENIZER_CONFIG:
                engine.add_tokens([token])
            if (number := engine.token_to_id(token.content)) != statement.value:
                raise RamifyError(
                    f"{statement}, but the id of this token is {number}: its place in the vocabulary, or the next one behind "
                    "all pieces. Restore the files that were saved together."
                )
            known.add(token.content)
        for piece, token in self.special.items():
            if piece not in known and (engine.token_to_id(piece) is not None or engine.get_vocab_size() < self.model_size):
                engine.add_special_tokens([token])


def _spelling(value: Any) -> Any:
    return value.get("content") if isinstance(value, dict) else value


def _named(content: Mapping[str, Any]) -> Iterator[AddedToken]:
    """The special tokens that a file names, in the order of transformers: those with a role, and those of its lists."""
    values = [content.get(name) for name in NAMED] + [content[name] for name in content if name.endswith("_token")]
    for name in LISTS:
        listed = content.get(name) or []
        values += listed.values() if isinstance(listed, dict) else listed
    for value in values:
        if isinstance(_spelling(value), str):
            yield _token(value, special=True)


def _token(value: Any, **flags: bool) -> AddedToken:
    """A token that is stated by its spelling, or as an object with flags."""
    if isinstance(value, dict):
        flags = {name: bool(value[name]) for name in FLAGS if name in value} | flags
    return AddedToken(_spelling(value), **{"normalized": not flags.get("special", False)} | flags)


@contextmanager
def _damaged(file: Path) -> Iterator[Path]:
    try:
        yield file
    except (AttributeError, TypeError, ValueError):
        raise RamifyError(
            f"{file} does not give each added token a spelling and a whole number as its id. Download it again."
        ) from None
