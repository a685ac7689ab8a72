"""Operators for a CPU in few, fused torch operators: a decode step is bound by their number.

Linear maps go through oneDNN with weights packed once, where the build has it. Their rows do not
depend on the other rows of a step, bit for bit; those of attention do not in bfloat16, and may differ in
the last bit in float32.
"""
