"""``python -m facefusion_cli`` is ``ffx``."""

import sys

from facefusion_cli.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
