"""From a checkpoint of any format to a v2 file: everything in halogend's own terms, so that mapping it is loading it.

Owns which layout a weight gets, its numbers in that layout, and what of the source goes along. Must never know a
kernel, a running model or the daemon; how a v2 file is laid out and published is of `checkpoint.v2`.
"""

from halogend.engine.convert.conversion import Conversion, convert

__all__ = ["Conversion", "convert"]
