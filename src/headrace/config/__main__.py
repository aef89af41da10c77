"""`python -m headrace.config` prints docs/configuration.md."""

import sys

from headrace.config.docs import render

sys.stdout.write(render())
