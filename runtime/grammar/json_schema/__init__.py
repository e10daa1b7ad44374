"""The front end of `json_schema`: what a schema's text means, and a grammar of its documents.

`front` is the door. `text`, `references` and `normal` read a schema of any draft into one graph of
`Schema`s. `builder` makes a rule of each set of schemas that one value must satisfy: `reading` says
what they demand of a kind of value, `trees` and `shapes` what that comes to for arrays and objects,
which `arrays` and `objects` write, and `language` for strings (`search`, `formats`) and numbers
(`decimals`), which `spelling` writes. `rules` is the grammar as it grows. `checking` judges a
finished document by `values`.

What is exact, and what is restricted, on purpose:

- declared names stand in the order in which the text first has them, other names behind them; a
  name that isn't declared may come twice, which no grammar can tell (`checking` can)
- whole numbers have no point where they must be integers; numbers have at most 40 digits before and
  after the point, and exponents only where nothing but their sign is bounded
- known formats (`formats`) are enforced, unknown ones and unknown keywords are annotations
- patterns mean what `re.search` makes of them
"""
