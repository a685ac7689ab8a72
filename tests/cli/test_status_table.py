"""The status as people read it: what is fine, what wants an eye, and widths."""

from halogend.cli.status_table import status_lines

GENERATION = {
    "generation": 3,
    "path": "/models/a.gguf",
    "requests": 2,
    "stage": "serving",
    "loaded_bytes": 0,
    "total_bytes": 0,
    "running": 2,
    "waiting": 1,
    "blocks_used": 64,
    "blocks_total": 512,
    "held_bytes": 1204 << 20,
}
FINE = {
    "state": "serving",
    "trouble": None,
    "degraded": None,
    "path": "/models/a.gguf",
    "waiting": 0,
    "serving": GENERATION,
    "loading": None,
    "draining": [],
}
STATUS = {
    "version": "1.2",
    "uptime_s": 3 * 3600 + 12 * 60,
    "source": "/etc/halogen/config.yaml",
    "revision": {"desired": "a5e403f7996a", "active": "a5e403f7996a"},
    "settled": True,
    "models": {"chat": FINE},
    "last_receipt": None,
    "hold": None,
    "drift": None,
    "state": None,
    "listeners": {"inference": {"address": "127.0.0.1:8000", "tls": None}},
    "keys": [],
    "memory": {"chat#3": {"device": "cpu:0"}, "chat#4": {"device": "cpu:1"}},
    "devices": {"cpu:0": {"memory_bytes": 16 << 30, "budget_bytes": 14 << 30, "held_bytes": 4 << 30}},
}


def with_model(**fields):
    return {**STATUS, "settled": False, "models": {"chat": {**FINE, **fields}}}


def test_a_process_that_does_not_end_wants_an_eye():
    lines = status_lines({**STATUS, "lingering": [{"replica": "chat#2", "pids": {"engine": 71}, "for_s": 130.0}]})
    assert "! chat#2 was killed 2 min ago and does not end (engine 71): its memory is not back" in lines


def test_where_all_is_well_no_line_wants_an_eye():
    assert status_lines(STATUS) == [
        "halogend 1.2, up 3 h 12 min, source /etc/halogen/config.yaml",
        "  revision a5e403f7996a: settled",
        "  inference on 127.0.0.1:8000",
        "",
        "  MODEL  STATE    GEN  REQUESTS       KV POOL                MEMORY  PATH",
        "  chat   serving    3  2 (1 waiting)  12 % of 512 blocks  1,204 MiB  /models/a.gguf",
        "",
        "  DEVICE (MiB)    memory    budget      held      free",
        "  cpu:0           16,384    14,336     4,096    10,240",
    ]


def test_each_generation_has_its_row():
    draining = {**GENERATION, "generation": 2, "requests": 1, "waiting": 0, "limit_s": 45.0, "left_s": 34.2}
    loading = {**GENERATION, "generation": 4, "stage": "loading", "loaded_bytes": 412 << 20, "total_bytes": 958 << 20}
    lines = "\n".join(status_lines(with_model(draining=[draining], loading=loading)))
    assert "draining, 34 s left" in lines
    assert "loading 43 % of 958 MiB" in lines
    assert lines.count("chat") == 1


def test_replicas_have_rows_of_their_own_where_there_are_several():
    one = {"replica": "chat#3", "device": "cpu:0", "state": "ready", "requests": 1, "held_bytes": 600 << 20}
    other = {**one, "replica": "chat#3/1", "device": "cpu:1", "state": "dead"}
    lines = status_lines(with_model(serving={**GENERATION, "replicas": [one, other]}))
    assert any(line.startswith("  ") and line.endswith("chat#3 on cpu:0") for line in lines)
    assert any(line.startswith("! ") and line.endswith("chat#3/1 on cpu:1") for line in lines)
    assert not any("cpu:0" in line for line in status_lines(with_model(serving={**GENERATION, "replicas": [one]}))[:-1])


def test_what_stands_by_and_a_probation_are_told():
    probation = {"generation": 3, "left_s": 41.5, "requests": 30, "errors": 1, "failed": None}
    lines = "\n".join(status_lines(with_model(probation=probation, parked={**GENERATION, "generation": 2})))
    assert "serving, on probation 41 s more (1 of 30 failed)" in lines
    assert "stands by" in lines


def test_where_there_are_several_devices_it_is_said_which():
    loading = {**GENERATION, "generation": 4, "stage": "loading"}
    assert "DEVICE  PATH" not in "\n".join(status_lines(with_model(loading=loading)))
    two = {**with_model(loading=loading), "devices": {**STATUS["devices"], "cpu:1": STATUS["devices"]["cpu:0"]}}
    lines = [" ".join(line.split()) for line in status_lines(two)]
    assert any("MEMORY DEVICE PATH" in line for line in lines)
    assert any(line.endswith("cpu:0 /models/a.gguf") for line in lines)
    assert any(line.startswith("loading 4 cpu:1") for line in lines)


