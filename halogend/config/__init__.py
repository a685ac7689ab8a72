"""The document: what a user writes, checked and turned into one canonical value.

Owns the schema (every field with its description, unit, default and apply class), the parser with
places, the canonical form and its revision, the rules, and the table of error codes. Pure: bytes and
facts come in, values and problems go out. Must never open a file, read the environment, know a
device, or know how a change is carried out.
"""
