"""What was read and rendered at the last look at each HalogenModel, so that the next need not do it again.

Both are pure: the same spec and the same held text give the same again, and five hundred models are looked at twice a
minute. Must never hold what was seen of a cluster or a pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from halogen_operator.house import House
from halogen_operator.names import PLAN_ONLY_ANNOTATION
from halogen_operator.render import Held, Manifest, render
from halogen_operator.wanted import Ref, Refusal, Wanted, read


@dataclass
class _Last:
    """Of one model: `rendered` is of this held and secret."""

    key: tuple[int, str | None]
    wanted: Wanted | Refusal
    rendered: tuple[Held, Mapping[str, bytes], tuple[Manifest, ...]] | None = None


@dataclass
class Memory:
    """For one house. One writer: the workers."""

    house: House
    _last: dict[str, _Last] = field(default_factory=dict)

    def read(self, body: Mapping[str, Any]) -> Wanted | Refusal:
        """As `wanted.read`. A spec is another one if, and only if, its generation is; the annotation counts too."""
        meta = body["metadata"]
        key = (int(meta.get("generation", 0)), (meta.get("annotations") or {}).get(PLAN_ONLY_ANNOTATION))
        last = self._last.get(meta["uid"])
        if last is None or last.key != key:
            last = self._last[meta["uid"]] = _Last(key, read(body, self.house))
        return last.wanted

    def render(self, wanted: Wanted, held: Held, secret: Mapping[str, bytes]) -> tuple[Manifest, ...]:
        """As `render.render`."""
        last = self._last.get(wanted.ref.uid)
        if last is None or last.wanted is not wanted:
            return render(wanted, held, secret, self.house)
        if last.rendered is None or last.rendered[:2] != (held, secret):
            last.rendered = (held, secret, render(wanted, held, secret, self.house))
        return last.rendered[2]

    def forget(self, uid: str) -> Ref | None:
        """It is gone. Returns which one it was, if it was ever read."""
        last = self._last.pop(uid, None)
        return None if last is None else last.wanted.ref
