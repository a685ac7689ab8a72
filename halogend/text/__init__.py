"""The text process of one generation: template, tokens, text, stop strings.

Owns everything between a request's words and token ids, both ways, and refuses what does not fit
the limits before an engine sees it. Must never know HTTP, scheduling, weights or a device, and
never imports torch. Templates are somebody else's programs: they run in a child of this process
that may be killed at any time.
"""
