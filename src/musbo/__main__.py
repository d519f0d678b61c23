"""`python -m musbo` is `musbo`."""

import sys

from musbo.cli import main

sys.exit(main())
