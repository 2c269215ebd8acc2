#!/usr/bin/env bash
# Unpacks the reference data that a full development tree has beside it (../shared/packs) into build/packs, where the tests
# look for it. A plain clone has none: those tests then skip, each saying what it lacks.
# usage: packs.sh [FOLDER]      (default: build/packs)
set -euo pipefail
unpack=$(dirname "${BASH_SOURCE[0]}")/../../../shared/unpack.sh
if [ ! -x "$unpack" ]; then exit 0; fi
exec "$unpack" "${1:-build/packs}"
