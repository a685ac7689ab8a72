"""What people and monitors see: log lines, metrics, exit statuses.

Owns the set-up of structlog for each kind of process, the one table of metrics and that of exit
statuses. Must never know where a value comes from: no HTTP, no wire, no control. Importing the package
costs nothing.
"""
