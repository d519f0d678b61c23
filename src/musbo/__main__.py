"""`python -m musbo` is `musbo`."""

import sys

from musbo.cli import main

if __name__ == "__main__":  # only then: a record in a file may name this module as the place of its class
    sys.exit(main())
