#!/bin/sh
# The {{name}} adapter, in the exec form: a process per call, JSON in and out.
# It needs curl and jq. What counts:
#   - dispatch sends at most once. Only an answer of the destination, or the
#     proof that no byte left, says something else than "unknown".
#   - read never answers "nothing" because something failed: it ends with an error.
set -eu
request=$(cat)
get() { printf %s "$request" | jq -r "$1"; }
method=$(get .method)
url=$(get .config.url)
key=$(get '.operation.key // ""')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The token goes by a file that only we can read, never by an argument.
umask 077
printf 'header = "Authorization: Bearer %s"\n' "$(get .secrets.token)" >"$work/auth"

# read_json PATH: only an answer 200 that is a JSON object is a read.
read_json() {
  status=$(curl -sS -K "$work/auth" -o "$work/page" -w '%{http_code}' "$url$1") || exit 1
  [ "$status" = 200 ] || { echo "GET ${1%%\?*} was answered $status" >&2; exit 1; }
  [ "$(jq -r type "$work/page")" = object ] || { echo "GET ${1%%\?*}: the answer is no JSON object" >&2; exit 1; }
}

say() { jq -nc --arg outcome "$1" --arg reason "$2" --arg message "$3" '{$outcome, $reason, $message}'; exit 0; }

dispatch() {
  # jq would round numbers over 2^53 and replace half surrogates: the payload is refused before that.
  printf %s "$request" | jq -e '.operation.payload | (tostring | test("\ufffd") | not)
    and all(.. | numbers; . > -9007199254740992 and . < 9007199254740992)' >/dev/null ||
    say rejected validation "a number beyond 2^53 or half of a surrogate pair"
  get .operation.payload >"$work/body"
  code=0
  status=$(curl -sS -K "$work/auth" -o "$work/answer" -D "$work/head" -w '%{http_code}' \
    -H 'Content-Type: application/json' -H 'Expect:' -H "Idempotency-Key: $key" \
    --data-binary "@$work/body" "$url/invoices" 2>"$work/error") || code=$?
  case $code in
    0) ;;
    5 | 6 | 7 | 35 | 60) say not_executed not_sent "$(cat "$work/error")" ;; # no connection was made
    *) say unknown "" "$(cat "$work/error")" ;;
  esac
  case $status in
    201)
      made=$(jq -r '.id | strings' "$work/answer" 2>/dev/null) || made=
      [ -n "$made" ] || say unknown "" "a success that cannot be read" # jq calls an empty file no error
      jq -nc --arg id "$made" '{outcome: "done", object_id: $id}' ;;
    400 | 422) say rejected validation "answered $status" ;;
    401) say rejected authentication "answered 401" ;;
    403) say rejected permission "answered 403" ;;
    404) say rejected not_found "answered 404" ;;
    409) say rejected conflict "answered 409" ;;
    429)
      wait=$(sed -n 's/^[Rr]etry-[Aa]fter: *\([0-9][0-9]*\).*/\1/p' "$work/head" | tail -n 1)
      jq -nc --argjson after "${wait:-0}" '{outcome: "not_executed", retry_after: $after, message: "answered 429"}' ;;
    *) say unknown "" "answered $status" ;;
  esac
}

read_back() {
  read_json "/invoices?key=$(printf %s "$key" | jq -sRr @uri)"
  cp "$work/page" "$work/list"
  visible=true
  # An empty list counts only if we may see everything.
  if jq -e --arg key "$key" '[.items[] | select(.key == $key)] == []' "$work/list" >/dev/null; then
    read_json /me
    visible=$(jq '.sees_all == true' "$work/page")
  fi
  printf %s "$request" | jq -c --slurpfile page "$work/list" --argjson visible "$visible" '.operation as $op | {
    items: [$page[0].items[] | select(.key == $op.key) | {object_id: .id, key,
      digest: (if ({customer, cents} == ($op.payload | {customer, cents})) then $op.digest else null end)}],
    complete: ($page[0].more == false), visible: $visible}'
}

case $method in
  dispatch) dispatch ;;
  read) read_back ;;
  check) read_json /me; echo '{"status":"ok"}' ;;
  *) echo "no method $method" >&2; exit 64 ;;
esac
