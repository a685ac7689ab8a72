"""Plans against checkpoints and machines that are stated, not read: bytes as large as a case wants them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from halogend.checkpoint.geometry import Geometry
from halogend.config.canonical import revision
from halogend.config.facts import DeviceFacts, Facts, KvFacts, ModelFacts
from halogend.config.parse import parse
from halogend.config.placement import devices_of
from halogend.config.rules import check
from halogend.config.schema import Document, ModelConfig
from halogend.config.values import size_bytes
from halogend.control.access import Access
from halogend.control.desired import make_targets
from halogend.control.facts import Gathered, Inputs, Resolved
from halogend.control.forecast import Forecast, forecast
from halogend.control.ledger import Holding
from halogend.control.load_plan import LoadPlan
from halogend.control.machine import Machine
from halogend.control.plan import Plan
from halogend.control.plan_report import Drain, Subject, rejected, report, rooms_of
from halogend.control.planning import Draft
from halogend.control.present import Present
from halogend.control.receipts import ModelAction
from halogend.control.side_by_side import apart, model_of
from halogend.control.strategy import Now, decide
from halogend.control.target import Target

CONTEXT = 4096
CORES = 4


@dataclass
class Imagined:
    """`checkpoints`: path to {weights, working, block, stored, read, s}; `memory` of the one device."""

    memory: str = "16GiB"
    reserve: str | int = "1GiB"
    foreign: str | int = "1GiB"
    checkpoints: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    requests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def machine(self) -> Machine:
        device = DeviceFacts(
            id="cpu:0",
            memory_bytes=size_bytes(self.memory),
            reserve_bytes=size_bytes(self.reserve),
            foreign_bytes=size_bytes(self.foreign),
            aliases=("cpu",),
            cores=tuple(range(CORES)),
        )
        return Machine(CORES, True, (device,))

    def gather(self, document: Document) -> Gathered:
        machine = self.machine.as_divided(document)
        resolved = {
            model.name: self._resolved(model, devices_of(model, document, machine.devices)) for model in document.models
        }
        facts = {
            name: ModelFacts(
                format="gguf",
                context_length=CONTEXT,
                weight_bytes=each.load.held_bytes,
                working_bytes=each.working_bytes,
                kv=each.kv,
            )
            for name, each in resolved.items()
        }
        return Gathered(
            Facts(models=facts, devices=machine.devices, host=self.machine.host), resolved, machine, Access()
        )

    def targets(self, text: str) -> tuple[Document, dict[str, Target]]:
        parsed = parse(text.encode(), "", {})
        assert parsed.document is not None, parsed.problems
        gathered = self.gather(parsed.document)
        assert check(parsed, gathered.facts) == ()
        return parsed.document, make_targets(parsed.document, gathered)

    def serving(self, targets: Mapping[str, Target]) -> Standing:
        """These models serve, each as it would after a start."""
        parts = apart({}, targets)
        ends = forecast({}, parts.present, parts.wanted).after
        named = {(model_of(key), each.device): ends[key] for key, each in parts.wanted.items()}
        held, present = {}, {}
        for name, target in targets.items():
            replicas = []
            for index, part in enumerate(target.parts):
                held[f"{name}#1" + (f"/{index}" if index else "")] = named[name, part.device]
                reserve = part.spec.engine.pool_reserve_bytes
                replicas.append(Present(target.seen_from(part.device), list(held)[-1], reserve, device=part.device))
            present[name] = replace(replicas[0], others=tuple(replicas[1:]))
        return Standing(held, present, dict(targets))

    def plan(self, running: str, wanted: str) -> dict[str, Any]:
        """The report of what `wanted` would do where `running` runs."""
        old, old_targets = self.targets(running) if running.strip() else (None, {})
        standing = self.serving(old_targets)
        parsed = parse(wanted.encode(), "new.yaml", {})
        gathered = None if parsed.partial is None else self.gather(parsed.partial)
        problems = check(parsed, None if gathered is None else gathered.facts)
        active = None if old is None else revision(old)
        if problems or parsed.document is None or gathered is None:
            return rejected(Subject("new.yaml", None, active), problems)
        targets = make_targets(parsed.document, gathered)
        now = Now(standing.goals, standing.held, standing.present)
        plan, bytes_ = decide(now, targets, (old, parsed.document))
        return report(
            Subject("new.yaml", revision(parsed.document), active),
            plan,
            bytes_,
            rooms_of(parsed.document, self.machine.devices),
            self._drains(plan),
            [Draft(parsed, (), parsed.document).placed(each) for each in plan.problems],
        )

    def _drains(self, plan: Plan) -> dict[str, Drain]:
        ends = (ModelAction.REPLACE, ModelAction.REMOVE)
        return {
            each.model: Drain(**{"limit_s": 30.0, "running": 0, "may_outlive": 0, **self.requests.get(each.model, {})})
            for each in plan.models
            if each.action in ends
        }

    def _resolved(self, model: ModelConfig, devices: tuple[str, ...]) -> Resolved:
        known = {"weights": "1GiB", "working": "256MiB", "block": "1MiB", "stored": "F16", "s": 5.0}
        known |= self.checkpoints.get(model.model, {})
        held = size_bytes(known["weights"])
        if model.precision in {"int8", "int4"}:
            held //= 2 if model.precision == "int8" else 4
        return Resolved(
            config=model,
            geometry=_GEOMETRY,
            load=LoadPlan(
                stored=known["stored"],
                precision="bf16" if model.precision == "auto" else model.precision,
                read_bytes=size_bytes(known.get("read", known["weights"])),
                held_bytes=held,
                requantised=known["stored"].startswith("Q") and model.precision != "auto",
                expected_s=known["s"],
            ),
            working_bytes=size_bytes(known["working"]),
            kv=KvFacts(size_bytes(known["block"]), (None,), 256),
            compute_dtype="bf16",
            kv_dtype="bf16" if model.kv_cache_dtype == "auto" else model.kv_cache_dtype,
            devices=devices,
            template=model.chat_template,
            inputs=Inputs((model.model, "0"), None),
            sampling={},
        )


@dataclass(frozen=True)
class Standing:
    """What runs, as a plan and a forecast want it."""

    held: dict[str, Holding]
    present: dict[str, Present]
    goals: dict[str, Target | None]

    def forecast(self, wanted: Mapping[str, Target]) -> Forecast:
        return forecast(self.held, self.present, wanted)


def imagined(text: str) -> Imagined:
    """From the head of a case."""
    return Imagined(**(yaml.safe_load(text) or {}))


_GEOMETRY = Geometry(
    architecture="llama",
    layers=1,
    hidden=64,
    heads=1,
    kv_heads=1,
    head_dim=64,
    ffn=64,
    vocab=64,
    context_length=CONTEXT,
    rms_eps=1e-5,
    windows=(None,),
    ropes=(),
    rope_of=(),
    query_scale=1.0,
    tied_embeddings=True,
)
