from __future__ import annotations

import re

import ramet.lang as rm
import ramet.lang.ir as by_import
from ramet.lang import ir


def test_it_is_found_where_sglang_has_it() -> None:
    assert by_import is ir is rm.ir


def test_the_regexes_build_others() -> None:
    regex = r"\{\"name\": " + ir.REGEX_STR + r", \"age\": " + ir.REGEX_INT + r"\}"
    assert re.fullmatch(regex, '{"name": "Ann Lee", "age": 41}')
    assert rm.accepts('{"name": "Ann Lee", "age": 41}', regex=regex)
    assert re.fullmatch(ir.REGEX_FLOAT, "-0.5")
    assert re.fullmatch(ir.REGEX_BOOL, "True")
