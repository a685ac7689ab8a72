"""`halogend bench`: our engine, our decoders and our loader beside their peers.

Both sides do the same work in one run on one machine, in turn: the engine beside llama.cpp, each
measurement in a child process of its own with the same prompts as token ids, the same threads and
greedy sampling; the decoders beside the `gguf` package, with one thread; the loader beside a plain
read and conversion of the same files. Figures are printed, never judged.
"""