def test_what_is_wrong_stands_under_its_model_whole_and_marked():
    failed = with_model(state="failed", serving=None, trouble="HRT-1014: it died\nlast said: " + "x" * 300, waiting=4)
    marked = [line for line in status_lines(failed, 80) if line.startswith("!")]
    assert marked[0] == "! revision a5e403f7996a: not settled"
    assert marked[1].startswith("! chat   failed")
    assert "4 waiting" in marked[1]
    assert marked[2] == "!   HRT-1014: it died"
    assert marked[3].endswith("x" * 300)


def test_a_removed_model_is_as_asked_for():
    assert not [line for line in status_lines(with_model(state="removed", serving=None))[2:] if line.startswith("!")]


def test_revisions_that_differ_and_a_receipt_that_is_open_are_told():
    receipt = {
        "id": "r7",
        "outcome": None,
        "trigger": "file",
        "actor": "file",
        "source": "",
        "previous_revision": None,
        "revision": None,
        "problems": [],
        "server_changes": [],
        "models": [],
    }
    revision = {"desired": "b" * 12, "active": None}
    lines = status_lines({**STATUS, "settled": False, "revision": revision, "last_receipt": receipt})
    assert lines[1] == "! revision none is active, bbbbbbbbbbbb is asked for: not settled"
    assert lines[-1] == "  r7: in progress  (trigger file, by file)"
    lines = status_lines({**STATUS, "last_receipt": {**receipt, "outcome": "rejected"}})
    assert "! last edit:" in lines


def test_a_narrow_screen_keeps_the_end_of_a_path():
    long = with_model(serving={**GENERATION, "path": "/models/" + "deep/" * 20 + "the-model.gguf"})
    lines = status_lines(long, 100)
    assert max(map(len, lines)) <= 100
    assert any(line.endswith("the-model.gguf") and "..." in line for line in lines)


def test_a_device_that_is_over_its_budget_is_marked():
    over = {"cpu:0": {"memory_bytes": 16 << 30, "budget_bytes": 2 << 30, "held_bytes": 4 << 30}}
    assert status_lines({**STATUS, "devices": over})[-1].startswith("! cpu:0")


def test_without_a_document_no_device_is_shown_and_why_no_edit_is_seen_is():
    source = {
        "kind": "file",
        "watch": "events",
        "reason": None,
        "unread": "/etc/c.yaml cannot be read: Permission denied",
    }
    lines = status_lines({**STATUS, "devices": {"cpu:0": {"held_bytes": 0}}, "source_watch": source})
    assert not any("cpu:0" in line for line in lines)
    assert "! no edit is seen: /etc/c.yaml cannot be read: Permission denied" in lines


ACCELERATOR = {
    "names": ["cuda:0", "h100:0"],
    "name": "NVIDIA H100 80GB HBM3",
    "product": "h100",
    "arch": "sm_90",
    "unusable": None,
    "is_told": True,
    "used_bytes": 1 << 30,
    "temperature_c": 61.0,
    "limit_c": 87.0,
    "rest": 0.0,
    "clock_mhz": 1980,
    "memory_clock_mhz": 2619,
    "power_w": 310.5,
    "links": [{"kind": "pcie", "to": "host", "detail": "gen 5 x16", "bytes_per_s": 63e9}],
}


def with_accelerator(**facts):
    device = {**STATUS["devices"]["cpu:0"], "accelerator": {**ACCELERATOR, **facts}}
    lines = status_lines({**STATUS, "devices": {**STATUS["devices"], "cuda:0": device}})
    return [line for line in lines if "cuda:0" in line][1:]  # but for its row of bytes


def test_an_accelerator_that_is_well_is_one_line():
    assert with_accelerator() == [
        "  cuda:0 = h100:0: NVIDIA H100 80GB HBM3, sm_90; 61 C (limit 87 C), 1,980 MHz, 310 W; pcie gen 5 x16"
    ]


def test_an_accelerator_that_is_held_at_its_limit_wants_an_eye():
    _, line = with_accelerator(temperature_c=88.0, rest=0.23)
    assert line == "! cuda:0 is held at 87 C: its engines rest 23 % of the time"


def test_what_is_not_told_of_an_accelerator_is_left_out_and_what_is_wrong_is_said():
    first, wrong = with_accelerator(
        temperature_c=None, limit_c=None, clock_mhz=None, power_w=None, links=[], unusable="it is divided"
    )
    assert first == "  cuda:0 = h100:0: NVIDIA H100 80GB HBM3, sm_90"
    assert wrong == "! no engine can run on cuda:0: it is divided"
    assert with_accelerator(is_told=False)[-1] == "! nothing is told of cuda:0 now"
    unkept = with_accelerator(temperature_c=None, limit_c=70.0)[-1]
    assert unkept == "! cuda:0 tells no temperature: its limit of 70 C cannot be kept"
    lines = status_lines({**STATUS, "devices_not_seen": ["the driver is not loaded"]})
    assert lines[-1] == "! devices are not seen: the driver is not loaded"
