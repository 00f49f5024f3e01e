#!/bin/bash
# Runs inside the booted Debian. Each part says what must hold, and the first
# that does not hold ends it.
set -u
D=/var/lib/settled
part() { printf '== %s\n' "$*"; }
fail() {
	printf 'NOT WELL: %s\n' "$*"
	systemctl status settled --no-pager
	journalctl -u settled --no-pager -n 40
	exit 1
}
ok() { printf '   ok: %s\n' "$*"; }
is() { [ "$2" = "$3" ] && ok "$1: $2" || fail "$1 is '$2', want '$3'"; }
eventually() {
	local what=$1 i
	shift
	for i in $(seq 300); do
		if "$@" >/dev/null 2>&1; then ok "$what"; return; fi
		sleep 0.2
	done
	fail "never: $what"
}
count() { grep -c "^$1 " $D/objects; }
mode() { stat -c '%a %U:%G' "$1"; }
as() { runuser -u "$@"; }
lines_since() { journalctl -u settled --no-pager -o cat --since "$1"; }

part "a first install starts nothing"
dpkg -i /test/settled_0.1.0_*.deb || fail "dpkg -i"
is "settled.service" "$(systemctl is-active settled.service)" inactive
is "settled.service" "$(systemctl is-enabled settled.service)" disabled
is "settled.socket" "$(systemctl is-active settled.socket)" inactive
systemctl cat settled.service >/dev/null || fail "no unit"
settled help recovery | grep -q confirm-restore || fail "no help"
[ -s /usr/share/man/man1/settled-submit.1.gz ] || fail "no man page"

part "a destination of two commands"
cat >/usr/local/bin/put <<'S'
#!/bin/bash
read -r call
case $call in *slow*) sleep 3 ;; esac
echo "$SETTLED_KEY $SETTLED_DIGEST" >>/var/lib/settled/objects
printf '{"outcome":"done","object_id":"%s"}' "$SETTLED_KEY"
S
cat >/usr/local/bin/find <<'S'
#!/bin/bash
cat >/dev/null
items=
if grep -q "^$SETTLED_KEY " /var/lib/settled/objects; then
	items='{"object_id":"'$SETTLED_KEY'","key":"'$SETTLED_KEY'","digest":"'$SETTLED_DIGEST'"}'
fi
printf '{"items":[%s],"complete":true,"visible":true,"scanned_from":"2020-01-01T00:00:00Z"}' "$items"
S
chmod 755 /usr/local/bin/put /usr/local/bin/find
cat >/etc/settled/conf.d/files.toml <<'S'
[owners.ops]
[destinations.files]
adapter = "exec"
owner = "ops"
rate = "500/s"
record_reserve = "1s"
concurrency = 4
[destinations.files.retry]
after_absence = "5m"
tokens = "100% + 600/m"
[destinations.files.grace]
max_processing = "4s"
lag = "0s"
skew = "0s"
safety = "0s"
linger = "1s"
reads = ["1s", "2s"]
override_reason = "the files are on this machine"
[destinations.files.with]
dispatch = ["/usr/local/bin/put"]
read = ["/usr/local/bin/find"]
[destinations.files.with.operations.put]
[destinations.files.with.operations.put.read]
consistency = "strong"
proves_absence = true
S
systemctl enable --now settled || fail "start"
is "settled" "$(systemctl is-active settled)" active
systemctl show settled -p StatusText
as settled -- touch $D/objects
as settled -- settled check --quiet || fail "check"

part "who may open the socket"
useradd -G settled ada
useradd eve
as ada -- settled submit files put --key file:1:put:v1 --wait=30s || fail "a member of the group may submit"
as eve -- settled status 2>/dev/null
is "a stranger's exit" $? 6
as ada -- settled show file:1:put:v1 --json | grep -q "\"actor\":\"uid:$(id -u ada)\"" && ok "the chain knows who" || fail "actor"
is "a member of the group at /debug" "$(as ada -- curl -s -o /dev/null -w '%{http_code}' --unix-socket /run/settled.sock http://x/debug/inflight)" 403
is "root at /debug" "$(curl -s -o /dev/null -w '%{http_code}' --unix-socket /run/settled.sock http://x/debug/pprof/)" 200

part "permissions"
is "socket" "$(mode /run/settled.sock)" "660 settled:settled"
is "state" "$(mode $D)" "750 settled:settled"
is "journal" "$(mode $D/journal.db)" "640 settled:settled"
is "marker's directory" "$(mode $D-generation)" "750 settled:settled"
is "chain key" "$(mode $D-generation/marker.key)" "600 settled:settled"
is "runtime" "$(mode /run/settled)" "700 settled:settled"
is "credentials" "$(mode /etc/settled/credentials)" "750 root:settled"
is "configuration" "$(mode /etc/settled/settled.toml)" "644 root:root"

