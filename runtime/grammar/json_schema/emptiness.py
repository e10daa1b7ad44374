"""Whether a language has any text; the mask engine knows."""

from __future__ import annotations

import functools

from ramet.runtime.grammar.json_schema.language import (
    NOTHING,
    All,
    Any,
    Cat,
    Language,
    Not,
    Repeat,
    Words,
)
from ramet.runtime.grammar.json_schema.spelling import Terminals
from ramet.runtime.grammar.limits import MAX_TOGETHER
from ramet.runtime.grammar.mask_engine import mask_engine
from ramet.runtime.grammar.patience import check


@functools.lru_cache(maxsize=4096)
def is_empty(language: Language) -> bool:
    """Whether it is certain that no text belongs to a language."""
    if language == NOTHING:
        return True
    if not _has_operators(language):
        return False  # `language` keeps nothing within unions and sequences.
    parts = language.parts if isinstance(language, All) else (language,)
    if all(isinstance(part, Not) and isinstance(part.body, Words) for part in parts):
        return False  # Finitely many texts are barred.
    check()
    terminals = Terminals()
    name = terminals.text(language)
    if any(text.count(" & ") >= MAX_TOGETHER for text in terminals.lines.values()):
        return False  # It could take for ever to tell.
    lines = (f"{name}: {text}" for name, text in terminals.lines.items())
    package = mask_engine()
    limits = package.LLParserLimits(
        initial_lexer_fuel=200_000, step_lexer_fuel=50_000, verbose_errors=False
    )
    native = package.LLMatcher(
        _byte_tokenizer(),
        package.LLMatcher.grammar_from_lark("\n".join((f"start: {name}", *lines))),
        log_level=0,
        limits=limits,
    )
    if native.is_error():
        return False
    mask = native.compute_bitmask()
    if native.is_error():
        return bool(native.get_error().startswith("NoExtension"))
    return not any(mask[:32]) and not native.is_accepting()


@functools.lru_cache(maxsize=1)
def _byte_tokenizer() -> object:
    return mask_engine().LLTokenizer("byte")


def _has_operators(language: Language) -> bool:
    match language:
        case All() | Not():
            return True
        case Any():
            return any(map(_has_operators, language.options))
        case Cat():
            return any(map(_has_operators, language.parts))
        case Repeat():
            return _has_operators(language.body)
    return False
