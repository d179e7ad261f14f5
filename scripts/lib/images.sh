# shellcheck shell=bash
# Sourced by image-test and compose-test, which build images on a Debian of this machine's own; needs `work`, a folder.

install_missing() { # install_missing COMMAND PACKAGE...: the packages where the command is missing
  PATH=$PATH:/usr/sbin:/sbin
  if command -v "$1" >/dev/null; then return; fi
  doing "install ${*:2} (apt-get install)"
  watched 'apt-get update' apt_get update || true
  watched "apt-get install ${*:2}" apt_get install "${@:2}"
}

# Where this machine's pip finds packages, as far as it can be had inside: indexes with an address, and whom to trust.
pip_configuration() {
  local key value
  local -A found=()
  while IFS='=' read -r key value; do
    value=${value#\'} value=${value%\'}
    case ${key#*.}=$value in
      *index-url=http* | trusted-host=* | proxy=* | cert=*) found[${key#*.}]=$value ;;
    esac
  done < <(.venv/bin/python -m pip config list | sed 's/^:env:\././')
  found[cert]=${found[cert]:-${SSL_CERT_FILE:-}}
  if [[ -n ${found[cert]} ]]; then
    cp "${found[cert]}" "$work/pip/ca.pem"
    found[cert]=/run/pip/ca.pem
  else
    unset 'found[cert]'
  fi
  printf '[global]\n'
  for key in "${!found[@]}"; do printf '%s = %s\n' "$key" "${found[$key]}"; done
}
