"""A GGUF file's tokenizer metadata as the files of a Hugging Face tokenizer.

Called by `gguf_convert`. Pure data in, pure data out. Two kinds of vocabulary are known: byte-level
BPE ("gpt2") and sentencepiece BPE ("llama"), whose merges follow from its scores.
"""

from __future__ import annotations

from typing import Any

from ramet.runtime.errors import InvalidArgument, UnsupportedFeature

Metadata = dict[str, Any]

_CONTROL, _USER_DEFINED, _UNKNOWN = 3, 4, 2  # GGUF's token types
_GPT2: list[Metadata] = [
    {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
]
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _REST
_QWEN2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _REST


def _split(pattern: str) -> list[Metadata]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    return [{**split, "invert": False}, {**_GPT2[0], "use_regex": False}]


_PRE_TOKENIZERS: dict[str, list[Metadata]] = {
    "default": _GPT2,
    "gpt-2": _GPT2,
    "smollm": [{"type": "Digits", "individual_digits": True}, *_GPT2],
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3"), _split(_LLAMA3)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), _split(_QWEN2)),
}
"""`tokenizer.ggml.pre` to the steps that cut a text before merging."""


def tokenizer_files(metadata: Metadata) -> dict[str, Metadata]:
    """`tokenizer.json` and `tokenizer_config.json` for a GGUF file's metadata.

    Raises UnsupportedFeature naming a kind that is not known, InvalidArgument when there is none.
    """
    kind = metadata.get("tokenizer.ggml.model")
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not kind or not tokens:
        raise InvalidArgument("the GGUF file has no tokenizer (tokenizer.ggml.model and .tokens)")
    if kind not in ("gpt2", "llama"):
        raise UnsupportedFeature(
            f"tokenizer.ggml.model={kind!r} in the GGUF file: known are 'gpt2' (byte-level BPE) "
            "and 'llama' (sentencepiece)"
        )
    names = _named_tokens(metadata, tokens)
    document = _byte_level(metadata) if kind == "gpt2" else _sentencepiece(metadata, names)
    document |= {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(metadata),
        "post_processor": _post_processor(metadata, names, tokens),
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **names,
    }
    if template := metadata.get("tokenizer.chat_template"):
        settings["chat_template"] = template
    return {"tokenizer.json": document, "tokenizer_config.json": settings}


def end_ids(metadata: Metadata) -> list[int]:
    """The ids that end a generation: of text, of turn and of message."""
    keys = (f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))
    return list(dict.fromkeys(int(metadata[key]) for key in keys if key in metadata))


def _named_tokens(metadata: Metadata, tokens: list[str]) -> dict[str, str]:
    keys = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    return {
        f"{name}_token": tokens[metadata[field]]
        for name, key in keys.items()
        if metadata.get(field := f"tokenizer.ggml.{key}_token_id", len(tokens)) < len(tokens)
    }


def _added_tokens(metadata: Metadata) -> list[Metadata]:
    tokens = metadata["tokenizer.ggml.tokens"]
    types = metadata.get("tokenizer.ggml.token_type") or []
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return [
        {"id": index, "content": token, **flags, "special": kind != _USER_DEFINED}
        for index, (token, kind) in enumerate(zip(tokens, types, strict=False))
        if kind in (_CONTROL, _USER_DEFINED, _UNKNOWN)
    ]


def _byte_level(metadata: Metadata) -> Metadata:
    pre = metadata.get("tokenizer.ggml.pre") or "default"
    if pre not in _PRE_TOKENIZERS:
        raise UnsupportedFeature(
            f"tokenizer.ggml.pre={pre!r} in the GGUF file: known are "
            f"{', '.join(sorted(_PRE_TOKENIZERS))}"
        )
    merges = [merge.split(" ") for merge in metadata.get("tokenizer.ggml.merges") or []]
    vocab = {token: index for index, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    return {
        "normalizer": {"type": "NFC"} if "qwen" in pre else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _PRE_TOKENIZERS[pre]},
        "decoder": _GPT2[0],
        "model": {
            "type": "BPE",
            "vocab": vocab,
            "merges": merges,
            "ignore_merges": pre.startswith("llama"),
        },
    }


def _sentencepiece(metadata: Metadata, names: dict[str, str]) -> Metadata:
    tokens = metadata["tokenizer.ggml.tokens"]
    prefix = metadata.get("tokenizer.ggml.add_space_prefix", True)
    steps: list[Metadata] = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    if "tokenizer.ggml.merges" in metadata:
        merges = [merge.split(" ") for merge in metadata["tokenizer.ggml.merges"]]
    else:
        merges = merges_of_scores(tokens, metadata.get("tokenizer.ggml.scores") or [])
    return {
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Metaspace",
            "replacement": "▁",
            "prepend_scheme": "first" if prefix else "never",
            "split": False,
        },
        "decoder": {"type": "Sequence", "decoders": steps},
        "model": {
            "type": "BPE",
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": merges,
            "byte_fallback": True,
            "fuse_unk": True,
            "unk_token": names.get("unk_token"),
        },
    }


def merges_of_scores(tokens: list[str], scores: list[float]) -> list[list[str]]:
    """The merges of a sentencepiece BPE vocabulary: it joins the pair with the best score first,
    so each way to cut a token in two known tokens is a merge with the token's score as its rank."""
    vocab = {token: index for index, token in enumerate(tokens)}
    found: list[tuple[float, int, int, str, str]] = []
    for token, score in zip(tokens, scores, strict=False):
        pairs = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        pairs = [(left, right) for left, right in pairs if left in vocab and right in vocab]
        for left, right in sorted(pairs, key=lambda pair: (vocab[pair[0]], vocab[pair[1]])):
            found.append((score, len(left), len(right), left, right))
    found.sort(key=lambda entry: entry[:3], reverse=True)
    return [[left, right] for *_, left, right in found]


def _post_processor(
    metadata: Metadata, names: dict[str, str], tokens: list[str]
) -> Metadata | None:
    by_default = metadata["tokenizer.ggml.model"] == "llama" or str(
        metadata.get("tokenizer.ggml.pre")
    ).startswith("llama")
    if "bos_token" not in names or not metadata.get("tokenizer.ggml.add_bos_token", by_default):
        return None
    bos = names["bos_token"]
    begin = {"SpecialToken": {"id": bos, "type_id": 0}}
    single = [begin, {"Sequence": {"id": "A", "type_id": 0}}]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {bos: {"id": bos, "ids": [tokens.index(bos)], "tokens": [bos]}},
    }
