"""The block types of GGML: how each lays out its codes and scales, one function a type.

Owns the layouts and the tables. Must never know a file, a tensor's name or where the numbers go:
`engine.dequant` cuts chunks and does the arithmetic that all types share.
"""
