"""Every operator of a backend on one device against its definition in float64, on fresh random inputs.

Owns what is tried and how far a result may be off. Started by the command line as a process of its own, it
loads no model, serves nothing and must never know which device of the machine it sees: it sees one.
"""
