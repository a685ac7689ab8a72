"""What can be made to go wrong, at which call: refusals, cuts before and after the work, slowness, a test's own hook.

A rule matches calls by verb, kind, subresource and writer, and strikes from its nth match on, so often as asked. All
counting is per rule.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from support.kube.errors import ApiError, of_status


@dataclass
class Call:
    """One request for a resource. `verb` is RBAC's; `writer` the field manager, or else the client's product name."""

    verb: str
    group: str
    plural: str
    kind: str
    namespace: str
    name: str
    subresource: str
    writer: str
    is_apply: bool = False
    status: int = 0

    @property
    def is_write(self) -> bool:
        return self.verb not in {"get", "list", "watch"}

    @property
    def resource(self) -> str:
        """As RBAC rules name it."""
        return f"{self.plural}/{self.subresource}" if self.subresource else self.plural


class CutError(Exception):
    """The connection ends without a word."""


Hook = Callable[[Call], Awaitable[object] | None]


@dataclass
class Rule:
    """One fault. `is_after`: it strikes when the work is done and the answer is due."""

    strike: Hook
    verb: str | None
    kind: str | None
    subresource: str | None
    writer: str | None
    nth: int
    times: int | None
    is_after: bool
    seen: int = field(default=0, init=False)
    struck: int = field(default=0, init=False)

    def matches(self, call: Call) -> bool:
        wanted = (self.verb, self.kind, self.subresource, self.writer)
        given = (call.verb, call.kind, call.subresource, call.writer)
        return all(want in {None, have} for want, have in zip(wanted, given, strict=True))

    def is_due(self, call: Call) -> bool:
        if not self.matches(call):
            return False
        self.seen += 1
        is_due = self.seen >= self.nth and (self.times is None or self.struck < self.times)
        self.struck += is_due
        return is_due


class Faults:
    """The rules of one stand-in. Each method adds one and returns it; `clear` drops all."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []

    def hook(
        self,
        strike: Hook,
        verb: str | None = None,
        kind: str | None = None,
        subresource: str | None = None,
        writer: str | None = None,
        nth: int = 1,
        times: int | None = 1,
        *,
        is_after: bool = False,
    ) -> Rule:
        """Run `strike(call)`; what it raises, ApiError or CutError, is what the caller gets."""
        rule = Rule(strike, verb, kind, subresource, writer, nth, times, is_after)
        self._rules.append(rule)
        return rule

    def fail(self, status: int, *, message: str = "", retry_after_s: int | None = None, **where: object) -> Rule:
        """Refuse with this status, in its words; nothing is done."""
        return self.raises(of_status(status, message, retry_after_s), **where)

    def raises(self, error: ApiError | CutError, **where: object) -> Rule:
        def strike(call: Call) -> None:
            raise error

        return self.hook(strike, **where)  # type: ignore[arg-type]  # `where` is hook's own arguments

    def cut(self, **where: object) -> Rule:
        """End the connection without an answer; with `is_after=True` the work was done nonetheless."""
        return self.raises(CutError(), **where)

    def delay(self, seconds: float, **where: object) -> Rule:
        async def strike(call: Call) -> None:
            await asyncio.sleep(seconds)

        return self.hook(strike, **where)  # type: ignore[arg-type]  # as above

    def drop(self, rule: Rule) -> None:
        self._rules.remove(rule)

    def clear(self) -> None:
        self._rules.clear()

    async def strike(self, call: Call, *, is_after: bool) -> None:
        """Whatever is due at this call.

        Raises:
            ApiError, CutError: what the caller is to get.
        """
        for rule in [rule for rule in self._rules if rule.is_after == is_after]:
            if rule.is_due(call):
                done = rule.strike(call)
                if done is not None:
                    await done
