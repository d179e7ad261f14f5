# shellcheck shell=bash
# Sourced by what builds images on a Debian of this machine's own, and by package-test; needs `work`, a folder.

# shellcheck source=scripts/lib/debian.sh
source "$root/scripts/lib/debian.sh"

readonly image_folder=$root/var/images
readonly base=localhost/debian:bookworm # of scripts/lib/release/base
readonly store=(--root "$image_folder/store" --runroot "$image_folder/run" --storage-driver=vfs)

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

# A registry is not needed. It is made anew each day, for the security fixes; the same packages give the same bytes.
# With && throughout, as a caller that goes on without it would switch `set -e` off in here.
import_base() {
  local container made=$image_folder/base
  if [[ -n $(find "$made.made" -mmin -1440 2>/dev/null) ]] &&
    buildah "${store[@]}" inspect --type image "$base" >/dev/null 2>&1; then return; fi
  watched 'debootstrap and upgrade bookworm' scripts/lib/release/base "$made" &&
    container=$(buildah "${store[@]}" from scratch) &&
    buildah "${store[@]}" add --quiet "$container" "$made" / >/dev/null &&
    buildah "${store[@]}" config --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
      --created-by 'debootstrap --variant=minbase bookworm; apt-get upgrade; without documents' "$container" &&
    watched "import $base" buildah "${store[@]}" commit --quiet --rm --timestamp "$(<"$made.time")" "$container" "$base" &&
    touch "$made.made" &&
    rm -rf --one-file-system "$made"
}

# Debian's packages come from where this machine has them, and the image doesn't know.
build_image() { # build_image TARGET IMAGE FOLDER OPTION...
  debian_sources bookworm "$(debian_mirror)" "$(security_mirror)" >"$work/sources.list"
  watched "build $2" buildah "${store[@]}" build --isolation=chroot --pull-never --build-arg "BASE=$base" "${@:4}" \
    --volume "$work/sources.list:/etc/apt/sources.list:ro" \
    --secret "id=pip,src=$work/pip.conf" --volume "$work/pip:/run/pip:ro" --target "$1" --tag "$2" "$3"
}
