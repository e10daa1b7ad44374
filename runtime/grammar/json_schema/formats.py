"""The formats that are enforced, as the standards behind them have it; others are annotations.

Days are checked against their month (29 February is in every year), nothing else about a value
needs more than its text. `email`, `hostname` and the URIs are the ASCII ones of their RFCs.
"""

from __future__ import annotations

from typing import Final

_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"(?:{_BYTE}\.){{3}}{_BYTE}"
_H16 = r"[0-9a-fA-F]{1,4}"
_LS32 = rf"(?:{_H16}:{_H16}|{_IPV4})"
_IPV6 = "|".join(
    [
        rf"(?:{_H16}:){{6}}{_LS32}",
        rf"::(?:{_H16}:){{5}}{_LS32}",
        *(
            rf"(?:(?:{_H16}:){{0,{before}}}{_H16})?::(?:{_H16}:){{{4 - before}}}{_LS32}"
            for before in range(5)
        ),
        rf"(?:(?:{_H16}:){{0,5}}{_H16})?::{_H16}",
        rf"(?:(?:{_H16}:){{0,6}}{_H16})?::",
    ]
)
_DATE = (
    r"[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|[12][0-9]))"
)
_ZONE = r"(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_TIME = rf"(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\.[0-9]+)?{_ZONE}"
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL})*"
_ATOM = r"[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+"
_HMS = r"(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_YMD = r"(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_ENCODED = r"%[0-9a-fA-F]{2}"
_PCHAR = rf"(?:[a-zA-Z0-9._~!$&'()*+,;=:@-]|{_ENCODED})"
_QUERY = rf"(?:[a-zA-Z0-9._~!$&'()*+,;=:@/?-]|{_ENCODED})*"
_NAME = rf"(?:[a-zA-Z0-9._~!$&'()*+,;=-]|{_ENCODED})*"
_USER = rf"(?:[a-zA-Z0-9._~!$&'()*+,;=:-]|{_ENCODED})*"
_LITERAL = rf"\[(?:{_IPV6}|[vV][0-9a-fA-F]+\.[a-zA-Z0-9._~!$&'()*+,;=:-]+)\]"
_AUTHORITY = rf"//(?:{_USER}@)?(?:{_LITERAL}|{_NAME})(?::[0-9]*)?(?:/{_PCHAR}*)*"
_END = rf"(?:\?{_QUERY})?(?:#{_QUERY})?"
_URI = (
    rf"[a-zA-Z][a-zA-Z0-9+.-]*:(?:{_AUTHORITY}|/(?:{_PCHAR}+(?:/{_PCHAR}*)*)?"
    rf"|{_PCHAR}+(?:/{_PCHAR}*)*|){_END}"
)
_SEGMENT = rf"(?:[a-zA-Z0-9._~!$&'()*+,;=@-]|{_ENCODED})+"
_RELATIVE = rf"(?:{_AUTHORITY}|/(?:{_PCHAR}+(?:/{_PCHAR}*)*)?|{_SEGMENT}(?:/{_PCHAR}*)*|){_END}"

FORMATS: Final = {
    "date": _DATE,
    "time": _TIME,
    "date-time": rf"{_DATE}[tT]{_TIME}",
    "duration": rf"P(?:{_YMD}(?:T{_HMS})?|T{_HMS}|[0-9]+W)",
    "email": rf"{_ATOM}(?:\.{_ATOM})*@(?:{_HOST}|\[{_IPV4}\])",
    "hostname": _HOST,
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "uuid": r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}",
    "uri": _URI,
    "uri-reference": rf"(?:{_URI})|(?:{_RELATIVE})",
    "json-pointer": r"(?:/(?:[^~/]|~[01])*)*",
}
"""By name, a regex that the whole text matches."""
