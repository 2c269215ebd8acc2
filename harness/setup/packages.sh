#!/usr/bin/env bash
# Installs the Debian packages that frostline needs and that are missing, after saying which. Nothing missing: nothing is
# asked of the network or of sudo.
# usage: packages.sh SET...      sets: build run model test fuzz lint format
set -euo pipefail

declare -A sets=(
  [build]="gcc libc6-dev binutils pkg-config libopenblas-dev libyaml-dev libcjson-dev libhdf5-dev libpcre2-dev libutf8proc-dev libxxhash-dev"
  [run]="gnuplot-nox"
  [model]="python3 python3-pip ca-certificates"
  [test]="libcmocka-dev g++ python3 python3-h5py hdf5-tools xz-utils zsh groff python3-jsonschema python3-yaml"
  [fuzz]="clang"
  [lint]="cppcheck clang-tidy"
  [format]="clang-format"
)

wanted=()
for name in "$@"; do
  [ -n "${sets[$name]:-}" ] || { echo "packages.sh: no set '$name' (sets: ${!sets[*]})" >&2; exit 2; }
  read -r -a more <<<"${sets[$name]}"
  wanted+=("${more[@]}")
done
mapfile -t wanted < <(printf '%s\n' "${wanted[@]}" | awk '!seen[$0]++')

if ! command -v dpkg-query >/dev/null; then
  echo "packages.sh: not a Debian system; please provide the equivalents of: ${wanted[*]}" >&2
  exit 0
fi

missing=()
for package in "${wanted[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "packages.sh: missing Debian packages, and neither root nor sudo to install them. As root:" >&2
    echo "    apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "These Debian packages are missing and will now be installed: ${missing[*]}"
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@"; }
# The lists may be empty on a fresh machine. When they cannot be fetched, what is cached may still do.
apt update || echo "packages.sh: the package lists could not be updated; trying with what is there" >&2
if ! apt install --no-install-recommends "${missing[@]}"; then
  echo "packages.sh: installation failed (see above); missing: ${missing[*]}" >&2
  exit 1
fi
