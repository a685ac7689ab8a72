"""`halogend bench`: side-by-side benchmarks. What needs torch runs as a process of its own."""

from __future__ import annotations

import argparse
import subprocess
import sys
from typing import Any

SCHEDULING = {
    "mixed": "time to first token of short requests beside long ones, with lanes and without",
    "gap": "the largest gap of running streams beside very long prompts",
    "full": "minutes of load on a KV pool that is always full",
    "steps": "what a step takes: the constants that the simulator reckons with",
}
SIMULATIONS = ("mixed", "fragmentation", "reuse", "flood", "knee")


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("bench", help="benchmarks beside the peers")
    kinds = parser.add_subparsers(required=True, metavar="WHAT")
    engine = kinds.add_parser(
        "engine",
        help="prefill and decode speed beside llama.cpp's",
        description="Prints tokens a second of our engine and of llama.cpp (package xllamacpp), in one run.",
    )
    engine.add_argument("models", nargs="+", metavar="MODEL.gguf")
    engine.add_argument("--threads", type=int, help="of either side (default: the cores this process may use)")
    engine.add_argument("--runs", type=int, help="of each side, in turn; the median is shown (default 3)")
    engine.add_argument("--precision", choices=("bf16", "fp32"), help="of our weights (default: as a daemon would)")
    engine.add_argument("--json", action="store_true", help="print figures of every run as JSON")
    engine.set_defaults(run=run_engine)
    dequant = kinds.add_parser(
        "dequant",
        help="decoding speed of every GGUF type beside the gguf package's",
        description="Prints elements a second, decoded by us and by the gguf package with one thread, in one run.",
    )
    dequant.add_argument("--elements", type=int, help="decoded in one run (default 4194304)")
    dequant.add_argument("--runs", type=int, help="of each side, in turn; the best is shown (default 5)")
    dequant.add_argument("--json", action="store_true", help="print the figures as JSON")
    dequant.set_defaults(run=run_dequant)
    codecs = kinds.add_parser(
        "codecs",
        help="decoding speed of the matrices of Hugging Face directories",
        description="Prints elements a second of plain, GPTQ, AWQ and FP8 matrices, decoded with one thread.",
    )
    codecs.add_argument("--rows", type=int, help="of the matrix (default 4096)")
    codecs.add_argument("--columns", type=int, help="of the matrix, a multiple of 128 (default 4096)")
    codecs.add_argument("--runs", type=int, help="of each; the best is shown (default 5)")
    codecs.add_argument("--json", action="store_true", help="print the figures as JSON")
    codecs.set_defaults(run=run_codecs)
    quality = kinds.add_parser(
        "perplexity",
        help="what each quantisation of a v2 checkpoint costs in quality",
        description="Converts each model to bf16, int8, int4 and fp8, and prints the perplexity of one fixed text, side"
        " by side.",
    )
    quality.add_argument("models", nargs="+", metavar="MODEL")
    quality.add_argument("--dir", help="where the conversions are made; they are removed again (default: as mktemp)")
    quality.add_argument("--threads", type=int, help="of the engine (default: the cores this process may use)")
    quality.add_argument("--json", action="store_true", help="print the figures as JSON")
    quality.set_defaults(run=run_perplexity)
    _add_load(kinds)
    _add_sim(kinds)
    for name, text in SCHEDULING.items():
        _add_scheduling(kinds, name, text)


def _add_scheduling(kinds: Any, name: str, text: str) -> None:
    description = f"Measures {text}, on the real engine. `halogend bench {name} MODEL --help` lists what can be set."
    parser = kinds.add_parser(name, help=text, description=description)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("options", nargs=argparse.REMAINDER, metavar="...", help="--json, ...")
    parser.set_defaults(run=run_scheduling, what=name)


