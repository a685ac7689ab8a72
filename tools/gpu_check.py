"""All that needs a GPU, in one run of under five minutes.

    python tools/gpu_check.py [--out FOLDER] [--limit 290] [--interpreter]

    tests      the tests of Triton's kernels, unchanged, on the device
    benches    kernels/bench: kernels beside what the device did in the same run, some with a bar to reach
    engine     steps of the engine on a model of random weights that is made here, with graphs and without

Compiling is part of it. It needs no network, and beside the repository no files; the model lies in a temporary folder.
FOLDER gets gpu-check.json and what each part printed. The exit status is 0 if all passed and every bar was reached, 1
if not, 2 where there is no GPU. --interpreter goes the same way without one: few tests and small shapes, times that
mean nothing, and bars that are not held.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BENCHES = ROOT / "kernels" / "bench"
# Those with a bar. They come before the engine, and the others after it, as far as time is left.
FIRST = ("paged_decode", "paged_prefill", "quantised_linear")
LEAST_S = 15.0  # for a bench to be begun
# Of the interpreter's run: enough to see that each part works.
FEW_TESTS = ("test_triton_rotate.py", "test_triton_activation.py")
FEW_BENCHES = ("paged_decode", "rotate")

TESTS_LIMIT_S = 150.0
MOST_AT_ONCE = 8
BENCH_LIMIT_S = 40.0
ENGINE_LIMIT_S = 90.0
MODEL_BYTES = 2_600_000_000  # in bf16: one of about 1.3 thousand million weights
SMALL_MODEL_BYTES = 3_000_000

PYTEST_INI = """[pytest]
markers =
    slow: takes more than a few seconds
    models: needs the two real models
