"""``python -m dlcheck``."""

from dlcheck.cli import main

if __name__ == "__main__":
    main()
