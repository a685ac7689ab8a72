"""One generation's engine: the process that holds the weights and the KV pool and runs the steps.

Owns the loop (frames in, steps, one frame out a step), the sampler, the loader and the model
runner. Must never know a tokenizer, text, HTTP or the document: it gets an EngineSpec and token
ids. Heavy imports happen in the loader thread; importing this package imports none of them.
"""
