"""Which fields the built-in kinds have, as far as an operator's children and its own installation use them.

Structural schemas like those of custom kinds, so that a misspelt field is dropped, or refused when the caller is
strict, as the API server does. A kind that is not here takes any field.
"""

from typing import Any, Final

Schema = dict[str, Any]

_S: Final[Schema] = {"type": "string"}
_I: Final[Schema] = {"type": "integer"}
_B: Final[Schema] = {"type": "boolean"}
_ANY: Final[Schema] = {"x-kubernetes-preserve-unknown-fields": True}
_EITHER: Final[Schema] = {"x-kubernetes-int-or-string": True}
_WORDS: Final[Schema] = {"type": "object", "additionalProperties": _S}
_QUANTITIES: Final[Schema] = {"type": "object", "additionalProperties": {}}


def _all(schema: Schema, names: str) -> dict[str, Schema]:
    return dict.fromkeys(names.split(), schema)


def _of(strings: str = "", *, integers: str = "", booleans: str = "", **fields: Schema) -> Schema:
    """An object: its plain fields by type, the others by name (`_` at the end of a Python keyword)."""
    known = {name.rstrip("_"): schema for name, schema in fields.items()}
    return {"type": "object", "properties": _all(_S, strings) | _all(_I, integers) | _all(_B, booleans) | known}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _selector() -> Schema:
    return _of(matchLabels=_WORDS, matchExpressions=_list(_of("key operator", values=_list(_S))))


def _metadata() -> Schema:
    owner = _of("apiVersion kind name uid", booleans="controller blockOwnerDeletion")
    return _of(
        "name generateName namespace uid resourceVersion creationTimestamp deletionTimestamp selfLink",
        integers="generation deletionGracePeriodSeconds",
        labels=_WORDS,
        annotations=_WORDS,
        finalizers=_list(_S),
        ownerReferences=_list(owner),
        managedFields=_ANY,
    )


def _handler() -> dict[str, Schema]:
    http = _of("path host scheme", port=_EITHER, httpHeaders=_list(_of("name value")))
    return {
        "exec": _of(command=_list(_S)),
        "httpGet": http,
        "tcpSocket": _of("host", port=_EITHER),
    }


def _probe() -> Schema:
    times = "initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold"
    return _of(integers=times + " terminationGracePeriodSeconds", grpc=_of("service", integers="port"), **_handler())


def _security() -> Schema:
    return _of(
        "procMount",
        integers="runAsUser runAsGroup",
        booleans="privileged runAsNonRoot readOnlyRootFilesystem allowPrivilegeEscalation",
        capabilities=_of(add=_list(_S), drop=_list(_S)),
        seccompProfile=_of("type localhostProfile"),
        appArmorProfile=_of("type localhostProfile"),
        seLinuxOptions=_of("user role type level"),
    )


def _container() -> Schema:
    key = _of("name key", booleans="optional")
    source = _of(
        fieldRef=_of("apiVersion fieldPath"),
        resourceFieldRef=_of("containerName resource", divisor={}),
        configMapKeyRef=key,
        secretKeyRef=key,
    )
    hook = _of(sleep=_of(integers="seconds"), **_handler())
    mount = _of("name mountPath subPath subPathExpr mountPropagation recursiveReadOnly", booleans="readOnly")
    whole = _of("name", booleans="optional")
    return _of(
        "name image workingDir imagePullPolicy terminationMessagePath terminationMessagePolicy restartPolicy",
        booleans="stdin stdinOnce tty",
        command=_list(_S),
        args=_list(_S),
        ports=_list(_of("name hostIP protocol", integers="containerPort hostPort")),
        env=_list(_of("name value", valueFrom=source)),
        envFrom=_list(_of("prefix", configMapRef=whole, secretRef=whole)),
        resources=_of(limits=_QUANTITIES, requests=_QUANTITIES, claims=_list(_of("name request"))),
        resizePolicy=_list(_of("resourceName restartPolicy")),
        volumeMounts=_list(mount),
        volumeDevices=_list(_of("name devicePath")),
        livenessProbe=_probe(),
        readinessProbe=_probe(),
        startupProbe=_probe(),
        lifecycle=_of("stopSignal", preStop=hook, postStart=hook),
        securityContext=_security(),
    )


