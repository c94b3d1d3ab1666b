#!/bin/sh
# Verify a bundle with jq, openssl and coreutils alone: sh verify-by-hand.sh BUNDLE PUBLIC_KEY.pem PROTOCOL_ID
# It proves who signed and that nothing changed, not that the scores are right: `sealbench verify` recomputes them.
set -eu
key=$(realpath "$2"); work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$1"
jq -ej '.signatures | if length == 1 then .[0].sig else error("not one signature") end' receipt.dsse.json | base64 -d >"$work/sig"
jq -ej .payload receipt.dsse.json | base64 -d >"$work/payload"
{ printf 'DSSEv1 28 application/vnd.in-toto+json %d ' "$(wc -c <"$work/payload")" && cat "$work/payload"; } >"$work/signed"
openssl pkeyutl -verify -rawin -pubin -inkey "$key" -sigfile "$work/sig" -in "$work/signed"
jq -e --arg id "$3" '.predicate.buildDefinition.externalParameters.protocol_id == $id' "$work/payload" >"$work/answer"
jq -er '.subject | if length == 1 then "\(.[0].digest.sha256)  manifest.json" else error("not one subject") end' "$work/payload" | sha256sum -c --strict --quiet
jq -er '.files[] | "\(.sha256)  \(.path)"' manifest.json | sha256sum -c --strict --quiet
{ jq -er '.files[].path' manifest.json && echo manifest.json && echo receipt.dsse.json; } | LC_ALL=C sort >"$work/listed"
find . ! -type d -o -empty | cut -c3- | LC_ALL=C sort | diff "$work/listed" - && echo "every file is listed, unchanged and signed"
