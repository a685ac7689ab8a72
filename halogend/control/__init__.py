"""From a document to live engines: sources, facts, plans, convergence, generations, routing.

Owns every process and every lease. Must never know HTTP, torch, a tokenizer or a scheduler's
inside: what it knows of an engine is what crossed the wire.
"""
