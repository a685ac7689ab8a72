"""What a HalogenModel's status holds: the operator writes it whole, people and tools read it.

Owns names, bounds and meanings. What the values are in a given case, and which reasons conditions have, is the
operator's. Revisions are shown as their first 12 digits.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from halogend.config.section import Section

MOST_PODS = 32
MOST_CONDITIONS = 16
MOST_PROBLEMS = 16
MOST_CHANGES = 64

ShortRevision = Annotated[str, Field(max_length=64)]
Word = Annotated[str, Field(max_length=316)]
Line = Annotated[str, Field(max_length=1024)]
Count = Annotated[int, Field(ge=0, le=1 << 53)]


class RevisionStatus(Section):
    """One revision of the document."""

    revision: ShortRevision = Field(description="First 12 digits of the document's sha256.")
    generation: Count | None = Field(default=None, description="The generation of the HalogenModel it was made from.")


class PodStatus(Section):
    """One pod, as its daemon last told."""

    name: Word = Field(description="Its name.")
    ready: bool | None = Field(default=None, description="Whether it takes traffic.")
    revision: ShortRevision | None = Field(default=None, description="The revision that it serves.")
    desired: ShortRevision | None = Field(default=None, description="The revision that it was given last.")
    receipt: Word | None = Field(default=None, description="Id of the receipt of that, in its daemon.")
    outcome: Word | None = Field(default=None, description="How that ended; absent while it is under way.")
    message: Line | None = Field(default=None, description="What is in its way.")


class ReceiptStatus(Section):
    """The newest receipt of a change that the operator asked for."""

    id: Word = Field(description="Its id, in the daemon of the pod.")
    pod: Word | None = Field(default=None, description="The pod.")
    generation: Count | None = Field(default=None, description="The generation that was asked for.")
    revision: ShortRevision | None = Field(default=None, description="The revision that was asked for.")
    outcome: Word | None = Field(default=None, description="How it ended; absent while it is under way.")
    problems: tuple[Line, ...] = Field(
        default=(), description="What was wrong, each with its place in the spec.", max_length=MOST_PROBLEMS
    )


class PlanChange(Section):
    """One field that an edit changes."""

    field: Word = Field(description="The field.")
    old: Line | None = Field(default=None, description="Its value now.")
    new: Line | None = Field(default=None, description="Its value after.")
    apply: Word | None = Field(default=None, description="What a change of it means: live, generation, ...")


class PlanStatus(Section):
    """What the spec would do, under the annotation halogen.dev/plan-only; nothing is done."""

    generation: Count | None = Field(default=None, description="The generation that was planned.")
    pod: Word | None = Field(default=None, description="The pod that was asked.")
    outcome: Word | None = Field(default=None, description="unchanged, changes or rejected.")
    current: ShortRevision | None = Field(default=None, description="The revision that the pod has now.")
    planned: ShortRevision | None = Field(default=None, description="The revision that the spec is.")
    action: Word | None = Field(default=None, description="What would happen to the model: keep, update, replace, ...")
    strategy: Word | None = Field(default=None, description="How a new generation would take the old one's place.")
    steps: tuple[Word, ...] = Field(default=(), description="The steps, in order.", max_length=MOST_CHANGES)
    changes: tuple[PlanChange, ...] = Field(default=(), description="What changes.", max_length=MOST_CHANGES)
    replaces_pods: bool | None = Field(
        default=None, alias="replacesPods", description="Whether pods would be replaced."
    )
    load_s: Annotated[float, Field(ge=0)] | None = Field(
        default=None, alias="loadSeconds", description="How long the load is expected to take, in seconds."
    )
    problems: tuple[Line, ...] = Field(
        default=(), description="Why it would be rejected, each with its place.", max_length=MOST_PROBLEMS
    )
    warnings: tuple[Line, ...] = Field(default=(), description="What to know beforehand.", max_length=MOST_PROBLEMS)


class ProgressStatus(Section):
    """How far a change has come, for its deadline."""

    generation: Count = Field(description="The generation that is on its way.")
    at: Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})] = Field(
        description="When it last came further than before. `update.progressDeadlineSeconds` counts from here."
    )
    mark: Word = Field(
        description="How far that was: pods that serve, whose daemon serves, that were handed the generation, that "
        "answer, that are there, and percent loaded."
    )


class ConditionStatus(Section):
    """One thing that is true, false or not known, and why."""

    type: Word = Field(description="Ready, Validated, Reconciling, Stalled or Degraded.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it is so.")
    observed_generation: Count | None = Field(
        default=None, alias="observedGeneration", description="The generation this was said of."
    )
    last_transition_time: Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})] = Field(
        alias="lastTransitionTime", description="When `status` changed last."
    )
    reason: Word = Field(description="One word for programs; docs/kubernetes.md lists all.")
    message: Annotated[str, Field(max_length=32_768)] = Field(description="One sentence for people.")


class HalogenModelStatus(Section):
    """The status."""

    observed_generation: Count | None = Field(
        default=None, alias="observedGeneration", description="The generation that all of the status was said of."
    )
    selector: Line | None = Field(default=None, description="Label selector of the pods, for the scale subresource.")
    replicas: Count | None = Field(default=None, description="Pods there are.")
    ready_replicas: Count | None = Field(default=None, alias="readyReplicas", description="Pods that take traffic.")
    updated_replicas: Count | None = Field(
        default=None, alias="updatedReplicas", description="Pods that serve the desired revision."
    )
    active: RevisionStatus | None = Field(default=None, description="What is served.")
    desired: RevisionStatus | None = Field(default=None, description="What the spec asks for.")
    pods: tuple[PodStatus, ...] = Field(default=(), description="The pods, at most 32.", max_length=MOST_PODS)
    last_receipt: ReceiptStatus | None = Field(
        default=None, alias="lastReceipt", description="The newest receipt of a change that the operator asked for."
    )
    progress: ProgressStatus | None = Field(
        default=None, description="How far a change has come, and when it moved last; absent when all is done."
    )
    plan: PlanStatus | None = Field(default=None, description="Under halogen.dev/plan-only: what the spec would do.")
    conditions: tuple[ConditionStatus, ...] = Field(
        default=(), description="Ready, Validated, Reconciling, Stalled and Degraded.", max_length=MOST_CONDITIONS
    )
