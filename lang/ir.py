"""The regexes of `dtype=`, under the names that SGLang's `lang.ir` has for them.

They accept a part of what SGLang's accept. There a number may have any number of digits and end in
any number of blanks, so a model that has said its number may go on to its limit of tokens. Here
`int()` and `float()` read whatever matches, and one blank after a number ends it.
"""

from __future__ import annotations

REGEX_INT = r"[-+]?[0-9]{1,640}[ \n]?"
"""640 digits are what `int()` reads under every setting of `sys.set_int_max_str_digits`."""

REGEX_FLOAT = r"[-+]?([0-9]{1,300}|[0-9]{0,300}\.[0-9]{1,300})[ \n]?"
"""Finite as a float."""

REGEX_BOOL = r"(True|False)"

REGEX_STR = r"\"[\w\d\s]*\""
"""Letters, digits, `_` and blanks of any script in double quotes, as SGLang's."""
