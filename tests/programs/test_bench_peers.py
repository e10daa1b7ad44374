from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import fake_peer
import pytest
from stub_server import StubServer

from ramet.runtime.builtin_model import resolve_model
from ramet.runtime.tokenizer import Tokenizer

Load = Callable[[str], ModuleType]
FEW = "few-shot,judge,json,select"


@pytest.fixture
def bench(load: Load) -> ModuleType:
    return load("bench")


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(fake_peer.PEERS))
    import peer

    yield peer
    sys.modules.pop("peer")


def refusal(bench: ModuleType, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as end:
        bench.main(list(arguments))
    assert end.value.code == 2
    return capsys.readouterr().err


def failure(bench: ModuleType, *arguments: str) -> str:
    with pytest.raises(SystemExit) as end:
        bench.main(["--model", "tiny", "--quick", "--against", "vllm", *arguments])
    return str(end.value.code)


def test_a_run_beside_a_peer_gives_ratios_a_file_and_a_picture(
    bench: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python = fake_peer.interpreter(tmp_path)
    file, image = tmp_path / "found.json", tmp_path / "found.png"
    arguments = ["--model", "tiny", "--quick", "--rounds", "2", "--workloads", FEW]
    arguments += ["--against", "vllm", "--peer-python", python, "--spin", "7"]
    bench.main([*arguments, "--json", str(file), "--picture", str(image)])
    found = json.loads(file.read_text())
    assert set(found["hardware"]) == {"cpu", "cores", "instruction_sets", "memory_gib"}
    assert [(row["workload"], row["system"]) for row in found["rows"]] == [
        (name, system) for name in FEW.split(",") for system in ("ramet", "vllm")
    ]
    for row in found["rows"]:
        assert set(row) == {
            *("workload", "system", "version", "seconds", "generated_tokens"),
            *("tokens_per_s", "correct"),
        }
    by_place = {(row["workload"], row["system"]): row for row in found["rows"]}
    assert by_place["few-shot", "vllm"]["generated_tokens"] == 64
    assert by_place["few-shot", "ramet"]["generated_tokens"] == 64
    assert by_place["json", "ramet"]["correct"]
    assert not by_place["json", "vllm"]["correct"]  # It has no constraints.
    assert not by_place["few-shot", "vllm"]["correct"]  # Its outputs are others than ramet's.
    assert found["ratios"]["vllm"].keys() == set(FEW.split(","))
    assert image.read_bytes().startswith(b"\x89PNG")
    out = capsys.readouterr().out
    assert "vllm: fake 1; none; OMP_WAIT_POLICY=passive, GOMP_SPINCOUNT=7" in out
    assert "geometric mean of 4" in out

    bench.main(["--markdown", str(file)])
    printed = capsys.readouterr().out
    assert "| workload | generated tokens | ramet" in printed
    assert printed.count("\n| ") == len(FEW.split(",")) + 2
    assert "free text, since it has no constraints" in printed


def test_every_workload_runs_on_ramet_and_gives_what_is_asked_for(
    bench: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "found.json"
    bench.main(["--model", "tiny", "--quick", "--json", str(file)])
    found = json.loads(file.read_text())
    assert [row["workload"] for row in found["rows"]] == list(bench.workloads.BUILDERS)
    assert all(row["correct"] for row in found["rows"]), found["notes"]
    assert found["ratios"] == {}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--workloads", "few-shot,poems"], "--workloads: 'poems' is none of few-shot, react"),
        (["--against", "sglang"], "--against sglang: must be transformers, llama-cpp, vllm or"),
        (["--against", "vllm", "vllm", "--peer-python", "python3"], "names one twice"),
        (["--against", "vllm", "--peer-python", "/no/python"], "there is no such program"),
        (["--against", "transformers", "--peer-python", "python3"], "not named by --against"),
        (["--against", "vllm"], "vllm is not installed here; --peer-python vllm=PATH"),
        (["--rounds", "0"], "--rounds 0: must be at least 1"),
        (["--deadline", "0"], "--deadline 0: must be above 0"),
        (["--spin", "-1"], "--spin -1: must be at least 0"),
        (["--json", "/no/folder/x.json"], "there is no folder /no/folder"),
        (["--picture", "x.png"], "there are no ratios without --against"),
    ],
)
def test_what_is_wrong_is_named_before_anything_runs(
    bench: ModuleType, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    if said.startswith("vllm is not") and bench.importlib.util.find_spec("vllm"):
        pytest.skip("vllm is installed")
    assert said in refusal(bench, capsys, *arguments)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("refuses", "vllm failed: ValueError: no such weights"),
        (
            "dies",
            "vllm ended (exit status 1); the last that it printed:\n    on fire",
        ),
        ("babbles", "vllm gave no 'ready' but 'hello\\n'"),
    ],
)
def test_a_peer_that_fails_says_why(bench: ModuleType, tmp_path: Path, how: str, said: str) -> None:
    assert said in failure(bench, "--peer-python", fake_peer.interpreter(tmp_path, how))


