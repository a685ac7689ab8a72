"""Which tokens of which requests a step computes, and which blocks of KV memory they may use.

Owns requests' progress, the block pool and the one scheduling rule. Plain Python: must never know
torch, a tokenizer, a socket or the wall clock (time is an argument).
"""
