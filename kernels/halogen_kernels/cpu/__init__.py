"""Operators for a CPU in few, fused torch operators: a decode step is bound by their number.

Linear maps go through oneDNN with weights packed once, where the build has it. With bfloat16
weights and cache a row's bits do not depend on the other rows of a step; in float32 they may differ
in the last bit.
"""
