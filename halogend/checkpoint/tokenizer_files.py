"""What a Hugging Face directory says about text: which tokenizer file there is, special tokens, chat
template, end tokens, sampling defaults. Read and checked here without any tokenizer library. The files may
lie inside a v2 checkpoint as well: `where` is a directory's path or any other TextSource.

The vocabulary itself is read by the text process. Every error is a CheckpointError that names the
file and the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halogend.checkpoint.errors import KEY_INVALID, TOKENIZER_INVALID, CheckpointError, shown
from halogend.checkpoint.files import is_there
from halogend.checkpoint.json_object import MAX_VOCABULARY_BYTES
from halogend.checkpoint.text_sources import TextSource, read_object, source_of

VOCABULARIES = ("tokenizer.json", "tekken.json", "tokenizer.model")  # in the order of preference
_CONFIG, _GENERATION, _TOKENIZER = "config.json", "generation_config.json", "tokenizer_config.json"
_SPECIAL_MAP, _ADDED, _TEMPLATE = "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"
_MORE_TEMPLATES = "chat_templates/default.jinja"
_SETTINGS = (_TOKENIZER, _GENERATION, _SPECIAL_MAP, _ADDED, _TEMPLATE, _MORE_TEMPLATES)
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_EXTRA = ("additional_special_tokens", "extra_special_tokens")
_MAX_TEMPLATE_BYTES = 1 << 20
_MAX_ID = 1 << 31
_ID_DIGITS = 10  # of the largest


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token that is looked for in texts before anything else. `flags` are lstrip, rstrip,
    normalized, single_word and special, those that the file states."""

    content: str
    flags: Mapping[str, bool]


@dataclass(frozen=True, slots=True)
class TextFiles:
    """`special` are the named special tokens (`bos_token`, ...) that the directory states; `added` maps
    ids to tokens beside those of the vocabulary's file; `extra` are further special tokens. `add_bos`
    and `add_eos` are None where nothing is said. `embedding_rows` is config.json's vocab_size.
    `vocabulary` is the path of its file, and `directory` where the others are, as messages name them."""

    source: TextSource
    vocabulary: Path
    special: Mapping[str, AddedToken]
    added: Mapping[int, AddedToken]
    extra: tuple[AddedToken, ...]
    add_bos: bool | None
    add_eos: bool | None
    end_ids: frozenset[int]
    embedding_rows: int | None
    template: str | None

    @property
    def directory(self) -> Path:
        return self.source.place

    def read_vocabulary(self, most: int, code: str = KEY_INVALID) -> bytes:
        """The vocabulary's file. Raises CheckpointError, with `code` for one that is larger than `most` bytes."""
        return self.source.read(self.vocabulary.name, most, code)


def text_files(directory: str | Path) -> tuple[Path, ...]:
    """The files that decide about text, those that are there (a dangling symlink is). For a
    fingerprint. Raises CheckpointError when there is no tokenizer."""
    directory = Path(directory)
    settings = [directory / name for name in _SETTINGS if is_there(directory / name)]
    return (directory / _vocabulary(source_of(directory)), *settings)


def read_text_files(where: TextSource | Path | str) -> TextFiles:
    """Raises CheckpointError, for a vocabulary that cannot be read as well; what it holds is not looked at."""
    source = source_of(where)
    vocabulary = _vocabulary(source)
    source.check(vocabulary, MAX_VOCABULARY_BYTES, TOKENIZER_INVALID)
    path = source.place / _TOKENIZER
    settings = _optional(source, _TOKENIZER)
    is_older = "added_tokens_decoder" not in settings  # these have tokens in files of their own
    if is_older:
        settings = {**settings, **_optional(source, _SPECIAL_MAP)}
    special = {key: token for key in _NAMED if (token := _token(path, key, settings.get(key))) is not None}
    extra = _extra(path, settings)
    names = {token.content for token in (*special.values(), *extra)}
    return TextFiles(
        source=source,
        vocabulary=source.place / vocabulary,
        special=special,
        added=_older_added(source, names) if is_older else _added(path, settings),
        extra=extra,
        add_bos=_stated(path, settings, "add_bos_token"),
        add_eos=_stated(path, settings, "add_eos_token"),
        end_ids=_end_ids(source),
        embedding_rows=_embedding_rows(source),
        template=own_template(source),
    )


def own_template(where: TextSource | Path | str) -> str | None:
    """The chat template, as Jinja source: chat_template.jinja, else `chat_template` of
    tokenizer_config.json (the one named `default` of a list), else chat_templates/default.jinja."""
    source = source_of(where)
    if source.has(_TEMPLATE):
        return _read_template(source, _TEMPLATE)
    template = _configured_template(source)
    if template is None and source.has(_MORE_TEMPLATES):
        return _read_template(source, _MORE_TEMPLATES)
    return template


def invalid(path: Path, key: str, what: str) -> CheckpointError:
    """The error of a tokenizer's file: `what` ends the sentence."""
    return CheckpointError(TOKENIZER_INVALID, f"{path}: key {shown(key)} {what}")


# --- files ----------------------------------------------------------------------------------------


def _optional(source: TextSource, name: str) -> dict[str, Any]:
    return read_object(source, name) if source.has(name) else {}


