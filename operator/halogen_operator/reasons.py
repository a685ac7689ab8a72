"""Every reason that a condition may have, what it means, and what to do: one table, from which the docs are made.

Constants alone. A condition with a reason that is not here is a fault of ours.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Kind(enum.StrEnum):
    """The conditions of a HalogenModel; all five are there always."""

    READY = "Ready"
    VALIDATED = "Validated"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    DEGRADED = "Degraded"


class Why(enum.StrEnum):
    """Reasons, as they stand in conditions and events."""

    SERVING = "Serving"
    SCALED_TO_ZERO = "ScaledToZero"
    ACCEPTED = "Accepted"
    NOT_JUDGED = "NotJudged"
    PROGRESSING = "Progressing"
    PLAN_ONLY = "PlanOnly"
    AS_ASKED = "AsAsked"
    REJECTED = "Rejected"
    LOAD_FAILED = "LoadFailed"
    ROLLED_BACK = "RolledBack"
    CHANGES_HELD = "ChangesHeld"
    DEADLINE = "ProgressDeadlineExceeded"
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_PULL = "ImagePull"
    CONTAINER_CONFIG = "ContainerConfig"
    CRASH_LOOP = "CrashLoop"
    POD_FAILED = "PodFailed"
    PODS_NOT_MADE = "PodsNotMade"
    ENGINE_FAILED = "EngineFailed"
    UNREACHABLE = "AdminUnreachable"
    ENGINE_DEGRADED = "EngineDegraded"
    TOO_FEW_PODS = "TooFewPods"
    CHILD_REFUSED = "ChildRefused"
    SECRET_BROKEN = "SecretBroken"  # noqa: S105  the name of a reason


@dataclass(frozen=True, slots=True)
class Reason:
    """`kinds` are the conditions that may have it, and with which status; `remedy` is empty where nothing is to be
    done."""

    why: Why
    kinds: tuple[tuple[Kind, str], ...]
    meaning: str
    remedy: str = ""

    @property
    def name(self) -> str:
        return self.why.value


_READY, _VALIDATED, _RECONCILING = Kind.READY, Kind.VALIDATED, Kind.RECONCILING
_STALLED, _DEGRADED = Kind.STALLED, Kind.DEGRADED
_STOPPED = ((_READY, "False"), (_RECONCILING, "False"), (_STALLED, "True"))


REASONS = (
    Reason(
        Why.SERVING,
        ((_READY, "True"), (_RECONCILING, "False")),
        "What the spec asks for answers requests, in as many pods as `update.maxUnavailable` demands at the least.",
    ),
    Reason(
        Why.SCALED_TO_ZERO,
        ((_READY, "True"), (_RECONCILING, "False")),
        "No pod is asked for, and none is there.",
    ),
    Reason(Why.ACCEPTED, ((_VALIDATED, "True"),), "A pod took the document of this spec: its files and devices fit."),
    Reason(
        Why.NOT_JUDGED,
        ((_VALIDATED, "Unknown"),),
        "The spec is sound by itself. No pod has looked at its files and devices yet.",
    ),
    Reason(
        Why.PROGRESSING,
        ((_READY, "False"), (_RECONCILING, "True"), (_STALLED, "False")),
        "On the way to what the spec asks for; the message says what it waits for.",
    ),
    Reason(
        Why.PLAN_ONLY,
        ((_READY, "False"), (_RECONCILING, "False")),
        "The annotation `halogen.dev/plan-only` holds this spec back; `status.plan` says what it would do.",
        "Take the annotation away to apply it.",
    ),
    Reason(
        Why.AS_ASKED,
        ((_STALLED, "False"), (_DEGRADED, "False")),
        "Nothing is wrong here.",
    ),
    Reason(
        Why.REJECTED,
        (*_STOPPED, (_VALIDATED, "False")),
        "The spec has a fault, which the operator or a pod found; the message says where. What served serves on.",
        "Edit the spec there. Where the spec is right: mend what it names, and `halogend reload` in the pod.",
    ),
    Reason(
        Why.LOAD_FAILED,
        _STOPPED,
        "A pod took the document and could not carry it out; the message says why. What served serves on, unless "
        "the strategy was `replace`. No other pod was given it.",
        "Mend what failed and `halogend reload` in the pod, or edit the spec, or go back to the one before.",
    ),
    Reason(
        Why.ROLLED_BACK,
        _STOPPED,
        "The new generation failed during its probation, and the one before serves again.",
        "See the receipt that `status.lastReceipt` names; edit the spec.",
    ),
    Reason(
        Why.CHANGES_HELD,
        (*_STOPPED, (_DEGRADED, "True")),
        "Somebody holds changes in a pod (`halogend hold`); the message says who, since when.",
        "`halogend resume` in that pod.",
    ),
    Reason(
        Why.DEADLINE,
        _STOPPED,
        "Nothing moved for `update.progressDeadlineSeconds`. It goes on by itself as soon as something does.",
        "The message says what it waits for.",
    ),
    Reason(
        Why.UNSCHEDULABLE,
        _STOPPED,
        "No node takes a pod, for longer than the deadline.",
        "Free or add a node with what `resources`, `device`, `nodeSelector` and `tolerations` want, or ask for less.",
    ),
    Reason(
        Why.IMAGE_PULL,
        _STOPPED,
        "A pod's image cannot be pulled, for longer than the deadline.",
        "Check `image` and `imagePullSecrets`.",
    ),
    Reason(
        Why.CONTAINER_CONFIG,
        _STOPPED,
        "A pod's container cannot be made: a Secret or its entry is not there, most of the time.",
        "Check what `auth` and `volumes` name.",
    ),
    Reason(
        Why.CRASH_LOOP,
        _STOPPED,
        "A pod's daemon ends again and again, for longer than the deadline.",
        "`kubectl logs --previous`; the message has how it ended last.",
    ),
    Reason(
        Why.POD_FAILED,
        _STOPPED,
        "A pod was evicted or failed as a whole.",
        "`kubectl describe pod`; the Deployment makes another one.",
    ),
    Reason(
        Why.PODS_NOT_MADE,
        _STOPPED,
        "The Deployment may not make pods: a quota or an admission policy refuses them.",
        "The message has the words of who refused.",
    ),
    Reason(
        Why.ENGINE_FAILED,
        _STOPPED,
        "The model does not serve in a pod, although its document was taken: its engine died, or does not come up.",
        "`halogend status` in that pod; the message has its last words.",
    ),
    Reason(
        Why.UNREACHABLE,
        (*_STOPPED, (_DEGRADED, "True")),
        "The admin API of a pod does not answer the operator. A pod that is ready counts as serving what it served "
        "when it was asked last; an edit waits for it.",
        "Does a NetworkPolicy keep the operator out? `kubectl logs` of the pod says whether it was refused.",
    ),
    Reason(
        Why.ENGINE_DEGRADED,
        ((_DEGRADED, "True"),),
        "A model serves, and something about it is not as it should be: its files changed, say.",
        "The message says what; `halogend explain` where it names a code.",
    ),
    Reason(
        Why.TOO_FEW_PODS,
        ((_DEGRADED, "True"),),
        "It serves, in fewer pods than are asked for.",
        "`status.pods` says which ones, and why.",
    ),
    Reason(
        Why.CHILD_REFUSED,
        (*_STOPPED, (_DEGRADED, "True")),
        "The API server refuses an object that the HalogenModel needs; the message has its words. Without the "
        "Deployment or the Service as the spec wants them it is not Ready, whatever serves.",
        "Check quotas, admission policies and the operator's role.",
    ),
    Reason(
        Why.SECRET_BROKEN,
        ((_DEGRADED, "True"),),
        "The Secret of the admin key and certificate was not usable and has been made anew. Pods take it as the "
        "kubelet renews their mounts.",
        "Find out who wrote to it.",
    ),
)

OF: dict[Why, Reason] = {each.why: each for each in REASONS}
