#!/bin/sh
# Verify a bundle with jq, openssl and coreutils alone: sh verify-by-hand.sh BUNDLE PUBLIC_KEY.pem PROTOCOL_ID
# It proves who signed and that nothing changed, not that the scores are right: `sealbench verify` recomputes them.
# What does not hold is said after FAILED, and nothing after it is looked at.
set -eu; unset work; at='give BUNDLE PUBLIC_KEY.pem PROTOCOL_ID, all three'; trap '[ $? = 0 ] || echo "FAILED: $at" >&2; rm -rf "${work-}"' EXIT
: "$3"; at="there is no key $2, or no bundle $1"; key=$(realpath "$2"); work=$(mktemp -d); cd "$1"; at='receipt.dsse.json is not there, or has not one signature'
jq -ej '.signatures | if length == 1 then .[0].sig else error("not one signature") end' receipt.dsse.json >"$work/sig64"; base64 -d "$work/sig64" >"$work/sig"
jq -ej .payload receipt.dsse.json | base64 -d >"$work/payload"; at='the signature is not by this key, or the receipt was changed'
{ printf 'DSSEv1 28 application/vnd.in-toto+json %d ' "$(wc -c <"$work/payload")" && cat "$work/payload"; } >"$work/signed"
openssl pkeyutl -verify -rawin -pubin -inkey "$key" -sigfile "$work/sig" -in "$work/signed"; at="it was signed for another protocol than $3"
jq -e --arg id "$3" '.predicate.buildDefinition.externalParameters.protocol_id == $id' "$work/payload" >"$work/answer"; at='manifest.json is not the signed one'
jq -er '.subject | if length == 1 then "\(.[0].digest.sha256)  manifest.json" else error("not one subject") end' "$work/payload" | sha256sum -c --strict --quiet; at='a file is not as the manifest lists it'
jq -er '.files[] | "\(.sha256)  \(.path)"' manifest.json | sha256sum -c --strict --quiet; at='there are other files than the manifest lists (< missing, > too many)'
{ jq -er '.files[].path' manifest.json && echo manifest.json && echo receipt.dsse.json; } | LC_ALL=C sort >"$work/listed"
find . ! -type d -o -empty | cut -c3- | LC_ALL=C sort | diff "$work/listed" - && echo "every file is listed, unchanged and signed"