"""


@dataclass(frozen=True, slots=True)
class Part:
    """What one part came to: `problems` says why it did not pass, `told` is what it measured."""

    name: str
    seconds: float
    problems: tuple[str, ...]
    told: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """Where things go, how long they may take, and what they run on."""

    out: Path
    ends: float  # of time.monotonic
    interpreter: bool

    @property
    def device(self) -> str:
        return "cpu" if self.interpreter else "cuda"

    @property
    def environment(self) -> dict[str, str]:
        paths = [str(ROOT), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "PYTHONUNBUFFERED": "1",
            "TRITON_INTERPRET": "1" if self.interpreter else "0",
            "HALOGEN_TEST_DEVICE": self.device,
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # what torch asks for where memory is to be poisoned
        }

    def child(self, name: str, command: Sequence[str], limit_s: float) -> list[str]:
        """Runs it; its output goes to a file. What went wrong, in words."""
        limit_s = min(limit_s, self.ends - time.monotonic())
        if limit_s <= 0:
            return ["not run: no time was left"]
        log = self.out / f"{name}.log"
        with log.open("wb") as file:
            try:
                done = subprocess.run(
                    command,
                    cwd=ROOT,
                    env=self.environment,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    timeout=limit_s,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return [f"stopped after {limit_s:.0f} s"]
        if done.returncode:
            last = log.read_text(errors="replace").strip().splitlines()[-1:] or ["nothing was printed"]
            return [f"exit status {done.returncode}: {last[0]}"]
        return []


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "gpu-check")), metavar="FOLDER")
    parser.add_argument("--limit", type=float, default=290.0, metavar="SECONDS", help="of everything (default 290)")
    parser.add_argument("--interpreter", action="store_true", help="without a GPU: shows that the parts work")
    asked = parser.parse_args(arguments)
    started = time.monotonic()
    machine = machine_facts()
    if not asked.interpreter and machine["gpu"] is None:
        print("there is no GPU that torch sees; --interpreter goes the same way without one")
        return 2
    asked.out.mkdir(parents=True, exist_ok=True)
    run = Run(asked.out.resolve(), started + asked.limit, asked.interpreter)
    print(" ".join(f"{key} {value}" for key, value in machine.items()))
    parts: list[Part] = []
    for part in all_parts(run):
        parts.append(part)
        print(shown(part), flush=True)
        report = {"machine": machine, "seconds": time.monotonic() - started, "parts": [asdict(part) for part in parts]}
        (run.out / "gpu-check.json").write_text(json.dumps(report, indent=2) + "\n")
    failed = [part.name for part in parts if part.problems]
    print(f"{time.monotonic() - started:.0f} s: " + (f"NOT passed: {', '.join(failed)}" if failed else "all passed"))
    return 1 if failed else 0


def machine_facts() -> dict[str, str | None]:
    import torch  # noqa: PLC0415 (this process needs it for these facts alone)
    import triton  # noqa: PLC0415 (as above)

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"gpu": gpu, "torch": torch.__version__, "triton": triton.__version__, "python": sys.version.split()[0]}


def all_parts(run: Run) -> Iterator[Part]:
    """One after the other: what is timed has the device to itself."""
    yield kernel_tests(run)
    names = benches(run)
    for name in names:
        if name in FIRST:
            yield bench(run, name)
    yield engine(run)
    for name in names:
        if name not in FIRST:
            left = run.ends - time.monotonic()
            yield (
                bench(run, name) if left > LEAST_S else Part(f"bench {name}", 0.0, (), {"table": ["not run: no time"]})
            )


def kernel_tests(run: Run) -> Part:
    """Files side by side, on as many cores as there are: most of the time goes into compiling."""
    files = [path for path in sorted((ROOT / "tests/kernels").glob("test_triton_*.py")) if needs_device(path)]
    if run.interpreter:
        files = [path for path in files if path.name in FEW_TESTS]
    (run.out / "pytest.ini").write_text(PYTEST_INI)
    started = time.monotonic()
    ends = started + TESTS_LIMIT_S
    with ThreadPoolExecutor(min(len(files), MOST_AT_ONCE, os.cpu_count() or 1)) as pool:
        outcomes = list(pool.map(lambda path: file_tests(run, path, ends - time.monotonic()), files))
    counts: Counter[str] = Counter()
    for counted, _ in outcomes:
        counts.update(counted)
    problems = [problem for _, own in outcomes for problem in own]
    return Part("tests", time.monotonic() - started, tuple(problems), dict(counts))


def file_tests(run: Run, path: Path, limit_s: float) -> tuple[dict[str, int], list[str]]:
    """As `junit`, for one file; what else went wrong with it, if no test did."""
    results = run.out / f"{path.stem}.xml"
    results.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(run.out / "pytest.ini"), "--rootdir", str(ROOT)]
    command += ["-p", "no:cacheprovider", "-m", "not slow", f"--junitxml={results}", str(path)]
    problems = run.child(path.stem, command, limit_s)
    counts, failed = junit(results)
    return counts, failed or [f"{path.name}: {problem}" for problem in problems]


def needs_device(path: Path) -> bool:
    return "device: torch.device" in path.read_text()


def junit(path: Path) -> tuple[dict[str, int], list[str]]:
    """How many there were of each outcome, and the names of those that did not pass."""
    if not path.is_file():
        return {}, []
    cases = list(ET.parse(path).getroot().iter("testcase"))  # noqa: S314 (pytest has written it just now)
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = [case for case in cases if case.find("skipped") is not None]
    counts = {"passed": len(cases) - len(failed) - len(skipped), "failed": len(failed), "skipped": len(skipped)}
    return counts, [f"{case.get('classname')}.{case.get('name')}" for case in failed]


def benches(run: Run) -> list[str]:
    """Those that share the frame."""
    framed = [path.stem for path in sorted(BENCHES.glob("*.py")) if "frame.main(" in path.read_text()]
    return [name for name in framed if name in FEW_BENCHES] if run.interpreter else framed


def bench(run: Run, name: str) -> Part:
    told = run.out / f"bench-{name}.json"
    told.unlink(missing_ok=True)
    command = [sys.executable, str(BENCHES / f"{name}.py"), "--device", run.device, "--json", str(told)]
    started = time.monotonic()
    problems = run.child(f"bench-{name}", [*command, *(["--small"] if run.interpreter else [])], BENCH_LIMIT_S)
    measured = json.loads(told.read_text()) if told.is_file() else {}
    if not run.interpreter:
        problems += missed_bars(measured)
    return Part(f"bench {name}", time.monotonic() - started, tuple(problems), measured)


def missed_bars(measured: Mapping[str, Any]) -> list[str]:
    return [
        f"{result['op']} {result['shape']}: {result['reached']:.2f} of {result['bar']['least']:g} "
        f"beside {result['bar']['beside']}"
        for result in measured.get("results", [])
        if result["bar"] is not None and result["reached"] < result["bar"]["least"]
    ]


def engine(run: Run) -> Part:
    told = run.out / "engine.json"
    told.unlink(missing_ok=True)
    device, nbytes = ("cpu:0", SMALL_MODEL_BYTES) if run.interpreter else (engine_device(), MODEL_BYTES)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "halogend.engine.bench.device_steps", "--folder", folder, "--json", str(told)]
        command += ["--device", device, "--bytes", str(nbytes), *(["--small"] if run.interpreter else [])]
        problems = run.child("engine", command, ENGINE_LIMIT_S)
    measured = json.loads(told.read_text()) if told.is_file() else {}
    return Part("engine", time.monotonic() - started, tuple(problems), measured)


def engine_device() -> str:
    import torch  # noqa: PLC0415 (as above)

    return "rocm:0" if torch.version.hip else "cuda:0"


def shown(part: Part) -> str:
    """Its lines of the table."""
    lines = [f"{part.name}: {part.seconds:.0f} s, " + ("passed" if not part.problems else "NOT passed")]
    lines += [f"    {problem}" for problem in part.problems]
    if part.name == "tests":
        lines.append("    " + ", ".join(f"{count} {outcome}" for outcome, count in part.told.items()))
    lines += [bench_line(result) for result in part.told.get("results", [])]
    lines += [f"    {line}" for line in part.told.get("table", [])]
    return "\n".join(lines)


def bench_line(result: Mapping[str, Any]) -> str:
    others = "".join(f"  {name} x{seconds / result['seconds']:.2f}" for name, seconds in result["others"].items())
    bar = "" if result["bar"] is None else f"  bar {result['bar']['least']:g} beside {result['bar']['beside']}"
    return (
        f"    {result['op']:<18} {result['shape']:<38} {result['seconds'] * 1e6:>10.1f} us "
        f"{result['copy_share']:>7.1%} of copy {result['product_share']:>7.1%} of product{others}{bar}"
    )


if __name__ == "__main__":
    sys.exit(main())
