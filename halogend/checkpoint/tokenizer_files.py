"""What a Hugging Face directory says about text: which tokenizer file there is, special tokens, chat
template, end tokens, sampling defaults. Read and checked here without any tokenizer library.

The vocabulary itself is read by the text process. Every error is a CheckpointError that names the
file and the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halogend.checkpoint.errors import KEY_INVALID, TOKENIZER_INVALID, CheckpointError, shown
from halogend.checkpoint.files import check_readable, is_there, read_whole
from halogend.checkpoint.json_object import MAX_VOCABULARY_BYTES, read_json

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
    and `add_eos` are None where nothing is said. `embedding_rows` is config.json's vocab_size."""

    directory: Path
    vocabulary: Path
    special: Mapping[str, AddedToken]
    added: Mapping[int, AddedToken]
    extra: tuple[AddedToken, ...]
    add_bos: bool | None
    add_eos: bool | None
    end_ids: frozenset[int]
    embedding_rows: int | None
    template: str | None


def text_files(directory: str | Path) -> tuple[Path, ...]:
    """The files that decide about text, those that are there (a dangling symlink is). For a
    fingerprint. Raises CheckpointError when there is no tokenizer."""
    directory = Path(directory)
    settings = [directory / name for name in _SETTINGS if is_there(directory / name)]
    return (_vocabulary(directory), *settings)


def read_text_files(directory: str | Path) -> TextFiles:
    """Raises CheckpointError, for a vocabulary that cannot be read as well; what it holds is not looked at."""
    directory = Path(directory)
    vocabulary = _vocabulary(directory)
    check_readable(vocabulary, MAX_VOCABULARY_BYTES, TOKENIZER_INVALID)
    path = directory / _TOKENIZER
    settings = _optional(path)
    is_older = "added_tokens_decoder" not in settings  # these have tokens in files of their own
    if is_older:
        settings = {**settings, **_optional(directory / _SPECIAL_MAP)}
    special = {key: token for key in _NAMED if (token := _token(path, key, settings.get(key))) is not None}
    extra = _extra(path, settings)
    names = {token.content for token in (*special.values(), *extra)}
    return TextFiles(
        directory=directory,
        vocabulary=vocabulary,
        special=special,
        added=_older_added(directory / _ADDED, names) if is_older else _added(path, settings),
        extra=extra,
        add_bos=_stated(path, settings, "add_bos_token"),
        add_eos=_stated(path, settings, "add_eos_token"),
        end_ids=_end_ids(directory),
        embedding_rows=_embedding_rows(directory),
        template=own_template(directory),
    )


def own_template(directory: str | Path) -> str | None:
    """The directory's chat template, as Jinja source: chat_template.jinja, else `chat_template` of
    tokenizer_config.json (the one named `default` of a list), else chat_templates/default.jinja."""
    directory = Path(directory)
    if is_there(directory / _TEMPLATE):
        return _read_template(directory / _TEMPLATE)
    source = _configured_template(directory / _TOKENIZER)
    if source is None and is_there(directory / _MORE_TEMPLATES):
        return _read_template(directory / _MORE_TEMPLATES)
    return source


def invalid(path: Path, key: str, what: str) -> CheckpointError:
    """The error of a tokenizer's file: `what` ends the sentence."""
    return CheckpointError(TOKENIZER_INVALID, f"{path}: key {shown(key)} {what}")


# --- files ----------------------------------------------------------------------------------------


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if is_there(path) else {}


def _vocabulary(directory: Path) -> Path:
    for name in VOCABULARIES:
        if is_there(directory / name):
            return directory / name
    known = ", ".join(VOCABULARIES)
    raise CheckpointError(TOKENIZER_INVALID, f"{directory}: has no tokenizer; one of {known} is wanted")


def _read_template(path: Path) -> str:
    data = read_whole(path, _MAX_TEMPLATE_BYTES, TOKENIZER_INVALID)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(TOKENIZER_INVALID, f"{path}: is not UTF-8: {error.reason}") from error


def _configured_template(path: Path) -> str | None:
    value = _optional(path).get("chat_template")
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


def _older_added(path: Path, special: set[str]) -> dict[int, AddedToken]:
    added = {}
    for content, token in _optional(path).items():
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


def _end_ids(directory: Path) -> frozenset[int]:
    ends: set[int] = set()
    for name in (_GENERATION, _CONFIG):
        config = _optional(directory / name)
        nested = config.get("text_config")
        for prefix, part in (("", config), ("text_config.", nested if isinstance(nested, dict) else {})):
            ends |= _ids(directory / name, prefix + "eos_token_id", part.get("eos_token_id"))
    return frozenset(ends)


def _ids(path: Path, key: str, value: object) -> set[int]:
    ids = value if isinstance(value, list) else [] if value is None else [value]
    for token in ids:
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < _MAX_ID:
            raise CheckpointError(
                KEY_INVALID, f"{path}: key {key!r} is {shown(value)}; a token id, or a list of them, is wanted"
            )
    return set(ids)


def _embedding_rows(directory: Path) -> int | None:
    path = directory / _CONFIG
    config = _optional(path)
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
