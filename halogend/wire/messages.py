"""Every message that crosses a process border: a closed union, of which a process knows all or speaks another version.

daemon <--control--> text, engine      lifecycle, progress, live changes: `control`; counts: `stats`
daemon <--data-----> text              requests and their text: `requests`
text   <--data-----> engine            requests and their tokens: `requests`
"""

from __future__ import annotations

from halogend.wire.control import (
    Commit,
    Discard,
    EngineReady,
    Hello,
    PoolResized,
    Prepared,
    PrepareEngine,
    PrepareText,
    Progress,
    SetRest,
    SetThreads,
    StartEngine,
    StartFailed,
    StartText,
    Stop,
    TextReady,
)
from halogend.wire.requests import Abort, Generate, StepOutput, Submit, TextEvents
from halogend.wire.stats import EngineStats

WIRE_VERSION = 5

AnyMessage = (
    Hello
    | StartEngine
    | StartText
    | Progress
    | EngineReady
    | TextReady
    | StartFailed
    | PrepareEngine
    | PrepareText
    | Prepared
    | Commit
    | PoolResized
    | Discard
    | SetThreads
    | SetRest
    | EngineStats
    | Stop
    | Submit
    | Abort
    | TextEvents
    | Generate
    | StepOutput
)
