#!/usr/bin/env bash
# The house's order, checked: no include from a lower floor to a higher one, no two files of one name, no headers that need
# another include first, no machine's paths.
# usage: lint_floors.sh [CC FLAG...]      with a compiler command: every header is also compiled alone
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
faults=0
fault() { echo "lint: $*"; faults=$((faults + 1)); }

# Floor and rank. Equal rank = siblings, which may not include each other.
floors="harness/base 0
harness/config 1
harness/model 1
harness/compute 2
attn_variants 3
harness/engine 4
harness/measure 5
harness/eval 5
harness/store 6
analysis 7
harness/run 8
harness/bench 9
harness/cli 10"

rank_of() { awk -v folder="$1" '$1 == folder {print $2}' <<<"$floors"; }
sources() { git ls-files --cached --others --exclude-standard -- "$@" | sort -u; }

for file in $(sources '*.c' '*.h'); do
  folder=$(dirname "$file")
  own=$(rank_of "$folder")
  [ -n "$own" ] || continue
  while IFS=: read -r line target; do
    other=$(dirname "$target")
    rank=$(rank_of "$other")
    if [ ! -f "$target" ] && ! [[ $(basename "$target") =~ ^(build_revision|source_hashes|lab_page_parts|backend_hash)\.h$ ]]; then
      fault "$file:$line: includes \"$target\", which does not exist from the root of the tree"
    elif [ "$other" = tests/support ]; then
      fault "$file:$line: the program includes test support \"$target\""
    elif [ -n "$rank" ] && [ "$other" != "$folder" ] && [ "$rank" -ge "$own" ]; then
      fault "$file:$line: $folder may not include \"$target\" (a higher floor, or a sibling)"
    fi
  done < <(grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]+"' "$file" | sed -E 's/^([0-9]+):[^"]*"([^"]*)".*/\1:\2/')
done

for name in $(sources '*.c' '*.h' | sed 's#.*/##' | sort | uniq -d); do
  fault "two files are called $name: $(sources "*/$name" "$name" | tr '\n' ' ')"
done

while IFS= read -r hit; do
  fault "a machine's own path: $hit"
done < <(sources '*.c' '*.h' '*.sh' '*.yaml' '*.md' Makefile | grep -v '^harness/setup/lint_floors.sh$' |
         xargs grep -nE '(^|[^[:alnum:]_.])/(home|root|Users)/' 2>/dev/null)

while IFS= read -r hit; do
  fault "banned function: $hit"
done < <(sources 'harness/*.c' 'attn_variants/*.c' 'analysis/*.c' |
         xargs grep -nE '(^|[^[:alnum:]_])(strcpy|strcat|sprintf|vsprintf|strtok|gets|atoi|atof|alloca)[[:space:]]*\(' 2>/dev/null)

while IFS= read -r hit; do
  fault "the library neither prints nor exits: $hit"
done < <(sources 'harness/*.c' 'attn_variants/*.c' 'analysis/*.c' | grep -v '^harness/cli/' |
         xargs grep -nE '(^|[^[:alnum:]_])((printf|puts|putchar|perror|exit|abort)[[:space:]]*\(|fprintf[[:space:]]*\([[:space:]]*std(out|err))' 2>/dev/null)

# Files of others are opened by harness/base/input_file.c, which refuses what is not a regular file. What the kernel makes up
# (a literal /proc path), folders and what we write ourselves are opened where they are used.
while IFS= read -r hit; do
  fault "a file is opened for reading past harness/base/input_file.h: $hit"
done < <(sources 'harness/*.c' 'attn_variants/*.c' 'analysis/*.c' | grep -v '^harness/base/input_file.c$' |
         xargs grep -nE '(^|[^[:alnum:]_])(fopen[[:space:]]*\([^;]*"r|freopen[[:space:]]*\(|open(at)?[[:space:]]*\([^;]*O_RDONLY|ifstream)' 2>/dev/null |
         grep -vE '"/proc/|O_DIRECTORY|we wrote|the kernel.s')

if [ $# -gt 0 ]; then
  for header in $(sources '*.h' | grep -v '^harness/compute/cuda/'); do # which are C++
    if ! messages=$(echo "#include \"$header\"" | "$@" -fsyntax-only -x c - 2>&1); then
      fault "$header does not compile alone:"
      sed 's/^/    /' <<<"$messages" | head -5
    fi
  done
fi

echo "lint: $(sources '*.c' '*.h' | wc -l) files, $faults faults"
[ "$faults" -eq 0 ]