def _volume() -> Schema:
    items = _list(_of("key path", integers="mode"))
    named = _of("name", booleans="optional", items=items)
    facts = _list(_of("path", integers="mode", fieldRef=_of("apiVersion fieldPath"), resourceFieldRef=_ANY))
    token = _of("audience path", integers="expirationSeconds")
    source = _of(secret=named, configMap=named, downwardAPI=_of(items=facts), serviceAccountToken=token)
    return _of(
        "name",
        emptyDir=_of("medium", sizeLimit={}),
        configMap=_of("name", integers="defaultMode", booleans="optional", items=items),
        secret=_of("secretName", integers="defaultMode", booleans="optional", items=items),
        projected=_of(integers="defaultMode", sources=_list(source)),
        downwardAPI=_of(integers="defaultMode", items=facts),
        persistentVolumeClaim=_of("claimName", booleans="readOnly"),
        image=_of("reference pullPolicy"),
        hostPath=_of("path type"),
        nfs=_of("server path", booleans="readOnly"),
        csi=_ANY,
        ephemeral=_ANY,
    )


def _pod_spec() -> Schema:
    context = _of(
        "fsGroupChangePolicy supplementalGroupsPolicy",
        integers="runAsUser runAsGroup fsGroup",
        booleans="runAsNonRoot",
        seccompProfile=_of("type localhostProfile"),
        appArmorProfile=_of("type localhostProfile"),
        seLinuxOptions=_of("user role type level"),
        supplementalGroups=_list(_I),
        sysctls=_list(_of("name value")),
    )
    spread = _of(
        "topologyKey whenUnsatisfiable nodeAffinityPolicy nodeTaintsPolicy",
        integers="maxSkew minDomains",
        labelSelector=_selector(),
        matchLabelKeys=_list(_S),
    )
    return _of(
        "restartPolicy dnsPolicy schedulerName serviceAccountName serviceAccount nodeName hostname subdomain "
        "priorityClassName preemptionPolicy runtimeClassName",
        integers="terminationGracePeriodSeconds activeDeadlineSeconds priority",
        booleans="automountServiceAccountToken enableServiceLinks hostNetwork hostPID hostIPC hostUsers "
        "shareProcessNamespace setHostnameAsFQDN",
        containers=_list(_container()),
        initContainers=_list(_container()),
        ephemeralContainers=_list(_ANY),
        volumes=_list(_volume()),
        imagePullSecrets=_list(_of("name")),
        nodeSelector=_WORDS,
        tolerations=_list(_of("key operator value effect", integers="tolerationSeconds")),
        topologySpreadConstraints=_list(spread),
        securityContext=context,
        affinity=_ANY,
        dnsConfig=_ANY,
        hostAliases=_list(_of("ip", hostnames=_list(_S))),
        os=_of("name"),
        overhead=_QUANTITIES,
        readinessGates=_list(_of("conditionType")),
        resourceClaims=_list(_ANY),
        resources=_ANY,
        schedulingGates=_list(_of("name")),
    )


def _workload(**more: Schema) -> Schema:
    template = _of(metadata=_metadata(), spec=_pod_spec())
    return _of(integers="replicas minReadySeconds", selector=_selector(), template=template, **more)


def _deployment() -> Schema:
    rolling = _of(maxUnavailable=_EITHER, maxSurge=_EITHER)
    return _workload(
        strategy=_of("type", rollingUpdate=rolling),
        revisionHistoryLimit=_I,
        progressDeadlineSeconds=_I,
        paused=_B,
    )


