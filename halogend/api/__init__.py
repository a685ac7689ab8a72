"""HTTP: the inference and the admin application, and the listeners that carry them.

Owns request bodies, response shapes, the table of errors, event streams and sockets. What it needs
of the rest is in `ports`: a router, an admin, metrics. Must never know a process, a tokenizer, a
model file or how a document is applied.
"""
