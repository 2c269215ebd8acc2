#!/usr/bin/env bash
# `make install` into a folder: every part is there, and the installed program works from another folder, completed by the
# installed scripts, described by the installed page.
#
# usage: install_test.sh      FROSTLINE: the program, build/CONFIG/frostline; TMPDIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
program=${FROSTLINE:-build/release/frostline}
config=$(basename "$(dirname "$program")")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
make --no-print-directory CONFIG="$config" DESTDIR="$folder/root" PREFIX=/opt/frostline install >/dev/null
prefix=$folder/root/opt/frostline
for file in bin/frostline share/bash-completion/completions/frostline share/zsh/site-functions/_frostline \
    share/man/man1/frostline.1 share/frostline/configs/quickstart.yaml share/frostline/datasets/reading.txt \
    share/doc/frostline/configuration.md; do
  [ -s "$prefix/$file" ] || { echo "install_test: $file is missing"; exit 1; }
done
cmp <("$program" manual) "$prefix/share/man/man1/frostline.1"
bash -n "$prefix/share/bash-completion/completions/frostline"
mkdir "$folder/elsewhere"
cd "$folder/elsewhere"
"$prefix/bin/frostline" data list >list.txt
grep -q HellaSwag list.txt
"$prefix/bin/frostline" config --schema >schema.json
if [ -e "$prefix/share/frostline/models/smollm2-135m.gguf" ]; then
  "$prefix/bin/frostline" plan configs/quickstart.yaml --out results | grep -q missing
fi
echo "install_test: passed"
