"""Model architectures: each a table of names and a few choices over shared layers.

Owns how a model's tensors become its forward pass. Must never know a file's format or bytes (it
asks a source for matrices and vectors by name), the scheduler, or how an operator is computed.
"""
