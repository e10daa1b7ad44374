"""The `tokenizer.json` document and its companions: what is read from a model's folder.

Called by the tokenizer only. Everything here is plain data; the `tokenizers` package is not used.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ramet.runtime.chat_template import CHATML
from ramet.runtime.errors import InvalidArgument, UnsupportedFeature

Document = dict[str, Any]

_NAMES = tuple(f"{kind}_token" for kind in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
TINY_SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""The special tokens of `tiny`, ids 256, 257 and 258; ids below are the bytes themselves."""


@dataclasses.dataclass(frozen=True)
class TokenizerSource:
    """All that a tokenizer is made from, as plain data."""

    document: Document
    """The `tokenizer.json` document, as transformers would use it."""
    text: str
    """The same document as JSON text."""
    names: Mapping[str, str]
    """Named special tokens (`bos_token`, `eos_token`, …): the variables of a chat template."""
    added: tuple[Document, ...]
    """Added tokens (with the flags of `tokenizer.json`) that the document itself may lack."""
    end_ids: tuple[int, ...]
    """The ids that end a generation, of `generation_config.json`, else `config.json`; or none."""
    chat_template: str | None

    @classmethod
    def from_dir(cls, path: Path) -> TokenizerSource:
        """Read a Hugging Face model folder.

        Raises InvalidArgument when there is no folder or a file is malformed, UnsupportedFeature
        when it has no `tokenizer.json`.
        """
        if not path.is_dir():
            raise InvalidArgument(f"tokenizer path {str(path)!r}: is not a directory")
        file = path / "tokenizer.json"
        document = _read_json(file)
        if not document:
            raise UnsupportedFeature(
                f"{path}: has no tokenizer.json; a tokenizer.model alone is not supported "
                "(transformers' save_pretrained writes a tokenizer.json)"
            )
        model = _read_json(path / "config.json")
        settings = _read_json(path / "tokenizer_config.json")
        texts = {**_read_json(path / "special_tokens_map.json"), **settings}
        names = {name: text for name in _NAMES if (text := _content(texts.get(name)))}
        text = file.read_text(encoding="utf-8")
        if _built_as_llama(document, settings, model):
            document = _as_llama(document, settings)
            text = json.dumps(document)
        ends = _ids(_read_json(path / "generation_config.json").get("eos_token_id"))
        return cls(
            document=document,
            text=text,
            names=names,
            added=_added_tokens(settings, texts, names),
            end_ids=ends or _ids(model.get("eos_token_id")),
            chat_template=_chat_template(path, settings),
        )

    @classmethod
    def tiny(cls) -> TokenizerSource:
        """The byte tokenizer of `tiny`: 256 bytes, then `TINY_SPECIALS`, ChatML, no BOS."""
        spelling = byte_spelling()
        vocab = {spelling[byte]: byte for byte in range(256)}
        added = [
            {
                "id": 256 + index,
                "content": text,
                "special": True,
                **dict.fromkeys(_FLAGS[:4], False),
            }
            for index, text in enumerate(TINY_SPECIALS)
        ]
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
        document = {
            "version": "1.0",
            "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": {**byte_level, "use_regex": True},
            "post_processor": None,
            "decoder": {**byte_level, "use_regex": True},
            "model": {"type": "BPE", "vocab": vocab, "merges": []},
        }
        return cls(
            document=document,
            text=json.dumps(document),
            names={"eos_token": TINY_SPECIALS[2], "pad_token": TINY_SPECIALS[0]},
            added=(),
            end_ids=(258, 256),
            chat_template=CHATML,
        )


