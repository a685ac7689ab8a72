"""Roles and bindings -> who may do what: the authorizer's part of the API server, for a test that switches it on."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from support.kube.errors import ApiError
from support.kube.faults import Call
from support.kube.store import Object

Body = dict[str, Any]


@dataclass(frozen=True)
class Grant:
    """One rule of a role, in one namespace ("" for all, and for what has none)."""

    namespace: str
    rule: Body

    def allows(self, call: Call) -> bool:
        if self.namespace and call.namespace != self.namespace:
            return False
        wanted = (("apiGroups", call.group), ("resources", call.resource), ("verbs", call.verb))
        if not all({"*", value} & set(self.rule.get(name, [])) for name, value in wanted):
            return False
        names = self.rule.get("resourceNames")
        return not names or call.name in names


def grants(account: str, namespace: str, objects: Iterable[Object]) -> list[Grant]:
    """What the bindings among `objects` give a ServiceAccount, from the roles among them."""
    found = list(objects)
    roles = {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one for one in found}
    given = []
    for binding in found:
        if binding["kind"] not in {"RoleBinding", "ClusterRoleBinding"}:
            continue
        subjects = [(each.get("kind"), each.get("namespace"), each["name"]) for each in binding.get("subjects", [])]
        if ("ServiceAccount", namespace, account) not in subjects:
            continue
        where = binding["metadata"].get("namespace", "") if binding["kind"] == "RoleBinding" else ""
        named = binding["roleRef"]
        role = roles.get((named["kind"], where if named["kind"] == "Role" else "", named["name"]))
        given += [Grant(where, rule) for rule in (role or {}).get("rules", [])]
    return given


def check(call: Call, given: Iterable[Grant], user: str) -> None:
    """Raises: ApiError 403, nothing given allows it."""
    if any(grant.allows(call) for grant in given):
        return
    where = f'in the namespace "{call.namespace}"' if call.namespace else "at the cluster scope"
    what = f'cannot {call.verb} resource "{call.resource}" in API group "{call.group}" {where}'
    named = f"{call.plural}{'.' + call.group if call.group else ''}"
    shown = f'{named} "{call.name}"' if call.name else named
    raise ApiError(403, "Forbidden", f'{shown} is forbidden: User "{user}" {what}')
