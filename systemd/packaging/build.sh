#!/bin/sh
# Builds settled_VERSION_amd64.deb and settled-VERSION.x86_64.rpm into OUT.
#
#   systemd/packaging/build.sh [VERSION] [OUT]
#
# The same commit, version and Go release give the same bytes: paths are trimmed,
# times are those of the commit, and every tool is pinned.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
version=${1:-0.1.0}
out=${2:-$here/dist}
nfpm=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2
arch=$(go env GOARCH)

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$here" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$out"

cd "$here"
CGO_ENABLED=1 go build -trimpath -buildvcs=true -tags sqlite_omit_load_extension \
	-ldflags '-s -w -buildid=' -o "$stage/settled" ./cmd/settled
go run -trimpath ./cmd/settled/internal/mkdocs "$stage" "$version"
gzip -9n "$stage"/man1/* "$stage"/man7/*
systemd/packaging/licences.sh >"$stage/licences"

VERSION=$version ARCH=$arch STAGE=$stage MTIME=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
# One time for everything: nfpm takes the times of the files that it packs.
sed -e "s|\${STAGE}|$STAGE|g" -e "s|\${VERSION}|$VERSION|g" -e "s|\${ARCH}|$ARCH|g" -e "s|\${MTIME}|$MTIME|g" systemd/packaging/nfpm.yaml >"$stage/nfpm.yaml"
find "$stage" -exec touch -d "@$SOURCE_DATE_EPOCH" {} +
for kind in deb rpm; do
	go run "$nfpm" package --config "$stage/nfpm.yaml" --packager "$kind" --target "$out/"
done
cd "$out" && sha256sum settled*"$version"*
