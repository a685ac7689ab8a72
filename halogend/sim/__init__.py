"""The real scheduler and block pool, with a model of how long steps take in place of the runner.

Owns traces of requests (by seed), simulated time, what is measured of a run, the baselines that policies
are held against, and the offline optimum of prefix reuse. Policies are judged here before they serve.
Imports the scheduler only: must never know torch, a socket, a process or the wall clock (but to say how
long a simulation took).
"""
