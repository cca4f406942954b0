#!/usr/bin/env bash
# Measures what page-locked memory, non-blocking copies, side streams and waits cost and save on this machine's GPU:
#     benchmarks/gpu/run.sh [OUT] [--budget SECONDS] [--rounds N]
# Six minutes at most; results in OUT ($OUT, or ./out). Without a GPU it can be rehearsed: --device cpu --quick
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

has_torch() {
  "$1" -c 'import sys, torch; sys.exit(sys.version_info < (3, 10))' 2>/dev/null
}

if [ -z "${PYTHON:-}" ]; then
  for candidate in "$here/../../.venv/bin/python" python3 python; do
    if command -v "$candidate" >/dev/null && has_torch "$candidate"; then
      PYTHON=$candidate
      break
    fi
  done
fi
if [ -z "${PYTHON:-}" ] || ! has_torch "$PYTHON"; then
  echo "no Python 3.10 or later with torch found; name one: PYTHON=/path/to/python $0" >&2
  exit 2
fi
exec "$PYTHON" "$here/run.py" "$@"
