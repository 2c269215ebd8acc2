#!/usr/bin/env bash
# Gathers what runs on a machine without our libraries: programs, tests, the cuda object where it was built, and every shared library
# they need but glibc's. One packed file, to be copied there; build/portable/run.sh COMMAND... runs a program of it.
# usage: portable.sh BUILD-FOLDER TEST...      makes build/portable and build/portable.tar.xz
set -euo pipefail
build=$1
shift
to=build/portable
rm -rf "$to" "$to.tar.xz"
mkdir -p "$to/tests" "$to/lib" "$to/packs/reference"
cp "$build/frostline" "$to/"
for object in "$build"/libfrostline_cuda.so "$build"/libfrostline_cuda_emulated.so; do
  [ ! -f "$object" ] || cp "$object" "$to/"
done
for test in "$@"; do cp "$build/tests/$test" "$to/tests/"; done
strip --strip-debug "$to"/frostline "$to"/tests/* "$to"/*.so 2>/dev/null || true
ldd "$to"/frostline "$to"/tests/* | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
  grep -vE '/(ld-linux[^/]*|libc|libm|libdl|libpthread|librt|libresolv|libutil)\.so' | while read -r library; do
  cp -L "$library" "$to/lib/$(basename "$library")"
done
for pack in llama_gqa qwen2; do # what the tests of the device read
  [ ! -d "build/packs/reference/$pack" ] || cp -rL "build/packs/reference/$pack" "$to/packs/reference/"
done
cat >"$to/run.sh" <<'RUN'
#!/usr/bin/env bash
# usage: run.sh PROGRAM ARGUMENT...      with this folder's libraries
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=$1
shift
[ -x "$here/$program" ] && program=$here/$program
LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$program" "$@"
RUN
chmod +x "$to/run.sh"
tar -C build -cf - portable | xz -T0 -3 >"$to.tar.xz"
echo "$(du -sh "$to" | cut -f1) in $to, $(du -h "$to.tar.xz" | cut -f1) packed"
