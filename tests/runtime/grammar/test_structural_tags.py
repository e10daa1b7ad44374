from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from typing import Any

import llguidance
import pytest
from tag_oracle import Structure, front_end, matcher, split, takes

from ramet.runtime.errors import GrammarError, UnsupportedFeature
from ramet.runtime.grammar.source import Source
from ramet.runtime.grammar.structural_tags import tags_source
from ramet.runtime.grammar.tag_pieces import Mismatch, TagReader
from ramet.runtime.grammar.vocabulary import Vocabulary
from ramet.runtime.tokenizer import Tokenizer

ARRAYS = {"type": "array", "items": {"type": "array", "maxItems": 1}}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = {
    "structures": [
        {"begin": "<function=weather>", "schema": CITY, "end": "</function>"},
        {"begin": "<function=add>", "regex": "[0-9]+(,[0-9]+)*", "end": "</function>"},
        {"begin": "<think>", "end": "</think>"},
    ],
    "triggers": ["<function=", "<think>"],
}


def source(tags: Any) -> Source:
    return tags_source(json.dumps(tags), strict=True, whitespace="compact", compile_part=front_end)


def grammar(tags: Any) -> llguidance.LLMatcher:
    return matcher(source(tags).lark)


def reader(tags: Any) -> TagReader:
    return TagReader(json.dumps(tags), strict=True, whitespace="compact", compile_part=front_end)


def pieces(made: TagReader, text: str) -> list[Any] | None:
    try:
        return made.pieces(text, lambda _, found: found)
    except Mismatch:
        return None


def formatted(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "structural_tag", "format": {"type": kind, **fields}}


def check_everywhere(structures: list[Structure], triggers: list[str], texts: Any) -> int:
    """Compares the grammar, and the reader of its texts, with the oracle; how many are whole."""
    tags = {"structures": structures, "triggers": triggers}
    made, read = grammar(tags), reader(tags)
    whole = 0
    for text in texts:
        expected = split(text, structures, triggers)
        assert takes(made, text) == (expected is not None), (tags, text)
        assert pieces(read, text) == expected, (tags, text)
        whole += expected is not None
    return whole


def all_texts(alphabet: str, size: int) -> Any:
    for length in range(size + 1):
        for chars in itertools.product(alphabet, repeat=length):
            yield "".join(chars)


@pytest.mark.parametrize(
    ("structures", "triggers", "alphabet", "size"),
    [
        ([{"begin": "<a", "regex": "a*", "end": ">"}], ["<"], "<a>", 7),
        ([{"begin": "<", "end": ">"}], ["<"], "<a>", 7),
        # A trigger that overlaps itself; the first one to be complete counts.
        ([{"begin": "<<a", "regex": "[a>]*", "end": ">"}], ["<<"], "<a>", 7),
        # One trigger ends another: both are complete at once, and the longer one counts.
        ([{"begin": "abc", "end": "a"}, {"begin": "bb", "end": "a"}], ["ab", "b"], "abc", 7),
        # One trigger begins another.
        (
            [{"begin": "ab", "end": "b"}, {"begin": "aab", "regex": "b*", "end": "a"}],
            ["a", "aab"],
            "ab",
            10,
        ),
        # One begin begins another, and so do whole regions.
        (
            [
                {"begin": "ab", "regex": "(ab)*", "end": "b"},
                {"begin": "abb", "regex": "a?", "end": "a"},
            ],
            ["ab"],
            "ab",
            10,
        ),
        # A content that can hold its own end, and the trigger.
        ([{"begin": "aa", "regex": ".*", "end": "aa"}], ["aa"], "ab", 10),
        ([{"begin": "aab", "regex": "(aba?b|b)*", "end": "ab"}], ["a"], "ab", 10),
        ([{"begin": "ab", "end": "aab"}], ["ab"], "ab", 10),
        ([{"begin": "<", "schema": ARRAYS, "end": ">"}], ["<"], "<>[]", 6),
        # Two schemas behind one begin.
        (
            [
                {"begin": "<", "schema": ARRAYS, "end": ">"},
                {"begin": "<", "schema": {"enum": [[[[]]]]}, "end": ">"},
            ],
            ["<"],
            "<>[]",
            6,
        ),
        # JSON beside a regex.
        (
            [
                {"begin": "<[", "schema": ARRAYS, "end": "]"},
                {"begin": "<>", "regex": r"[\[\]]*", "end": "<"},
                {"begin": "<<", "regex": r"[<\]]*", "end": "<]"},
            ],
            ["<"],
            "<>[]",
            6,
        ),
    ],
)
def test_it_is_exact_on_all_short_texts(
    structures: list[Structure], triggers: list[str], alphabet: str, size: int
) -> None:
    assert check_everywhere(structures, triggers, all_texts(alphabet, size)) > 50


