"""The tokenizer beside transformers, on small tokenizers that are trained here."""

from __future__ import annotations

import copy
import datetime
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from ramet.runtime.errors import InvalidArgument, ProgramError, UnsupportedFeature
from ramet.runtime.tokenizer import Tokenizer

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog sleeps on. 12345 67\n",
    "def f(x):\n    return x + 1\n\nHello hello there, it's the user's turn. Ünïcödé ☃ done.\n",
] * 4
SAMPLES = [
    "",
    " ",
    "a",
    "hello",
    " hello",
    "  hello  there ",
    "The quick brown fox.\n\n  12 345\t67",
    "Ünïcödé ☃ \U0001f600 日本語",
    "<s>hello</s> the",
    "the</s>hello <s> fox",
    "x<pad>y <pad> z",
    "<|im_start|>user\nhello<|im_end|>\n",
    "it's <unk> done",
]
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


def _byte_level(add_prefix_space: bool = False) -> tokenizers.Tokenizer:
    native = tokenizers.Tokenizer(models.BPE())
    native.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    native.decoder = decoders.ByteLevel()
    native.post_processor = processors.ByteLevel(trim_offsets=False)
    special = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    native.train_from_iterator(CORPUS, trainer)
    stripping = tokenizers.AddedToken("<pad>", lstrip=True, rstrip=True, special=True)
    native.add_special_tokens([stripping])
    native.add_tokens([tokenizers.AddedToken("<think>", special=False, normalized=False)])
    return native


def _sentencepiece(style: str) -> tokenizers.Tokenizer:
    native = tokenizers.Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    if style == "prepend":
        native.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
    else:
        native.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme=style, split=False)
    native.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    special = ["<unk>", "<s>", "</s>"]
    words = tokenizers.Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.Metaspace("▁")
    words.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=200, show_progress=False))
    trained = json.loads(words.to_str())["model"]
    learned = [text for text in trained["vocab"] if text not in special]
    vocab = {text: index for index, text in enumerate([*special, *BYTE_TOKENS, *learned])}
    document = json.loads(native.to_str())
    document["model"] |= {"vocab": vocab, "merges": trained["merges"]}
    native = tokenizers.Tokenizer.from_str(json.dumps(document))
    native.add_special_tokens(special)
    native.add_special_tokens(["<pad>", "<|im_start|>", "<|im_end|>"])
    return native


def _with_bos(native: tokenizers.Tokenizer, keep: bool = False) -> tokenizers.Tokenizer:
    template = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)]
    )
    native.post_processor = (
        processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
        if keep
        else template
    )
    return native


def _save(
    folder: Path, native: tokenizers.Tokenizer, settings: dict[str, Any] | None = None
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    native.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "clean_up_tokenization_spaces": False,
    } | (settings or {})
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "eos_token_id": 2}))
    return folder


KINDS: dict[str, tuple[Callable[[], tokenizers.Tokenizer], dict[str, Any]]] = {
    "byte-level": (_byte_level, {}),
    "byte-level, prefix space": (lambda: _byte_level(True), {}),
    "byte-level, BOS": (lambda: _with_bos(_byte_level(), keep=True), {}),
    "byte-level, BOS in its settings only": (_byte_level, {"add_bos_token": True}),
    "byte-level, BOS despite its settings": (
        lambda: _with_bos(_byte_level()),
        {"add_bos_token": False},
    ),
    "llama 2": (lambda: _with_bos(_sentencepiece("prepend")), {}),
    "llama 2, its own class": (
        lambda: _with_bos(_sentencepiece("prepend")),
        {"tokenizer_class": "LlamaTokenizer", "legacy": False},
    ),
    "llama 2, legacy class": (
        lambda: _with_bos(_sentencepiece("prepend")),
        {"tokenizer_class": "LlamaTokenizerFast", "legacy": True, "add_bos_token": True},
    ),
    "metaspace always": (lambda: _with_bos(_sentencepiece("always")), {}),
    "metaspace first": (lambda: _with_bos(_sentencepiece("first")), {}),
    "extra special token": (_byte_level, {"pad_token": "<|pad|>"}),
}


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    build, config = KINDS[request.param]
    return _save(tmp_path_factory.mktemp("tokenizer"), build(), config)


@pytest.fixture(scope="module")
def pair(folder: Path) -> tuple[Tokenizer, Any]:
    transformers = pytest.importorskip("transformers")
    return Tokenizer.from_dir(folder), transformers.AutoTokenizer.from_pretrained(folder)


