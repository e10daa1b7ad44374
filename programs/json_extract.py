"""Extraction: free text into records that are checked, over one shared prefix.

    ramet run programs/json_extract.py
    python programs/json_extract.py --file notices.txt

`type=` takes a pydantic model: the text can only become JSON of it, with the keys in the order in
which the fields are declared, and `state.value` is an instance. What a schema can't say, such as
which fields go together, validators say; a record that they refuse is shown with the reason.
"""

import argparse
import enum
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, Field, model_validator

import ramet.lang as rm

DATA = Path(__file__).parent / "data"
EXAMPLES = (DATA / "notice_examples.txt").read_text(encoding="utf-8")


class Kind(enum.Enum):
    LOST = "lost"
    FOUND = "found"
    SALE = "sale"
    WANTED = "wanted"


class Notice(BaseModel):
    """A notice on the board."""

    kind: Kind
    what: Annotated[str, Field(min_length=1, max_length=40)]
    coins: Annotated[int, Field(ge=0, le=10_000)] | None
    phone: Annotated[str, Field(pattern="^555-[0-9]{4}$")] | None

    @model_validator(mode="after")
    def check_price(self) -> Self:
        if self.kind is Kind.SALE and self.coins is None:
            raise ValueError("what is for sale has a price")
        return self


@rm.function
def extract(s: rm.ProgramState, text: str) -> None:
    """Sets `notice`."""
    s += EXAMPLES + f"Notice: {text}\nRecord: "  # The examples are computed once for all.
    # However long `what` gets, the document is closed before the limit cuts it.
    s += rm.gen("notice", type=Notice, max_tokens=64)


def main(argv: Sequence[str] | None = None) -> None:
    """Extract the notices of a file and print their fields."""
    parser = argparse.ArgumentParser(description="Turn notices into records.")
    parser.add_argument("--file", type=Path, default=DATA / "notices.txt", help="a notice per line")
    options = parser.parse_args(argv)
    notices = options.file.read_text(encoding="utf-8").splitlines()
    states = extract.run_batch([{"text": text} for text in notices], temperature=0)
    for text, state in zip(notices, states, strict=True):
        print(text)
        try:
            print("  =>", state.value("notice"))
        except rm.ProgramError as error:
            print("  =>", error)


if __name__ == "__main__":
    main()