def byte_spelling() -> dict[int, str]:
    """GPT-2's spelling of each byte as one printable character (byte-level BPE)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(printable)]
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(256 + index) for index, byte in enumerate(hidden)
    }


def without_prefix_space(document: Document, *, only_first: bool = False) -> Document:
    """The document without its rules that put a space before a text (shallow copies).

    With `only_first`, rules that act on every stretch between special tokens stay, and those that
    act at the very beginning of a text go.
    """
    changed = dict(document)
    changed["pre_tokenizer"] = _rewritten(document.get("pre_tokenizer"), only_first)
    if not only_first:
        changed["normalizer"] = _rewritten(document.get("normalizer"), only_first)
    return changed


def _rewritten(rule: Document | None, only_first: bool) -> Document | None:
    if rule is None:
        return None
    kind = rule.get("type")
    for key in ("normalizers", "pretokenizers"):
        if kind == "Sequence" and key in rule:
            parts = (_rewritten(part, only_first) for part in rule[key])
            return {**rule, key: [part for part in parts if part is not None]}
    if kind == "Prepend":
        return None
    if kind == "Metaspace":
        scheme = rule.get("prepend_scheme", "always")
        if not only_first or scheme == "first":
            return {k: v for k, v in rule.items() if k != "add_prefix_space"} | {
                "prepend_scheme": "never"
            }
    if kind == "ByteLevel" and not only_first:
        return {**rule, "add_prefix_space": False}
    return rule


class TokenSpelling:
    """How a vocabulary spells bytes: from a token's text to the bytes it adds to a text.

    Understands byte-level vocabularies and sentencepiece's (`▁` for a space, `<0xNN>` for a byte).
    Raises UnsupportedFeature for a decoder that does anything else.
    """

    def __init__(self, document: Document) -> None:
        self.strips_first = ""
        """What a decoded text loses at its beginning: "", "one" space, or "all" of its first
        token's."""
        self._bytes: dict[str, int] = {}
        self._replacements: list[tuple[str, str]] = []
        self._byte_tokens = False
        decoder = document.get("decoder") or {"type": None}
        for step in decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]:
            self._read(step)

    def _read(self, step: Document) -> None:
        kind = step["type"]
        if kind == "ByteLevel":
            self._bytes = {spelling: byte for byte, spelling in byte_spelling().items()}
        elif kind == "ByteFallback":
            self._byte_tokens = True
        elif kind == "Replace" and "String" in step["pattern"]:
            self._replacements.append((step["pattern"]["String"], step["content"]))
        elif kind == "Metaspace":
            self._replacements.append((step.get("replacement", "▁"), " "))
            if step.get("prepend_scheme", "always") != "never":
                self.strips_first = "all"
        elif kind == "Strip" and step.get("content") == " " and not step.get("stop"):
            self.strips_first = "one" if step.get("start") else self.strips_first
        elif kind != "Fuse":
            raise UnsupportedFeature(
                f"tokenizer.json: the decoder {kind} is not supported; known are ByteLevel, "
                "Metaspace, Replace, ByteFallback, Fuse and Strip"
            )

    def bytes_of(self, token: str) -> bytes:
        """The bytes of one token as the vocabulary spells it."""
        if self._bytes:
            if all(character in self._bytes for character in token):
                return bytes(self._bytes[character] for character in token)
            return token.encode()
        if self._byte_tokens and re.fullmatch(r"<0x[0-9A-Fa-f]{2}>", token):
            return bytes([int(token[3:5], 16)])
        for pattern, content in self._replacements:
            token = token.replace(pattern, content)
        return token.encode()


def _read_json(path: Path) -> Document:
    if not path.is_file():
        return {}
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidArgument(f"{path}: is not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise InvalidArgument(f"{path}: must hold a JSON object")
    return document


def _content(token: object) -> str:
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""


def _ids(value: object) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, list) else (value,) if isinstance(value, int) else ()


def _added_tokens(
    settings: Document, texts: Document, names: Mapping[str, str]
) -> tuple[Document, ...]:
    listed = settings.get("added_tokens_decoder") or {}
    added = {
        token["content"]: token for _, token in sorted(listed.items(), key=lambda x: int(x[0]))
    }
    extra = texts.get("additional_special_tokens") or texts.get("extra_special_tokens") or []
    for text in [*names.values(), *map(_content, extra if isinstance(extra, list) else [])]:
        if text:
            added.setdefault(text, {"content": text, "special": True, "normalized": False})
    return tuple(
        {"content": text, **{flag: bool(token.get(flag)) for flag in _FLAGS}}
        for text, token in added.items()
    )


def _chat_template(path: Path, settings: Document) -> str | None:
    file = path / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {entry["name"]: entry["template"] for entry in template}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _built_as_llama(document: Document, settings: Document, model: Document) -> bool:
    """Whether transformers (from version 5) ignores the document's own text rules for this model.

    It does for the class LlamaTokenizer, which always is sentencepiece with `Metaspace`; not for
    byte-level documents, nor for Mistral models.
    """
    declared = str(settings.get("tokenizer_class") or "").removesuffix("Fast")
    rules = json.dumps([document.get("pre_tokenizer"), document.get("decoder")])
    return (
        declared == "LlamaTokenizer"
        and model.get("model_type") != "mistral"
        and document.get("model", {}).get("type") == "BPE"
        and '"ByteLevel"' not in rules
    )


def _as_llama(document: Document, settings: Document) -> Document:
    prefix = settings.get("add_prefix_space")
    scheme = "always" if settings.get("legacy", False) else "first"
    steps: list[Document] = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix is None or prefix:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    else:
        scheme = "never"
    return {
        **document,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Metaspace",
            "replacement": "▁",
            "prepend_scheme": scheme,
            "split": False,
        },
        "decoder": {"type": "Sequence", "decoders": steps},
    }
