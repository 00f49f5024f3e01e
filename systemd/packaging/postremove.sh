#!/bin/sh
# The journal says what happened in systems that you do not own; it stays, even at
# a purge. SETTLED_PURGE_JOURNAL=yes apt purge settled takes it away, too.
set -e
case "$1" in
purge)
	rm -rf /etc/settled/conf.d
	if [ "${SETTLED_PURGE_JOURNAL:-}" = yes ]; then
		rm -rf /var/lib/settled /var/lib/settled-generation /etc/settled/credentials
	else
		echo "settled: the journal stays in /var/lib/settled and /var/lib/settled-generation"
	fi
	;;
esac
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