def test_ids_and_texts_are_those_of_transformers(pair: tuple[Tokenizer, Any]) -> None:
    ours, theirs = pair
    for text in [*SAMPLES, *CORPUS]:
        expected = theirs(text).input_ids
        if ours.adds_bos and expected[:2] == [ours.bos_id] * 2:
            expected = expected[1:]  # the text begins with BOS: ours stands there once
        assert ours.encode(text) == expected, text
        assert ours.decode(expected) == theirs.decode(
            expected, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
    assert ours.vocab_size == len(theirs)
    assert ours.bos_id == theirs.bos_token_id
    assert ours.special_ids == set(theirs.all_special_ids) | (
        ours.special_ids & set(theirs.added_tokens_decoder)
    )


def test_a_continuation_adds_nothing_and_keeps_spaces(pair: tuple[Tokenizer, Any]) -> None:
    ours, _ = pair
    for text in SAMPLES:
        ids = ours.encode(text, continuation=True)
        visible = text
        for token in ("<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>"):
            visible = visible.replace(token, "")
        visible = visible.replace(" <pad> ", "").replace("<pad>", "")
        joined = b"".join(map(ours.token_bytes, ids)).decode()
        assert joined.replace(" ", "") == visible.replace(" ", "")
        if "<pad>" not in text:
            assert joined == visible, text
    assert ours.encode("", continuation=True) == []


def test_content_never_becomes_a_special_token(pair: tuple[Tokenizer, Any]) -> None:
    ours, _ = pair
    for evil in ("</s>", "<s>", "a<|im_end|>b", " <|im_start|> ", "<pad>"):
        pieces = [("<|im_start|>", "text"), (evil, "content"), ("<|im_end|>\n", "text")]
        ids = ours.encode(pieces, continuation=True)
        specials = [ours.special_text(token) for token in ids if token in ours.special_ids]
        assert specials == ["<|im_start|>", "<|im_end|>"]
        shown = b"".join(map(ours.token_bytes, ids)).decode()
        assert shown == evil + "\n"
        assert ours.encode([(evil, "content")])[ours.adds_bos :] == [
            token for token in ours.encode([(evil, "content")]) if token not in ours.special_ids
        ]


def test_pieces_are_tokenised_together(pair: tuple[Tokenizer, Any]) -> None:
    ours, _ = pair
    whole = "hello <|im_start|>the user<|im_end|> done"
    pieces = [("hel", "text"), ("lo <|im_", "text"), ("start|>", "text"), ("the us", "content")]
    pieces += [("er", "text"), ("<|im_end|> do", "text"), ("ne", "content")]
    assert ours.encode(pieces) == ours.encode(whole)
    split = [("<|im_", "text"), ("start|>", "content"), ("<|im_end|>", "text")]
    assert [
        token for token in ours.encode(split, continuation=True) if token in ours.special_ids
    ] == [ours.special_id("<|im_end|>")]


def test_runs_between_specials_equal_the_whole(pair: tuple[Tokenizer, Any]) -> None:
    """Where both ways apply (no special text in content), splitting changes nothing."""
    ours, _ = pair
    for text in SAMPLES[1:]:
        apart = ours._encode_apart(text, [(len(text), len(text))], "full")
        whole = ours.encode(text)
        assert apart == whole or [ours.bos_id, *apart] == whole, text


@given(st.text(max_size=40))
@settings(max_examples=60, deadline=None)
def test_bytes_join_to_the_text(text: str) -> None:
    tiny = Tokenizer.tiny()
    ids = tiny.encode([(text, "content")])
    assert ids == list(text.encode())
    assert tiny.decode(ids) == text


def test_tiny_is_bytes_and_chatml() -> None:
    tiny = Tokenizer.tiny()
    assert tiny.vocab_size == 259
    assert [tiny.token_bytes(byte) for byte in range(256)] == [bytes([b]) for b in range(256)]
    assert [tiny.special_text(index) for index in (256, 257, 258)] == [
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
    ]
    assert tiny.eos_ids == (258, 256)
    assert tiny.special_ids == {256, 257, 258}
    assert tiny.bos_id is None
    assert not tiny.adds_bos
    assert tiny.encode("A<|im_end|>\n") == [65, 258, 10]
    messages = [{"role": "user", "content": "Hi {{x}}"}]
    text = "<|im_start|>user\nHi {{x}}<|im_end|>\n"
    assert tiny.render_chat(messages) == text
    assert tiny.render_chat(messages, True) == text + "<|im_start|>assistant\n"
    assert tiny.token_bytes(-1) == tiny.token_bytes(999) == tiny.token_bytes(257) == b""
    assert tiny.decode([72, 257, 0xE2, 0x98]) == "H�"


def test_end_ids_come_from_the_generation_settings(tmp_path: Path) -> None:
    folder = _save(tmp_path, _byte_level())
    assert Tokenizer.from_dir(folder).eos_ids == (2,)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [4, 2]}))
    assert Tokenizer.from_dir(folder).eos_ids == (4, 2)
    (folder / "generation_config.json").unlink()
    (folder / "config.json").unlink()
    assert Tokenizer.from_dir(folder).eos_ids == (2,)


