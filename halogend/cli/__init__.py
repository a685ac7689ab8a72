"""The command line: one file a command, each with `add(subparsers)` and `run(args)`.

Owns arguments, what is printed and exit statuses, and is the only place that reads the environment.
Must never hold a rule of the document or a step of a change: those are what it calls.
"""
