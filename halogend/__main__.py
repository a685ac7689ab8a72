"""`python -m halogend` is the `halogend` command."""

import sys

from halogend.cli.main import main

sys.exit(main())
