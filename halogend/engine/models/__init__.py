"""The decoder that all families share, put together from a Geometry.

Owns how a model's tensors become its forward pass. Must never know a file's format or bytes (it asks
a source for matrices and vectors by name), a family by its name, the scheduler, or how an operator
is computed.
"""
