"""What is in a checkpoint file: its format, its header, its tensors' places and the model's geometry.

Reads headers only, never weights, and maps nothing: a mapped file that somebody truncates kills the
process that reads it, and the daemon reads headers too. Must never know torch, a device, a
tokenizer's algorithm or the document. Whatever is wrong with a file is a CheckpointError that
names the file and the key or tensor.
"""
