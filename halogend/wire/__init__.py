"""What the daemon, a text process and an engine say to each other, and the two ends that carry it.

Owns the message types (one closed tagged union), the frame format and the channel ends: one for
asyncio, one for a worker's blocking loop. Must never know what a message is for: no routing, no
retries, no model, no tokenizer.
"""