part "kill -9 of the main process with a call in flight"
as ada -- settled submit files put --key file:2:put:v1 --set note=slow
eventually "in flight" bash -c "curl -s --unix-socket /run/settled.sock http://x/debug/inflight | grep -q file:2:put:v1"
systemctl kill -s KILL --kill-who=main settled
eventually "started again" bash -c '[ "$(systemctl show settled -p NRestarts --value)" = 1 ] && systemctl is-active -q settled'
as ada -- settled wait file:2:put:v1 --timeout 90s || fail "it was not settled"
is "objects of it" "$(count file:2:put:v1)" 1

part "fields of the journal"
journalctl --sync
n=$(journalctl -u settled SETTLED_KEY=file:2:put:v1 -o json --no-pager | grep -c SETTLED_ATTEMPT)
[ "$n" -ge 1 ] && ok "journalctl SETTLED_KEY=file:2:put:v1 finds $n line(s)" || fail "no fields"

part "reload, good and bad"
sed -i 's|"500/s"|"400/s"|' /etc/settled/conf.d/files.toml
systemctl reload settled || fail "a good reload"
settled destination show files | grep -q 'rate 400/s' && ok "a good one holds" || fail "rate"
sed -i 's|^rate|rat|' /etc/settled/conf.d/files.toml
systemctl reload settled 2>/dev/null && fail "a bad reload was taken"
is "after a bad one the daemon" "$(systemctl is-active settled)" active
settled destination show files | grep -q 'rate 400/s' && ok "the configuration is kept" || fail "rate"
journalctl --sync
journalctl -u settled --no-pager -o cat | grep -q 'did you mean\|rate' && ok "and says what is wrong" || fail "silent"
sed -i 's|^rat |rate |' /etc/settled/conf.d/files.toml
systemctl reload settled || fail "reload after mending"

part "socket activation"
systemctl stop settled.service
is "settled" "$(systemctl is-active settled.service)" inactive
is "settled.socket" "$(systemctl is-active settled.socket)" active
as ada -- settled status | grep -q 'dispatch is on' && ok "the first client starts it" || fail "socket activation"

part "stop with a call in flight"
as ada -- settled submit files put --key file:3:put:v1 --set note=slow
eventually "in flight" bash -c "curl -s --unix-socket /run/settled.sock http://x/debug/inflight | grep -q file:3:put:v1"
systemctl stop settled.service
is "result" "$(systemctl show settled -p Result --value)" success
is "objects when the stop returns" "$(count file:3:put:v1)" 1
systemctl start settled
as ada -- settled wait file:3:put:v1 --timeout 60s || fail "it was not settled"
is "objects of it" "$(count file:3:put:v1)" 1

part "upgrade and restarts under load"
load() {
	for i in $(seq 400); do
		for try in 1 2 3 4 5 6 7 8 9 10; do
			as ada -- settled submit files put --key load:$i:put:v1 >/dev/null 2>&1 && break
			sleep 0.3
		done || echo "load:$i was never taken"
	done
}
load >/tmp/load &
sleep 1
dpkg -i /test/settled_0.1.1_*.deb >/dev/null || fail "upgrade"
is "after the upgrade" "$(systemctl is-active settled)" active
for i in 1 2 3 4 5; do
	sleep 1
	if [ $((i % 2)) = 0 ]; then systemctl restart settled; else systemctl kill -s KILL --kill-who=main settled; sleep 1.5; fi
done
wait %1
cat /tmp/load
eventually "all are settled" bash -c '[ "$(settled list key:load:* phase:succeeded --plain | wc -l)" = 400 ]'
is "objects" "$(grep -c '^load:' $D/objects)" 400
is "different objects" "$(grep '^load:' $D/objects | sort -u | wc -l)" 400

part "a hung daemon is ended by the watchdog"
mkdir -p /etc/systemd/system/settled.service.d
printf '[Service]\nWatchdogSec=3s\nTimeoutAbortSec=2s\n' >/etc/systemd/system/settled.service.d/watchdog.conf
systemctl daemon-reload && systemctl restart settled
before=$(systemctl show settled -p NRestarts --value)
systemctl kill -s STOP --kill-who=main settled
eventually "started again" bash -c '[ "$(systemctl show settled -p NRestarts --value)" -gt '"$before"' ] && settled status'
journalctl -u settled --no-pager | grep -qi watchdog && ok "systemd says watchdog" || fail "no watchdog"
sleep 8
is "a daemon that is well" "$(systemctl is-active settled)" active

part "backup and restore"
as settled -- settled journal backup $D/b.db || fail backup
systemctl stop settled
as settled -- settled journal restore $D/b.db || fail restore
systemctl start settled
settled status | grep -q 'dispatch is OFF' && ok "nothing is sent" || fail "dispatch"
settled journal confirm-restore --old-daemon-dead-at 1s --because "it was stopped" | grep -q 'dispatch is on' && ok "confirmed" || fail confirm
as settled -- settled journal check || fail "journal check"

part "remove and purge keep the journal"
dpkg -r settled >/dev/null
is "settled" "$(systemctl is-active settled)" inactive
dpkg -P settled
[ -s $D/journal.db ] && ok "the journal is there" || fail "the journal is gone"
[ -e /etc/settled/settled.toml ] && fail "the configuration stayed" || ok "the configuration is gone"

echo "ALL WELL"