def _vocabulary(source: TextSource) -> str:
    """The name of its file."""
    for name in VOCABULARIES:
        if source.has(name):
            return name
    known = ", ".join(VOCABULARIES)
    raise CheckpointError(TOKENIZER_INVALID, f"{source.place}: has no tokenizer; one of {known} is wanted")


def _read_template(source: TextSource, name: str) -> str:
    data = source.read(name, _MAX_TEMPLATE_BYTES, TOKENIZER_INVALID)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(TOKENIZER_INVALID, f"{source.place / name}: is not UTF-8: {error.reason}") from error


def _configured_template(source: TextSource) -> str | None:
    path, value = source.place / _TOKENIZER, _optional(source, _TOKENIZER).get("chat_template")
    if isinstance(value, list):
        named = [each for each in value if isinstance(each, dict) and each.get("name") == "default"]
        value = named[-1].get("template") if named else None
    if value is None:
        return None
    if not isinstance(value, str):
        raise invalid(path, "chat_template", f"is {shown(value)}; a string, or a list of named ones, is wanted")
    return value


# --- tokens ---------------------------------------------------------------------------------------


def _token(path: Path, key: str, value: object) -> AddedToken | None:
    """A special token is a string, or an object with its content and flags."""
    if value is None:
        return None
    if isinstance(value, str):
        return AddedToken(value, {"special": True})
    if isinstance(value, dict) and isinstance(value.get("content"), str):
        return AddedToken(value["content"], _flags(path, key, value) | {"special": True})
    raise invalid(path, key, f"is {shown(value)}; a token's text, or an object with its content, is wanted")


def _flags(path: Path, key: str, value: Mapping[str, Any]) -> dict[str, bool]:
    flags = {}
    for name in ("lstrip", "rstrip", "normalized", "single_word", "special"):
        if name in value:
            if not isinstance(value[name], bool):
                raise invalid(path, f"{key}.{name}", f"is {shown(value[name])}; true or false is wanted")
            flags[name] = value[name]
    return flags


def _added(path: Path, settings: Mapping[str, Any]) -> dict[int, AddedToken]:
    key = "added_tokens_decoder"
    listed = settings[key]
    if not isinstance(listed, dict):
        raise invalid(path, key, f"is {shown(listed)}; an object of ids is wanted")
    added = {}
    for text, value in listed.items():
        if not (text.isascii() and text.isdigit() and len(text) <= _ID_DIGITS and int(text) < _MAX_ID):
            raise invalid(path, f"{key}.{text}", "is no token id")
        if not isinstance(value, dict) or not isinstance(value.get("content"), str):
            raise invalid(path, f"{key}.{text}", f"is {shown(value)}; an object with the token's content is wanted")
        added[int(text)] = AddedToken(value["content"], _flags(path, f"{key}.{text}", value))
    return added


def _older_added(source: TextSource, special: set[str]) -> dict[int, AddedToken]:
    path, added = source.place / _ADDED, {}
    for content, token in _optional(source, _ADDED).items():
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < _MAX_ID:
            raise invalid(path, content, f"is {shown(token)}; a token id is wanted")
        is_special = content in special
        added[token] = AddedToken(content, {"special": is_special, "normalized": not is_special})
    return added


def _extra(path: Path, settings: Mapping[str, Any]) -> tuple[AddedToken, ...]:
    tokens = []
    for key in _EXTRA:
        values = settings.get(key) or []
        if isinstance(values, dict):
            values = list(values.values())
        if not isinstance(values, list):
            raise invalid(path, key, f"is {shown(values)}; a list of tokens is wanted")
        tokens += [token for value in values if (token := _token(path, key, value)) is not None]
    return tuple(tokens)


def _end_ids(source: TextSource) -> frozenset[int]:
    ends: set[int] = set()
    for name in (_GENERATION, _CONFIG):
        config = _optional(source, name)
        nested = config.get("text_config")
        for prefix, part in (("", config), ("text_config.", nested if isinstance(nested, dict) else {})):
            ends |= _ids(source.place / name, prefix + "eos_token_id", part.get("eos_token_id"))
    return frozenset(ends)


def _ids(path: Path, key: str, value: object) -> set[int]:
    ids = value if isinstance(value, list) else [] if value is None else [value]
    for token in ids:
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < _MAX_ID:
            raise CheckpointError(
                KEY_INVALID, f"{path}: key {key!r} is {shown(value)}; a token id, or a list of them, is wanted"
            )
    return set(ids)


def _embedding_rows(source: TextSource) -> int | None:
    path, config = source.place / _CONFIG, _optional(source, _CONFIG)
    nested = config.get("text_config")
    value = config.get("vocab_size", nested.get("vocab_size") if isinstance(nested, dict) else None)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise CheckpointError(KEY_INVALID, f"{path}: key 'vocab_size' is {shown(value)}; a whole number is wanted")
    return value


# --- values ---------------------------------------------------------------------------------------


def _flag(path: Path, settings: Mapping[str, Any], key: str) -> bool | None:
    value = settings.get(key)
    if value is not None and not isinstance(value, bool):
        raise invalid(path, key, f"is {shown(value)}; true or false is wanted")
    return value


def _stated(path: Path, settings: Mapping[str, Any], key: str) -> bool | None:
    """None where the key is absent; null is false."""
    return bool(_flag(path, settings, key)) if key in settings else None
