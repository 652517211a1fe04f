"""``python -m facefusion_cli`` is ``ffx``."""

from facefusion_cli.cli.main import entry

if __name__ == "__main__":
    entry()
