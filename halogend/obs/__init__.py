"""What people and monitors see: log lines and metrics.

Owns the set-up of structlog for each kind of process and the one table of metrics. Must never know
where a value comes from: no HTTP, no wire, no control. Importing the package costs nothing.
"""
