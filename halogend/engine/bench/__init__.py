"""`halogend bench engine`: our engine beside llama.cpp, in one run on one machine.

Each measurement runs in a child process of its own, the two sides in turn. Both get the same prompts
as token ids, the same threads and greedy sampling. Figures are printed, never judged.
"""
