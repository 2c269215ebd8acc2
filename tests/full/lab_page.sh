#!/usr/bin/env bash
# The page of the memory lab in a real browser, against the program's own numbers. lab_page.py has the checks. Skipped without
# chromium or python3. With axe-core (FROSTLINE_AXE=axe.min.js, or the Python package axe-core-python) that too; the skip is said.
# usage: lab_page.sh      FROSTLINE: the program; TMPDIR
set -eu
cd "$(dirname "$0")/../.."
frostline=$(realpath "${FROSTLINE:-build/release/frostline}")
for program in chromium python3; do
  command -v "$program" >/dev/null || { echo "skipped: lab page in a browser: $program is not installed"; exit 0; }
done
work=$(mktemp -d "${TMPDIR:-/tmp}/frostline-lab-XXXXXX")
trap 'rm -rf "$work"' EXIT
"$frostline" lab --page "$work/lab.html"
FROSTLINE="$frostline" python3 -B tests/full/lab_page.py "$work/lab.html"
