#!/bin/sh
# Before removal, not before an upgrade: stop, so that calls in flight end.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now settled.socket settled.service || true
	fi
	;;
esac
