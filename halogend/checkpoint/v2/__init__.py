"""The v2 checkpoint: one file (or a manifest and parts) that is mapped as it lies.

Owns the format of docs/checkpoint-v2.md: header, metadata, layouts, shard tables, digests, reading and
writing. Weights have the names of `inventory`, one entry each. Must never know how a kernel computes,
where a weight came from, or a device. Nothing is mapped here, and weights are read to be hashed alone.
"""
