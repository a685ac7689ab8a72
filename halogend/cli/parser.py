"""What every subcommand's parser is: argparse's, with an exit status of its own for usage errors."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

USAGE = 2


class CommandParser(argparse.ArgumentParser):
    """`usage_status` is another than 2 where a command gives 2 a meaning."""

    usage_status = USAGE

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(self.usage_status, f"{self.prog}: error: {message}\n")