def _add_sim(kinds: Any) -> None:
    sim = kinds.add_parser(
        "sim",
        help="the scheduler's policies side by side, in simulated time",
        description="Runs the real scheduler and block pool with a model of how long steps take; exits with 1 when"
        " a bar is missed. `halogend bench sim WHAT --help` lists what can be set.",
    )
    sim.add_argument("what", choices=SIMULATIONS, metavar="WHAT", help=", ".join(SIMULATIONS))
    sim.add_argument("options", nargs=argparse.REMAINDER, metavar="...", help="--seed N, --profile FILE, --json, ...")
    sim.set_defaults(run=run_sim)


def _add_load(kinds: Any) -> None:
    load = kinds.add_parser(
        "load",
        help="time and memory of loading a model beside a plain read and conversion, or beside other formats",
        description="Prints what loading takes beside the least it could: reading the files and converting each"
        " matrix once. PATH is a model; --synthetic makes one of random weights. With --arms each PATH is a model of"
        " its own: whole engines are started in turn, llama.cpp beside each GGUF file, up to the first token.",
    )
    load.add_argument("paths", nargs="*", metavar="PATH")
    load.add_argument("--arms", action="store_true", help="formats beside each other, from nothing to the first token")
    load.add_argument("--synthetic", metavar="SIZE", help="a model of random weights, as 4GiB or 300MiB")
    load.add_argument("--format", help="of the synthetic model: bf16 (default), fp16, gptq, awq, fp8, q4_k, q8_0")
    load.add_argument(
        "--formats", help="of the synthetic models with --arms, with commas; v2-bf16, v2-int8, v2-int4 too"
    )
    load.add_argument("--dir", help="where it is made and kept (default .cache/bench)")
    load.add_argument("--precision", help="what is held: bf16, fp32, int8, int4 (default: as a daemon would)")
    load.add_argument("--threads", type=int, help="that load (default: as an engine chooses)")
    load.add_argument("--cache", help="the page cache before each run: warm, cold, both (default)")
    load.add_argument("--start", help="with --arms, engines that stand by (spare, the default), new ones, or both")
    load.add_argument("--runs", type=int, help="of each side, in turn; the median is shown (default 3)")
    load.add_argument("--json", action="store_true", help="print the figures of every run as JSON")
    load.set_defaults(run=run_load)


def run_engine(args: argparse.Namespace) -> int:
    return _run("halogend.engine.bench", args, ("threads", "runs", "precision"), *args.models)


def run_dequant(args: argparse.Namespace) -> int:
    return _run("halogend.engine.bench.dequant", args, ("elements", "runs"))


def run_codecs(args: argparse.Namespace) -> int:
    return _run("halogend.engine.bench.codecs", args, ("rows", "columns", "runs"))


def run_perplexity(args: argparse.Namespace) -> int:
    return _run("halogend.engine.bench.perplexity", args, ("dir", "threads"), *args.models)


def run_load(args: argparse.Namespace) -> int:
    own = "formats" if args.arms else "format"
    options = ("synthetic", own, "dir", "precision", "threads", "cache", *(("start",) if args.arms else ()), "runs")
    return _run(f"halogend.engine.bench.{'load_arms' if args.arms else 'load'}", args, options, *args.paths)


def run_scheduling(args: argparse.Namespace) -> int:
    command = [sys.executable, "-m", f"halogend.engine.bench.{args.what}", args.model, *args.options]
    return subprocess.run(command, check=False).returncode


def run_sim(args: argparse.Namespace) -> int:
    command = [sys.executable, "-m", "halogend.sim", args.what, *args.options]
    return subprocess.run(command, check=False).returncode


def _run(module: str, args: argparse.Namespace, options: tuple[str, ...], *operands: str) -> int:
    """Runs `module` as a program with those of `options` that were given; its exit status."""
    command = [sys.executable, "-m", module, *operands]
    for name in options:
        if (value := getattr(args, name)) is not None:
            command += [f"--{name}", str(value)]
    if args.json:
        command.append("--json")
    return subprocess.run(command, check=False).returncode