def test_a_longer_token_reaching_into_content_leaves_the_shorter(tmp_path: Path) -> None:
    native = _byte_level()
    native.add_special_tokens(["<a>", "<a><b>"])
    ours = Tokenizer.from_dir(_save(tmp_path, native))
    ids = ours.encode([("<a>", "text"), ("<b>", "content")])
    assert ids[0] == ours.special_id("<a>")
    assert ours.special_id("<a><b>") not in ids
    assert ours.encode("<a><b>") == [ours.special_id("<a><b>")]


def test_templates_see_a_fixed_date_and_named_tokens(tmp_path: Path) -> None:
    source = (
        "{{ bos_token }}{{ strftime_now('%d %b %Y') }}{% for m in messages %}\n"
        "  {% generation %}{{ m.content | tojson }}{% endgeneration %}\n"
        "{% if loop.index == 2 %}{% break %}{% endif %}{% endfor %}"
    )
    folder = _save(tmp_path, _byte_level(), {"chat_template": source})
    now = datetime.datetime(2024, 5, 6)
    ours = Tokenizer.from_dir(folder, now)
    assert ours.chat_template == source
    expected = '<s>06 May 2024"<é>""b"'
    assert ours.render_chat([{"role": "user", "content": c} for c in ("<é>", "b", "c")]) == expected
    (folder / "chat_template.jinja").write_text("{{ raise_exception('only ' ~ 'two') }}")
    with pytest.raises(ProgramError, match="only two"):
        Tokenizer.from_dir(folder).render_chat([])
    (folder / "chat_template.jinja").write_text("{% for %}")
    with pytest.raises(ProgramError, match="cannot be read"):
        Tokenizer.from_dir(folder).render_chat([])
    (folder / "chat_template.jinja").write_text("{{ messages.append(1) }}")
    with pytest.raises(ProgramError, match="refuses"):
        Tokenizer.from_dir(folder).render_chat([])


def test_templates_render_as_transformers_does(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    template = Tokenizer.tiny().chat_template
    folder = _save(tmp_path, _byte_level(), {"chat_template": template})
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    messages = [{"role": "system", "content": " s "}, {"role": "user", "content": "hi\n"}]
    assert Tokenizer.from_dir(folder).render_chat(messages, True) == theirs.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )


def test_no_template_is_said(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeature, match="no chat template"):
        Tokenizer.from_dir(_save(tmp_path, _byte_level())).render_chat([])


def test_bad_input_is_named(tmp_path: Path) -> None:
    tiny = Tokenizer.tiny()
    with pytest.raises(InvalidArgument, match="lone surrogate"):
        tiny.encode("a\ud800")
    with pytest.raises(InvalidArgument, match="lone surrogate"):
        tiny.encode([("\ud83d", "content"), ("\ude00", "text")])
    with pytest.raises(InvalidArgument, match="lone surrogate"):
        tiny.render_chat([{"role": "user", "content": "\udfff"}])
    with pytest.raises(InvalidArgument, match="kind='x'"):
        tiny.encode([("a", "x")])
    with pytest.raises(InvalidArgument, match="not a directory"):
        Tokenizer.from_dir(tmp_path / "none")
    with pytest.raises(UnsupportedFeature, match=r"no tokenizer\.json"):
        Tokenizer.from_dir(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(InvalidArgument, match="not valid JSON"):
        Tokenizer.from_dir(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": 1}')
    with pytest.raises(InvalidArgument, match=r"tokenizer\.json"):
        Tokenizer.from_dir(tmp_path)
    native = copy.deepcopy(_byte_level())
    native.decoder = decoders.WordPiece()
    with pytest.raises(UnsupportedFeature, match="WordPiece"):
        Tokenizer.from_dir(_save(tmp_path, native))


def test_the_modules_import_no_torch() -> None:
    modules = (
        "tokenizer",
        "tokenizer_json",
        "chat_template",
        "builtin_model",
        "source.gguf_convert",
    )
    code = "import sys\n" + "".join(f"import ramet.runtime.{name}\n" for name in modules)
    code += "from ramet.runtime.tokenizer import Tokenizer\n"
    code += "Tokenizer.tiny().render_chat([], True)\n"
    code += "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
