#!/bin/sh
# Installs the package in a booted Debian and lives a life in it: scenario by
# scenario, as inside.sh says. Needs root, debootstrap and systemd-nspawn.
#
#   systemd/nspawn/test.sh [WORK]      about two minutes after the first time
#
# WORK keeps the Debian root between runs (default /var/tmp/settled-nspawn).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=${1:-/var/tmp/settled-nspawn}
mkdir -p "$work"
if [ ! -e "$work/base.done" ]; then
	debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,curl bookworm "$work/base" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"}
	touch "$work/base.done"
fi
for v in 0.1.0 0.1.1; do
	"$here/../packaging/build.sh" "$v" "$work/packages"
done

run=$(mktemp -d "$work/run.XXXXXX")
trap 'rm -rf "$run"' EXIT
cp -a --reflink=auto "$work/base" "$run/tree"
mkdir "$run/test"
cp "$here/inside.sh" "$work"/packages/settled_0.1.[01]_*.deb "$run/test/"
cat >"$run/tree/etc/systemd/system/inside.service" <<'UNIT'
[Unit]
After=multi-user.target
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
ExecStart=/bin/bash /test/inside.sh
StandardOutput=file:/test/log
StandardError=inherit
TimeoutStartSec=10min
UNIT
mkdir -p "$run/tree/etc/systemd/system/default.target.wants"
ln -sf /etc/systemd/system/inside.service "$run/tree/etc/systemd/system/default.target.wants/inside.service"
rm -f "$run/tree/etc/machine-id" && touch "$run/tree/etc/machine-id"

timeout 280 systemd-nspawn --quiet --register=no --keep-unit --boot --directory="$run/tree" \
	--machine=settled-test --bind="$run/test:/test" >"$run/console" 2>&1 </dev/null || true
cat "$run/test/log" 2>/dev/null || tail -n 40 "$run/console"
grep -q '^ALL WELL$' "$run/test/log"
