#!/bin/sh
# deb: configure [old version]; rpm: 1 = install, 2 = upgrade.
# A first install starts and enables nothing; an upgrade restarts what runs.
set -e
case "$1" in
configure) upgrade=${2:+yes} ;;
1) upgrade= ;;
2) upgrade=yes ;;
*) exit 0 ;;
esac
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers settled.conf
elif ! getent passwd settled >/dev/null; then
	useradd --system --user-group --home-dir /var/lib/settled --shell /usr/sbin/nologin settled
fi
if command -v systemd-tmpfiles >/dev/null; then
	systemd-tmpfiles --create settled.conf
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	if [ -n "$upgrade" ]; then
		systemctl try-restart settled.service
	fi
fi
if [ -z "$upgrade" ]; then
	echo "settled: write /etc/settled/settled.toml, then: settled check && systemctl enable --now settled"
fi
