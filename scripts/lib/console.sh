# shellcheck shell=bash
# Sourced by the scripts beside this folder: what they print, and long work that shows it is alive.

have() { printf '  have  %s\n' "$*"; }
doing() { printf '  do    %s\n' "$*"; }
note() { printf '  note  %s\n' "$*"; }
fail() { printf '  FAIL  %s\n' "$*" >&2; }

# One line that counts on a terminal, a line every 15 s elsewhere (a CI log keeps every line).
_show_progress() {
  local label=$1 log=$2 parent=$3 start=$SECONDS elapsed last due=15 width=${COLUMNS:-80}
  while kill -0 "$parent" 2>/dev/null; do
    elapsed=$((SECONDS - start))
    last=$(tail -n 20 "$log" 2>/dev/null | grep -v '^WARNING' | tail -n 1 | tr -dc '[:print:]') || last=
    if [[ -t 1 ]]; then
      last="        ${elapsed} s  $label: $last"
      printf '\r\033[K%s' "${last:0:width-1}"
    elif ((elapsed >= due)); then
      due=$((due + 15))
      printf '        %d s  %s: %s\n' "$elapsed" "$label" "${last:0:100}"
    fi
    sleep 1 >/dev/null 2>&1
  done
}

_stop_progress() {
  [[ -n ${progress_pid:-} ]] || return 0
  kill "$progress_pid" 2>/dev/null || true
  wait "$progress_pid" 2>/dev/null || true
  progress_pid=
  if [[ -t 1 ]]; then printf '\r\033[K'; fi
}

# For a script's EXIT trap: an interrupted `watched` leaves neither its line nor its log.
stop_watching() {
  _stop_progress
  rm -f "${watched_log:-}"
}

# watched LABEL COMMAND...: the command stays in the foreground, so that Ctrl-C reaches it.
# What it printed is kept only when it failed, and then its end is shown.
watched() {
  local label=$1 status=0 start=$SECONDS
  shift
  watched_log=$(mktemp "${TMPDIR:-/tmp}/federation-agent-setup.XXXXXX")
  _show_progress "$label" "$watched_log" "$$" &
  progress_pid=$!
  "$@" >"$watched_log" 2>&1 </dev/null || status=$?
  _stop_progress
  if ((status == 0)); then
    printf '        done in %d s: %s\n' "$((SECONDS - start))" "$label"
    rm -f "$watched_log"
  else
    fail "$label (exit $status); the end of $watched_log:"
    tail -n 20 "$watched_log" | sed 's/^/        | /' >&2
  fi
  watched_log=
  return "$status"
}
