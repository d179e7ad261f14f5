# shellcheck shell=bash
# Sourced by the scripts beside this folder: how to become root, if at all.

# find_root ask|silently: sets `root_prefix` to what a command needs in front of it, else `root_refusal` to the reason.
# shellcheck disable=SC2034
find_root() {
  root_prefix=()
  root_refusal=
  if ((EUID == 0)); then
    return 0
  elif ! command -v sudo >/dev/null; then
    root_refusal='you are not root and there is no sudo'
  elif sudo -n true 2>/dev/null; then
    root_prefix=(sudo -n)
    return 0
  elif [[ $1 == ask && -t 0 ]] && sudo -v; then
    root_prefix=(sudo)
    return 0
  else
    root_refusal='you are not root and sudo does not let you without a password'
  fi
  return 1
}

# sudo drops the environment; apt and debootstrap need the proxy that is in it.
as_root() {
  local variable kept=()
  for variable in http_proxy https_proxy no_proxy FEDERATION_AGENT_VERSIONS_DIR FEDERATION_AGENT_MIRROR; do
    if [[ -n ${!variable:-} ]]; then kept+=("$variable=${!variable}"); fi
  done
  "${root_prefix[@]}" env "${kept[@]}" "$@"
}

# Packages, nothing they only recommend. Waits for a lock that another apt holds, as on a machine that just booted.
apt_get() {
  as_root DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get -o DPkg::Lock::Timeout=300 \
    -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 --no-install-recommends --yes "$@"
}

readonly policy=/usr/sbin/policy-rc.d policy_mark='# federation-agent: no services while packages are installed'

# A packaged broker or engine would start at once, and take ports; tests start their own.
forbid_services() {
  if [[ ! -e $policy ]]; then
    printf '#!/bin/sh\n%s\nexit 101\n' "$policy_mark" | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
  fi
}

allow_services() {
  if grep -qsF "$policy_mark" "$policy"; then as_root rm -f "$policy"; fi
}