def test_a_peer_that_stalls_ends_at_its_deadline(bench: ModuleType, tmp_path: Path) -> None:
    python = fake_peer.interpreter(tmp_path, "stalls")
    start = time.monotonic()
    said = failure(bench, "--peer-python", python, "--deadline", "3")
    assert "vllm gave no answer within 3 s (--deadline)" in said
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("better", [0, 300_000])
def test_a_peer_waits_in_the_way_that_is_faster(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, better: int
) -> None:
    from benchmarks import compare, systems

    made: list[Any] = []

    class Stub:
        def __init__(self, kind: str, python: str, load: Any, seconds: float, spin: int) -> None:
            self.spin, self.closed = spin, False
            made.append(self)

        def run(self, programs: Any) -> Any:
            return systems.Outcome(1.0 if self.spin == better else 2.0, [])

        def close(self) -> None:
            self.closed = True

    monkeypatch.setattr(compare, "Peer", Stub)
    plan = compare.Plan(["transformers"], [], ["select"], True, 1, "tiny", 60)
    assert compare.start_faster("transformers", plan).spin == better
    assert [(stub.spin, stub.closed) for stub in made] == [
        (spin, spin != better) for spin in (0, 300_000)
    ]


def test_what_was_measured_before_a_peer_died_is_kept(bench: ModuleType, tmp_path: Path) -> None:
    from benchmarks import compare, systems

    class Broken(systems.Peer):
        runs = 0

        def run(self, programs: Any) -> Any:
            self.runs += 1
            if self.runs == 3:  # The warm-up and one workload went well.
                self._process.kill()
            return super().run(programs)

    python = fake_peer.interpreter(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "Peer", Broken)
        file = tmp_path / "found.json"
        said = failure(
            bench,
            *("--peer-python", python, "--spin", "0"),
            *("--workloads", "select,judge", "--json", str(file)),
        )
    assert "ended early: judge: vllm ended" in said
    assert {row["workload"] for row in json.loads(file.read_text())["rows"]} == {"select"}


def test_an_endpoint_runs_the_same_programs(bench: ModuleType) -> None:
    from benchmarks import checking, systems, workloads

    server = StubServer(say=lambda request: " word" * 100)
    endpoint = systems.Endpoint(server.url, "m", 20)
    try:
        for name in ("few-shot", "skeleton", "self-consistency", "select"):
            workload = workloads.build(name, 1, True)
            outcome = endpoint.run(workload.programs)
            assert not checking.faults(workload, outcome, False)
        assert all(body["ignore_eos"] for body in server.bodies if not body.get("echo"))
    finally:
        endpoint.close()
        server.close()


def test_an_endpoint_that_is_not_there_is_named(bench: ModuleType) -> None:
    from benchmarks import compare, systems

    with pytest.raises(systems.Failed, match="names no model"):
        compare._served("http://127.0.0.1:9/v1")


