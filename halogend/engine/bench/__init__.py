"""`halogend bench engine` and `halogend bench dequant`: our engine and our decoders beside their peers.

Both sides do the same work in one run on one machine, in turn: the engine beside llama.cpp, each
measurement in a child process of its own with the same prompts as token ids, the same threads and
greedy sampling; the decoders beside the `gguf` package, with one thread. Figures are printed, never
judged.
"""
