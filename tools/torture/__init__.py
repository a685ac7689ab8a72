"""Hours of changes in minutes: a daemon under open-loop load that is edited, signalled, lied to and shot at.

Owns the load, the acts, the clocks and the verdict. Sees what users see: the command line, HTTP, files, and
what /proc says of processes; it must never import halogend, so that nothing of the daemon judges itself. Which tokens
are likely the judge, a process of its own, asks a model that the tests load, with one request and nothing beside it.

    __main__   options, the report, the exit status          session    start, phases, end
    client     the load, in a process of its own             acts       what is done to the daemon
    stream     its end of one answer                         machine    cores and ports
    stage      the daemon, its document and what was seen    windows    which gap belongs to which step
    watch      what goes on beside the acts                  schedule   which act comes when
    evidence   what a run leaves                             verdict    evidence -> PASS and FAIL
    odd        answers that are none of those learned        judge      what their model makes of them
"""
