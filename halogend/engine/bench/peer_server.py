"""llama.cpp's server in this process until its standard input ends: `python -m ... '{"model": ..., "port": ...}'`."""

from __future__ import annotations

import json
import os
import sys

from halogend.wire.process import die_with_parent


def main() -> None:
    """Raises ImportError without the wheel, and whatever the wheel raises."""
    import xllamacpp  # noqa: PLC0415 (an optional package)

    die_with_parent(os.getppid())
    settings = json.loads(sys.argv[1])
    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.port = settings["port"]
    params.n_parallel = settings["parallel"]
    params.n_ctx = settings["context"]
    params.cpuparams.n_threads = settings["threads"]
    params.cpuparams_batch.n_threads = settings["threads"]
    server = xllamacpp.Server(params)
    sys.stderr.write(f"listening {server.listening_address}\n")
    sys.stdin.read()
    os._exit(0)  # its threads are still up, and there is nothing to save


if __name__ == "__main__":
    main()
