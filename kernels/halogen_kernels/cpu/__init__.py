"""Operators for a CPU in few, fused torch operators: a decode step is bound by their number.

Linear maps go through oneDNN with weights packed once, where the build has it. Their rows do not
depend on the other rows of a step, bit for bit. A row of attention may differ in its last bit, because a
decode group is padded to its longest sequence.
"""
