# shellcheck shell=bash
# Sourced by what makes a Debian: where this machine gets its packages from.

# Nothing (so that the caller's default holds) where apt doesn't tell.
apt_site() { # apt_site LABEL: of Debian's own indexes
  # shellcheck disable=SC2016
  apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' "Label: $1" 2>/dev/null | sed -n 1p
}

# As debootstrap and apt read it.
use_apt_proxy() {
  http_proxy=${http_proxy:-$(apt-config dump --format '%v' Acquire::http::Proxy 2>/dev/null | grep '^http' || true)}
  if [[ -n $http_proxy ]]; then export http_proxy; fi
}

debian_mirror() { echo "${FEDERATION_AGENT_MIRROR:-$(apt_site Debian || true)}"; }

security_mirror() { apt_site Debian-Security || true; }

# debian_sources RELEASE [MIRROR [SECURITY_MIRROR]]: a sources.list with the release, its updates, and its security fixes.
debian_sources() {
  local mirror=${2:-http://deb.debian.org/debian} security=${3:-http://security.debian.org/debian-security}
  printf 'deb %s main\n' "$mirror $1" "$mirror $1-updates" "$security $1-security"
}
