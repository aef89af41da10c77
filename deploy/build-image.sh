#!/usr/bin/env bash
# build-image.sh [DIRECTORY]: builds the top-level Dockerfile without a Docker engine or an image
# registry, and leaves the image's files in DIRECTORY/rootfs. Run as root with the Debian packages
# buildah and debootstrap; DIRECTORY (build/image) also keeps the layers for the next run.
#
# The base image is replaced by one of the same name made from Debian's packages, with Debian's
# Python in place of the official one: this shows that every step of the Dockerfile works, not
# that it works with that Python.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
directory=$(realpath -m "${1:-$top/build/image}")
base=$(sed -n 's/^FROM \([^ ]*\)$/\1/p' "$top/Dockerfile")
for tool in buildah debootstrap; do
    command -v $tool >/dev/null || { echo "$tool is missing: install the package $tool" >&2; exit 1; }
done
mkdir -p "$directory"
store=(buildah --root "$directory/storage" --runroot "$directory/run" --storage-driver vfs)

# What pip was told of a proxy's certificates holds in the build as well
volumes=()
certificates=${PIP_CERT:-${SSL_CERT_FILE:-}}
if [ -n "$certificates" ]; then
    printf '[global]\ncert = /etc/ssl/proxy.pem\n' >"$directory/pip.conf"
    volumes=(--volume "$certificates:/etc/ssl/proxy.pem:ro"
             --volume "$directory/pip.conf:/etc/pip.conf:ro")
fi

if ! "${store[@]}" inspect --type image "docker.io/library/$base" >/dev/null 2>&1; then
    container=$("${store[@]}" from scratch)
    root=$("${store[@]}" mount "$container")
    debootstrap --variant=minbase --include=python3-venv,python3-dev,ca-certificates \
        "${base##*-}" "$root" >"$directory/debootstrap.log"
    ln -s python3 "$root/usr/bin/python"
    "${store[@]}" commit -q --rm "$container" "docker.io/library/$base"
fi

"${store[@]}" bud --isolation chroot --pull-never --format docker "${volumes[@]}" \
    --tag headrace --file "$top/Dockerfile" "$top"

container=$("${store[@]}" from --pull-never localhost/headrace)
rm -rf "$directory/rootfs"
cp -a "$("${store[@]}" mount "$container")" "$directory/rootfs"
"${store[@]}" inspect --type image headrace >"$directory/image.json"
"${store[@]}" rm "$container" >/dev/null
"${store[@]}" rmi --prune >/dev/null
echo "$directory/rootfs"
