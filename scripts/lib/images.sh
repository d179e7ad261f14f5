# shellcheck shell=bash
# Sourced by what builds images on a Debian of this machine's own, and by package-test; needs `work`, a folder.

readonly image_folder=$root/var/images
readonly base=docker.io/library/debian:bookworm-slim # the Dockerfile's
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

# The same Debian as the Dockerfile's base, under its name: a registry is not needed.
import_base() {
  local container
  if buildah "${store[@]}" inspect --type image "$base" >/dev/null 2>&1; then return; fi
  rm -rf --one-file-system "$image_folder/base"
  watched 'debootstrap bookworm' scripts/debian-root bookworm "$image_folder/base"
  container=$(buildah "${store[@]}" from scratch)
  buildah "${store[@]}" add --quiet "$container" "$image_folder/base" / >/dev/null
  buildah "${store[@]}" config --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
  watched "import $base" buildah "${store[@]}" commit --quiet --rm "$container" "$base"
  rm -rf --one-file-system "$image_folder/base"
}

build_image() { # build_image TARGET IMAGE FOLDER OPTION...
  watched "build $2" buildah "${store[@]}" build --isolation=chroot --pull-never "${@:4}" \
    --secret "id=pip,src=$work/pip.conf" --volume "$work/pip:/run/pip:ro" --target "$1" --tag "$2" "$3"
}
