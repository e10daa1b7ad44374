from ramet.runtime.simulation.cost_model import PRESETS
from ramet.runtime.simulation.steps import Row, rows, table, textbook_steps


def test_the_textbook() -> None:
    assert (textbook_steps(continuous=False), textbook_steps(continuous=True)) == (11, 8)


def test_every_step_has_its_figures() -> None:
    found = list(rows(16, PRESETS["llama-8b-h100"]))
    assert list(dict.fromkeys(row.step for row in found)) == [
        "continuous batching (Orca)",
        "paged memory (vLLM)",
        "stall-free chunks (Sarathi-Serve)",
        "radix tree (SGLang)",
        "cache-aware order (SGLang)",
        "eviction by what is known ahead",
    ]
    used = [row for row in found if row.figure == "reserved KV in use"]
    assert all(float(row.with_it.rstrip("%")) >= 96 for row in used)
    assert all(float(row.without.rstrip("%")) < 96 for row in used)
    assert len(table(found).splitlines()) == len(found) + 1


def test_the_table_shows_all_columns() -> None:
    text = table([Row("step", "load", "figure", "1", "2", "paper")])
    assert text.splitlines()[1].split() == ["step", "load", "figure", "1", "2", "paper"]
