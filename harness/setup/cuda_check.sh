#!/usr/bin/env bash
# Checks what `make cuda` has built without running it: one exported symbol, no library but libc's and the compiler's, and
# registers and spills of every kernel against harness/compute/cuda/resources.txt.
# usage: cuda_check.sh OBJECT FOLDER-OF-RESOURCES [--write]      --write: make the table anew
set -euo pipefail
object=$1 folder=$2 table=harness/compute/cuda/resources.txt
faults=0
fault() { echo "cuda-check: $*"; faults=$((faults + 1)); }

exported=$(nm -D --defined-only "$object" | awk '{print $3}' | tr '\n' ' ')
[ "$exported" = "fl_backend_entry " ] || fault "exported symbols are: $exported"
for needed in $(readelf -d "$object" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p'); do
  case $needed in
    libc.so.6 | libm.so.6 | libdl.so.2 | libpthread.so.0 | librt.so.1 | libstdc++.so.6 | libgcc_s.so.1 | ld-linux-*) ;;
    *) fault "needs $needed" ;;
  esac
done

# A line a kernel and card: "kernel card registers spill-bytes".
measured() {
  cat "$folder"/*.resources | awk '
    /Compiling entry function/ { split($0, part, "\047"); kernel = part[2]; card = part[4] }
    /bytes spill stores/ { match($0, /[0-9]+ bytes spill stores/); stores = substr($0, RSTART) + 0
                           match($0, /[0-9]+ bytes spill loads/); spills = stores + substr($0, RSTART) }
    /Used [0-9]+ registers/ { match($0, /Used [0-9]+/)
                              printf "%s\t%s\t%s\t%s\n", kernel, card, substr($0, RSTART + 5, RLENGTH - 5), spills }' |
    c++filt -p | awk -F'\t' '{ gsub(/\(anonymous namespace\)::| /, "", $1); print $1, $2, $3, $4 }' | LC_ALL=C sort
}
if [ "${3:-}" = --write ]; then
  { echo "# kernel card registers spill-bytes; made by harness/setup/cuda_check.sh --write, checked by make cuda-check"; measured; } >"$table"
  exit 0
fi
# More registers than noted by two, or any more spills, is a fault; less is fine.
while read -r line; do fault "$line"; done < <(
  awk 'NR == FNR { if ($1 !~ /^#/) { registers[$1 " " $2] = $3; spills[$1 " " $2] = $4 } next }
       { key = $1 " " $2
         if (!(key in registers)) print key, "is not in the table"
         else if ($3 > registers[key] + 2 || $4 > spills[key]) print key, "has", $3, "registers and", $4, "bytes of spills; noted:", registers[key], "and", spills[key] }' \
    "$table" <(measured))
echo "cuda-check: $(measured | wc -l) kernels, $faults faults"
[ "$faults" -eq 0 ]
