"""What an engine has besides where its model lies on a device: the same steps, planned here, computed there.

Owns where tensors go and how they come there, the pool of chunks, the runner that waits for nothing, the graphs of
decode steps and the choice of tokens on the device. Runs whole on the host too, in Triton's interpreter. Must never
know which product a device is, what else is on it, or how a kernel computes.
"""
