"""``python -m dlcheck``."""

import sys

if __name__ == "__main__":
    # Python looks for modules in the current folder first; nothing of the code to be checked is to run.
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]
    try:
        from dlcheck.cli import main
    except KeyboardInterrupt:
        sys.stderr.write("dlcheck: interrupted\n")
        sys.exit(130)
    main()