def _service() -> Schema:
    port = _of("name protocol appProtocol", integers="port nodePort", targetPort=_EITHER)
    return _of(
        "type clusterIP externalName sessionAffinity internalTrafficPolicy externalTrafficPolicy ipFamilyPolicy "
        "loadBalancerIP loadBalancerClass trafficDistribution",
        integers="healthCheckNodePort",
        booleans="publishNotReadyAddresses allocateLoadBalancerNodePorts",
        ports=_list(port),
        selector=_WORDS,
        clusterIPs=_list(_S),
        ipFamilies=_list(_S),
        externalIPs=_list(_S),
        loadBalancerSourceRanges=_list(_S),
        sessionAffinityConfig=_ANY,
    )


def _network_policy() -> Schema:
    block = {"type": "object", "properties": {"cidr": _S, "except": _list(_S)}}
    peer = _of(podSelector=_selector(), namespaceSelector=_selector(), ipBlock=block)
    port = _of("protocol", integers="endPort", port=_EITHER)
    ingress = {"type": "object", "properties": {"from": _list(peer), "ports": _list(port)}}
    return _of(
        podSelector=_selector(),
        policyTypes=_list(_S),
        ingress=_list(ingress),
        egress=_list(_of(to=_list(peer), ports=_list(port))),
    )


def _event() -> dict[str, Schema]:
    involved = _of("apiVersion kind name namespace uid resourceVersion fieldPath")
    words = "reason message type action reportingComponent reportingInstance firstTimestamp lastTimestamp eventTime"
    return _all(_S, words) | {
        "involvedObject": involved,
        "related": involved,
        "source": _of("component host"),
        "series": _of("lastObservedTime", integers="count"),
        "count": _I,
    }


def _rules() -> dict[str, Schema]:
    words = "apiGroups resources verbs resourceNames nonResourceURLs"
    rule = {"type": "object", "properties": _all(_list(_S), words)}
    return {"rules": _list(rule), "aggregationRule": _ANY}


def _binding() -> dict[str, Schema]:
    return {"subjects": _list(_of("kind name namespace apiGroup")), "roleRef": _of("kind name apiGroup")}


def _data() -> dict[str, Schema]:
    return {"data": _WORDS, "binaryData": _WORDS, "immutable": _B}


def _budget() -> Schema:
    return _of("unhealthyPodEvictionPolicy", minAvailable=_EITHER, maxUnavailable=_EITHER, selector=_selector())


def _account() -> dict[str, Schema]:
    return {
        "secrets": _list(_ANY),
        "imagePullSecrets": _list(_of("name")),
        "automountServiceAccountToken": _B,
    }


def _lease() -> Schema:
    return _of(
        "holderIdentity acquireTime renewTime strategy preferredHolder",
        integers="leaseDurationSeconds leaseTransitions",
    )


def _whole(fields: dict[str, Schema], *, has_status: bool = False) -> Schema:
    known = {"apiVersion": _S, "kind": _S, "metadata": _metadata()} | fields
    return {"type": "object", "properties": known | ({"status": _ANY} if has_status else {})}


SCHEMAS: Final[dict[str, Schema]] = {
    "Pod": _whole({"spec": _pod_spec()}, has_status=True),
    "Deployment": _whole({"spec": _deployment()}, has_status=True),
    "ReplicaSet": _whole({"spec": _workload()}, has_status=True),
    "ConfigMap": _whole(_data()),
    "Secret": _whole(_data() | {"stringData": _WORDS, "type": _S}),
    "Service": _whole({"spec": _service()}, has_status=True),
    "ServiceAccount": _whole(_account()),
    "NetworkPolicy": _whole({"spec": _network_policy()}),
    "PodDisruptionBudget": _whole({"spec": _budget()}, has_status=True),
    "Event": _whole(_event()),
    "Lease": _whole({"spec": _lease()}),
    "Role": _whole(_rules()),
    "ClusterRole": _whole(_rules()),
    "RoleBinding": _whole(_binding()),
    "ClusterRoleBinding": _whole(_binding()),
}