def test_calls_are_made_in_the_order_of_their_dependencies(bench: ModuleType, peer: Any) -> None:
    from benchmarks.calls import READ, Names, fork, text

    names = Names()
    first, second, picked, last = (
        *(names.gen(2), names.gen(1, n=2), names.select(["yes", "no"]), names.gen(1)),
    )
    branches = [[text("b"), second], [text("c"), picked, READ]]
    program = [text("a"), first, fork(*branches, append=True), text("d"), text("e"), last]
    system = fake_peer.Fake()
    done = peer.run(system, [program, [text("z"), Names().gen(1)]])
    assert system.batches == [2, 2, 1]
    assert [prompt for prompt, _ in system.seen] == ["z", "a", "axxc", "axxb", "axxbxcyesde"]
    results = done["results"][0]
    assert results["v0"] == {"ids": [[120, 120]], "texts": ["xx"], "picked": None}
    assert len(results["v1"]["ids"]) == 2
    assert results["v2"]["picked"] == 0


def test_workloads_are_new_in_every_round_and_the_same_for_everybody(bench: ModuleType) -> None:
    from benchmarks import workloads
    from benchmarks.calls import calls_of, name_of

    for name in workloads.BUILDERS:
        for quick in (True, False):
            one, other = workloads.build(name, 1, quick), workloads.build(name, 2, quick)
            assert one == workloads.build(name, 1, quick)
            assert one.programs != other.programs
            assert one.about.endswith(".")
            for steps in one.programs:
                assert "Round 1. " in steps[0]["text"][:40]
                calls = [name_of(step) for step, _ in calls_of(steps)]
                assert len(set(calls)) == len(calls)


@pytest.mark.usefixtures("bench")
def test_prompts_are_as_long_as_the_page_says() -> None:
    from benchmarks import workloads

    directory = resolve_model("smollm2-135m").dir
    assert directory is not None
    tokenizer = Tokenizer.from_dir(directory)
    for number in (1, 2, 9):
        for name, tokens in (("few-shot", 1139), ("long-prompt", 2048)):
            programs = workloads.build(name, number, False).programs
            assert {len(tokenizer.encode(steps[0]["text"])) for steps in programs} == {tokens}


def test_documents_and_agreement_are_judged(bench: ModuleType) -> None:
    from benchmarks import checking, workloads
    from benchmarks.calls import Workload, text
    from benchmarks.systems import Answer, Outcome

    good = {"kind": "lost", "what": "cat", "coins": 3, "phone": "555-0100"}
    assert checking.valid(json.dumps(good), workloads.NOTICE)
    for change in ({"kind": "x"}, {"coins": 1000}, {"coins": True}, {"phone": "1"}, {"more": 1}):
        assert not checking.valid(json.dumps({**good, **change}), workloads.NOTICE)
    assert not checking.valid("{", workloads.NOTICE)

    names = bench.workloads.Names()
    workload = Workload("w", "", [[text("a"), names.gen(2), text("b"), names.gen(2)]])

    def outcome(first: int, count: int = 2) -> Outcome:
        answer = Answer(["xx"], [count], [first])
        return Outcome(1.0, [{"v0": answer, "v1": answer}])

    # The second call's prompt has a generated text in it.
    assert checking.agreement(workload, outcome(1), outcome(1)) == (1, 1)
    assert checking.agreement(workload, outcome(1), outcome(2)) == (0, 1)
    assert checking.faults(workload, outcome(1), True) == []
    assert "tokens: 3, not 2" in checking.faults(workload, outcome(1, 3), True)[0]


def test_a_peer_that_takes_no_time_has_a_ratio_above_zero(bench: ModuleType) -> None:
    rows = [
        bench.table.Measured("w", system, "1", [seconds], [1])
        for system, seconds in (("ramet", 10.0), ("vllm", 1e-5))
    ]
    found = bench.table.report(rows, {}, True, 1)
    assert found["ratios"]["vllm"]["w"] == found["geometric_means"]["vllm"] == 1e-6


@pytest.mark.parametrize("name", ["measured", "measured-quick"])
def test_the_page_holds_the_table_of_the_file(bench: ModuleType, name: str) -> None:
    folder = Path(bench.__file__ or "").parent
    measured = json.loads((folder / "benchmarks" / f"{name}.json").read_text())
    assert bench.table.markdown(measured) in (folder / "BENCHMARKS.md").read_text()