def test_it_is_exact_for_tags_drawn_at_random() -> None:
    generator = random.Random(5)

    def word(low: int, high: int) -> str:
        return "".join(generator.choices("ab", k=generator.randint(low, high)))

    compared, refused = 0, list[str]()
    regexes = ["a*", "b", "(ab)*", "a?b?", "(a|b){0,3}", "[ab]*", "aab|b"]
    for _ in range(120):
        triggers = list({word(1, 3) for _ in range(generator.randint(1, 3))})
        structures: list[Structure] = []
        for _ in range(generator.randint(1, 3)):
            one = {"begin": generator.choice(triggers) + word(0, 2), "end": word(1, 2)}
            if generator.random() < 0.7:
                one["regex"] = generator.choice(regexes)
            structures.append(one)
        try:
            source({"structures": structures, "triggers": triggers})
        except GrammarError as error:
            refused.append(str(error))
            continue
        check_everywhere(structures, triggers, [word(0, 14) for _ in range(120)])
        compared += 1
    assert compared > 30
    assert all("can never come" in error or "no begin starts" in error for error in refused)


def test_whatever_the_masks_lead_to_is_whole() -> None:
    """Walks at random that follow the masks: what the grammar calls whole is what the oracle does,
    at every step."""
    generator = random.Random(1)
    structures, triggers = TOOLS["structures"], TOOLS["triggers"]
    made = grammar(TOOLS)
    likely = ["<function=weather>", "<function=", "<think>", "</think>", '{"city":"', '"}', "1,"]
    regions = 0
    for _ in range(60):
        walk, data = made.deep_copy(), bytearray()
        while len(data) < 300:
            mask = walk.compute_bitmask()
            allowed = [byte for byte in range(256) if mask[byte // 8] >> byte % 8 & 1]
            assert allowed
            wanted = generator.choice(likely).encode()
            if wanted[0] not in allowed or generator.random() < 0.2:
                wanted = bytes([generator.choice(allowed)])
            for byte in wanted:
                if walk.try_consume_tokens([byte]) == 0:
                    break
                data.append(byte)
                try:
                    whole = split(data.decode(), structures, triggers)
                except UnicodeDecodeError:
                    whole = None
                assert walk.is_accepting() == (whole is not None), data
        regions += len([piece for piece in whole or () if isinstance(piece, tuple)])
    assert regions > 20


def test_tool_calls_in_free_text() -> None:
    made = grammar(TOOLS)
    call = '<function=weather>{"city":"</function><think>"}</function>'
    for text in (
        "",
        "No tool is needed, 1 < 2, and é.",
        "cut in a trigger: <fun",
        call,
        f"First {call}, then <function=add>1,2</function>{call}!",
        "<think>a <function= b</think>c</think>",
    ):
        assert takes(made, text), text
    for text in (
        "<function=",
        "<function=other>",
        "<think>no end",
        '<function=weather>{"city":1}</function>',
        '<function=weather>{"city":"Rome"}',
        "<function=add></function>",
    ):
        assert not takes(made, text), text


def test_tokens_that_cross_the_borders_of_regions(worded: Callable[..., Tokenizer]) -> None:
    """The mask over tokens of several bytes is what the bytes say."""
    words = [
        "<function", ">{", '"}</', "</function>", " <function=add>1", "n> <fun", "1</f",
        '{"city":"', "</function><think>x", "x</think><function=weather>{", "hello", "k>",
    ]  # fmt: skip
    tokenizer = worded(*words)
    vocabulary = Vocabulary(tokenizer)
    lark = source(TOOLS).lark
    tokens = llguidance.LLMatcher(
        vocabulary.native, llguidance.LLMatcher.grammar_from_lark(lark), log_level=0
    )
    made = matcher(lark)
    text = 'hi <function=weather>{"city":"a"}</function><think>x</think><function=add>1</function>'
    ids = {bytes([byte]): None for byte in range(256)}
    spelled = {i: tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)}
    ids = {data: i for i, data in reversed(spelled.items()) if data}
    seen = 0
    for position in range(len(text)):
        bits = vocabulary.text_bits(tokens.compute_bitmask())
        for token, data in spelled.items():
            if data:
                allowed = made.deep_copy().try_consume_tokens(list(data)) == len(data)
                assert bits >> token & 1 == allowed, (text[:position], data)
                seen += allowed and len(data) > 1
        assert tokens.try_consume_tokens([ids[text[position].encode()]]) == 1
        assert made.try_consume_tokens(list(text[position].encode())) == 1
    assert seen > 50


@pytest.mark.parametrize(
    ("tags", "place", "reason"),
    [
        ([{"begin": "<", "end": ">", "regex": "("}], "structures[0].regex", "missing"),
        ([{"begin": "<", "end": ">", "regex": "a(?=b)"}], "structures[0].regex", "position"),
        (
            [{"begin": "<", "end": ">", "regex": "[^\\s\\S]"}],
            "structures[0].regex",
            "no text matches",
        ),
        (
            [{"begin": "<a", "end": ">", "schema": CITY}, {"begin": "<ab", "end": ">"}],
            "structures[1]",
            "can't be told apart from structures[0]: one begins as the other does",
        ),
        (
            [{"begin": "<", "end": ">", "schema": CITY}, {"begin": "<", "end": ">"}],
            "structures[1]",
            "can't be told apart",
        ),
        (
            [{"begin": "<", "end": "0>", "schema": {"type": "integer"}}],
            "structures[0].schema",
            "0>",
        ),
        (
            [
                {"begin": "<", "end": ">", "schema": CITY},
                {"begin": "<", "end": "}", "schema": CITY},
            ],
            "structures[1]",
            "can't be told apart from structures[0]",
        ),
        (
            [{"begin": "<", "end": ">", "schema": {"$id": "a:b"}} for _ in range(2)]
            + [{"begin": "<", "end": ">", "schema": CITY}],
            "structures[0].schema",
            "$id needs a begin of its own",
        ),
        ([{"begin": "<", "end": "e", "schema": True}], "structures[0].schema", "number"),
    ],
)
def test_what_cannot_be_kept_is_refused(tags: Any, place: str, reason: str) -> None:
    with pytest.raises(GrammarError) as caught:
        source({"structures": tags, "triggers": ["<"]})
    assert str(caught.value).startswith(f"structural_tags: {place}: ")
    assert reason in str(caught.value)


def test_a_begin_that_another_trigger_prevents_is_refused() -> None:
    tags = [{"begin": "aba", "end": "b"}, {"begin": "b", "end": "b"}]
    with pytest.raises(GrammarError, match=r"structures\[0\].begin: 'aba' can never come: 'b' is"):
        source({"structures": tags, "triggers": ["aba", "b"]})


@pytest.mark.parametrize("kind", [GrammarError, UnsupportedFeature])
def test_an_error_of_a_content_names_its_place(kind: type[Exception]) -> None:
    def refuse(*_: object) -> Source:
        raise kind("json_schema: at /properties/a: no")

    text = json.dumps({"structures": [{"begin": "<", "end": ">", "schema": {}}], "triggers": ["<"]})
    with pytest.raises(kind) as caught:
        tags_source(text, strict=True, whitespace="compact", compile_part=refuse)
    assert str(caught.value) == "structural_tags: structures[0].schema: at /properties/a: no"


def test_contents_are_compiled_as_asked_and_once() -> None:
    asked: list[tuple[Any, ...]] = []

    def part(*what: Any) -> Source:
        asked.append(what)
        return Source(front_end(*what).lark, ("/a: multipleOf",))

    structures = [
        {"begin": f"<{name}>", "end": ">", "schema": {"type": "object"}} for name in "abc"
    ]
    found = tags_source(
        json.dumps({"structures": structures, "triggers": ["<"]}),
        strict=False,
        whitespace="flexible",
        compile_part=part,
    )
    assert asked == [("json_schema", '{"type": "object"}', False, "flexible")]
    assert found.unenforced == tuple(
        f"structures[{index}].schema/a: multipleOf" for index in range(3)
    )
    assert takes(matcher(found.lark), '<a>{ "x" : 1}>')


def test_a_grammar_that_is_one_terminal_ends_where_it_can() -> None:
    """Its terminal could take the end, and everything behind it."""
    words = "start: WORD\nWORD: /[a-z<>\\/]+/"
    pair = 'start: AB\nAB: A "," A\nA: /[^,]*/'
    tags = {
        "structures": [
            {"begin": "<a>", "lark": words, "end": "</a>"},
            {"begin": "<b>", "lark": pair, "end": "</b>"},
            {"begin": "<c>", "lark": words, "end": "</c>"},
        ],
        "triggers": ["<a", "<b", "<c"],
    }
    made = grammar(tags)
    text = "<a>x</y></a>z</a><b></b>,<a></b>,</b><c>z</c>"
    assert takes(made, text)
    assert pieces(reader(tags), text) == [
        ("<a>", "x</y>"),
        "z</a>",
        ("<b>", "</b>,<a>"),
        ",</b>",
        ("<c>", "z"),
    ]
    for other in ("<a></a>", "<b>a</b>", "<a>x</c>"):
        assert not takes(made, other)


def test_schemas_behind_one_begin_keep_their_references() -> None:
    schemas = [
        {"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"$ref": "#/$defs/x"}]}, "$defs": defs}
        for defs in ({"x": {"const": 1}}, {"x": {"const": "a"}})
    ]
    structures = [{"begin": "<", "schema": schema, "end": ">"} for schema in schemas]
    made = grammar({"structures": structures, "triggers": ["<"]})
    for text in ("<[]>", "<[1,[1]]>", '<["a",[["a"]]]>'):
        assert takes(made, text), text
    for text in ('<[1,"a"]>', '<[1,["a"]]>', "<[2]>"):
        assert not takes(made, text), text


def test_grammars_keep_their_own_names_and_blanks() -> None:
    tags = {
        "structures": [
            {"begin": "<a>", "lark": 'start: x "b"\nx: "a"+', "end": "</a>"},
            {"begin": "<b>", "lark": 'start: "b" x\nx: "c" | "(" x ")"', "end": "</b>"},
            {"begin": "<c>", "lark": 'start: "x" "y"\n%ignore / +/', "end": "</c>"},
        ],
        "triggers": ["<"],
    }
    made = grammar(tags)
    assert takes(made, "<a>aab</a> <b>b((c))</b> <c>x  y</c>")
    for text in ("<a>b</a>", "<a>a b</a>", "<b>b((c)</b>", "<a>b((c))</a>", "<b> bc</b>"):
        assert not takes(made, text)


TAG_A = {"type": "tag", "begin": "<a>", "content": {"type": "any_text"}, "end": "</a>"}
TAG_B = {
    "type": "tag",
    "begin": "<b>",
    "content": {"type": "json_schema", "json_schema": {"type": "boolean"}},
    "end": "</b>",
}


@pytest.mark.parametrize(
    ("tags", "whole", "other"),
    [
        (formatted("const_string", value="ab"), ["ab"], ["", "a", "abc"]),
        (formatted("any_text"), ["", "x\n", "é"], []),
        (formatted("any_text", excludes=["<a"]), ["", "x<"], ["<a", "x<ab"]),
        (formatted("json_schema", json_schema={"type": "boolean"}), ["true"], ["", "truex"]),
        (formatted("regex", pattern="a*"), ["", "aa"], ["b"]),
        (formatted("grammar", grammar='start: "x" start?'), ["x", "xxx"], ["", "y"]),
        (TAG_A, [], []),
        (
            formatted("sequence", elements=[TAG_A, TAG_B]),
            ["<a></a><b>true</b>"],
            ["<a></a>", "<a></a> <b>true</b>"],
        ),
        (
            formatted(
                "sequence",
                elements=[{"type": "any_text"}, {"type": "const_string", "value": "END"}],
            ),
            ["END", "ENEND"],
            ["", "ENDEND", "EN"],
        ),
        (
            formatted("or", elements=[TAG_A, TAG_B]),
            ["<a>x</a>", "<b>false</b>"],
            ["", "<b>x</b>", "<a></a><a></a>"],
        ),
        (
            formatted(
                "or", elements=[{"type": "const_string", "value": text} for text in ("a", "ab", "")]
            ),
            ["", "a", "ab"],
            ["b", "abb"],
        ),
        (
            formatted("triggered_tags", triggers=["<"], tags=[TAG_A, TAG_B], at_least_one=True),
            ["<a></a>", "<b>true</b> x <a>y</a>"],
            ["", "x<a></a>"],
        ),
        (
            formatted("triggered_tags", triggers=["<"], tags=[TAG_A], stop_after_first=True),
            ["", "x", "x<a>y</a>"],
            ["<a></a>x"],
        ),
        (
            formatted(
                "triggered_tags",
                triggers=["<"],
                tags=[TAG_A],
                stop_after_first=True,
                at_least_one=True,
            ),
            ["<a>x</a>"],
            ["", "x<a></a>", "<a></a>x"],
        ),
        (
            formatted("tags_with_separator", tags=[TAG_A, TAG_B], separator=", "),
            ["", "<a></a>", "<a></a>, <b>true</b>, <a>x</a>"],
            ["<a></a>,", "<a></a><a></a>", " "],
        ),
        (
            formatted("tags_with_separator", tags=[TAG_A], separator="", at_least_one=True),
            ["<a></a>", "<a></a><a></a>"],
            ["", "<a>"],
        ),
        (
            formatted("tags_with_separator", tags=[TAG_A], separator=";", stop_after_first=True),
            ["", "<a>;</a>"],
            ["<a></a>;<a></a>"],
        ),
    ],
)
def test_formats(tags: Any, whole: list[str], other: list[str]) -> None:
    tags = tags if tags["type"] == "structural_tag" else {"type": "structural_tag", "format": tags}
    made = grammar(tags)
    for text in whole:
        assert takes(made, text), text
        assert pieces(reader(tags), text) is not None
    for text in other:
        assert not takes(made, text), text
        assert pieces(reader(tags), text) is None


def test_a_model_that_thinks_and_then_calls_a_list_of_tools() -> None:
    """xgrammar's own examples, nested: thinking, free text, and a section of calls."""
    call = {
        "begin": '{"name": "add", "arguments": ',
        "content": {"type": "json_schema", "json_schema": CITY},
        "end": "}",
    }
    calls = {"type": "tags_with_separator", "separator": ", ", "tags": [call]}
    tags = formatted(
        "sequence",
        elements=[
            {"type": "tag", "begin": "", "content": {"type": "any_text"}, "end": "</think>"},
            {
                "type": "triggered_tags",
                "triggers": ["<|tool_call|>"],
                "tags": [{"begin": "<|tool_call|>[", "content": calls, "end": "]<|/tool_call|>"}],
                "stop_after_first": True,
            },
        ],
    )
    made = grammar(tags)
    one = '{"name": "add", "arguments": {"city":"x]"}}'
    assert takes(made, "hm</think>")
    assert takes(made, f"hm</think>so: <|tool_call|>[{one}, {one}]<|/tool_call|>")
    assert takes(made, "</think><|tool_call|>[]<|/tool_call|>")
    for text in (f"<|tool_call|>[{one}]<|/tool_call|>", f"</think><|tool_call|>[{one},{one}]"):
        assert not takes(made, text)


@pytest.mark.parametrize(
    ("elements", "reason"),
    [
        ([{"type": "any_text"}, {"type": "any_text"}], "nothing says"),
        (
            [
                {"type": "regex", "pattern": "a*"},
                {"type": "json_schema", "json_schema": {"type": "object"}},
            ],
            "nothing says",
        ),
        ([{"type": "json_schema", "json_schema": {}}, {"type": "const_string", "value": "1"}], "1"),
    ],
)
def test_a_sequence_without_borders_is_refused(elements: Any, reason: str) -> None:
    with pytest.raises(GrammarError, match=reason):
        source(formatted("sequence", elements=elements))


def test_tags_that_never_end_are_refused() -> None:
    endless = {"begin": "<a>", "content": {"type": "any_text"}, "end": ""}
    nothing = {"begin": "", "content": {"type": "const_string", "value": ""}, "end": ""}
    for tag, kind, fields in (
        (endless, "triggered_tags", {"triggers": ["<"]}),
        (endless, "tags_with_separator", {"separator": ","}),
        (nothing, "tags_with_separator", {"separator": ""}),
    ):
        with pytest.raises(GrammarError, match=r"format.tags\[0\].end: must not be empty"):
            source(formatted(kind, tags=[tag], **fields))


def test_large_tags_are_compiled() -> None:
    structures = [
        {"begin": f"<call {number}>", "regex": "[a-z]{1,9}", "end": "</call>"}
        for number in range(300)
    ]
    made = grammar({"structures": structures, "triggers": ["<call "]})
    assert takes(made, "x <call 299>abc</call> y <call 0>z</call>")
    assert not takes(made, "<call 300>abc</call>")
