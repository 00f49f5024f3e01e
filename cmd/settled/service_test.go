package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// service is the daemon as systemd runs it: its socket is handed over, and this
// test is the manager that it notifies.
type service struct {
	t      *testing.T
	dir    string
	notify *net.UnixConn
	cmd    *exec.Cmd
	log    bytes.Buffer
	told   []string
}

const serviceConf = `
[journal]
path = "DIR/j/journal.db"
generation = "DIR/g/marker"
[daemon]
stop_budget = "20s"
[listen]
socket = "DIR/s"
[owners.ops]
[owners.leads]
[destinations.files]
adapter = "exec"
owner = "ops"
rate = "50/s"
record_reserve = "1s"
[destinations.files.grace]
max_processing = "1s"
lag = "0s"
skew = "0s"
safety = "0s"
reads = ["1s", "2s"]
override_reason = "the files are on this machine"
[destinations.files.with]
dispatch = ["/bin/sh", "DIR/write"]
read = ["/bin/sh", "DIR/read"]
[destinations.files.with.operations.put]
[destinations.files.with.operations.put.read]
consistency = "strong"
proves_absence = true
`

func newService(t *testing.T) *service {
	t.Helper()
	dir, err := os.MkdirTemp("", "svc") // short: sockets lie in it
	if err != nil {
		t.Fatal(err)
	}
	s := &service{t: t, dir: dir}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s.write("settled.toml", serviceConf)
	// The payload says how slow the destination is.
	s.write("write", `read -r call; case $call in *slow*) sleep 2;; esac
printf '%s %s\n' "$SETTLED_KEY" "$SETTLED_DIGEST" >>DIR/objects
printf '{"outcome":"done","object_id":"%s"}' "$SETTLED_KEY"`)
	s.write("read", `cat >/dev/null
if grep -q "^$SETTLED_KEY " DIR/objects; then items='{"object_id":"'$SETTLED_KEY'","key":"'$SETTLED_KEY'","digest":"'$SETTLED_DIGEST'"}'; fi
printf '{"items":[%s],"complete":true,"visible":true,"scanned_from":"2020-01-01T00:00:00Z"}' "$items"`)
	s.write("objects", "")
	s.notify, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "n"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.notify.Close() })
	return s
}

func (s *service) write(name, text string) {
	s.t.Helper()
	text = strings.ReplaceAll(text, "DIR", s.dir)
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// start runs serve with a listener for its fd 3; without one it binds its own.
func (s *service) start(l *net.UnixListener, args ...string) {
	s.t.Helper()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	line := `exec "$0" serve --config "$1" "${@:2}"`
	if l != nil {
		line = `export LISTEN_PID=$$ LISTEN_FDS=1; ` + line
	}
	s.cmd = exec.Command("/bin/bash", append([]string{"-c", line, self, filepath.Join(s.dir, "settled.toml")}, args...)...)
	s.cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+filepath.Join(s.dir, "n"), "WATCHDOG_USEC=600000", "RUNTIME_DIRECTORY="+filepath.Join(s.dir, "run"))
	s.cmd.Stderr = &s.log
	if l != nil {
		f, err := l.File()
		if err != nil {
			s.t.Fatal(err)
		}
		defer f.Close()
		s.cmd.ExtraFiles = []*os.File{f}
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	cmd := s.cmd
	s.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		if s.t.Failed() {
			s.t.Logf("the daemon's log:\n%s\nwhat the manager was told: %q", s.log.String(), s.told)
		}
	})
	s.hears("READY=1")
}

// hears waits until the manager is told something that contains want.
func (s *service) hears(want string) string {
	s.t.Helper()
	buf := make([]byte, 4096)
	if err := s.notify.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		s.t.Fatal(err)
	}
	for {
		n, err := s.notify.Read(buf)
		if err != nil {
			s.t.Fatalf("the manager was never told %q: %v; it was told %q", want, err, s.told)
		}
		got := string(buf[:n])
		s.told = append(s.told, got)
		if strings.Contains(got, want) {
			return got
		}
	}
}

func (s *service) settled(want int, args ...string) string {
	s.t.Helper()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	c := exec.Command(self, append(args, "--socket", filepath.Join(s.dir, "s"), "--config", filepath.Join(s.dir, "settled.toml"))...)
	out, err := c.CombinedOutput()
	if code := c.ProcessState.ExitCode(); code != want {
		s.t.Fatalf("settled %s: exit %d (%v), want %d\n%s", strings.Join(args, " "), code, err, want, out)
	}
	return string(out)
}

func (s *service) says(want int, words string, args ...string) {
	s.t.Helper()
	if out := s.settled(want, args...); !strings.Contains(out, words) {
		s.t.Errorf("settled %s does not say %q:\n%s", strings.Join(args, " "), words, out)
	}
}

// stop sends SIGTERM and expects a clean end.
func (s *service) stop() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("serve ended with %v\n%s", err, s.log.String())
	}
}

func (s *service) objects(key string) int {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, "objects"))
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Count("\n"+string(data), "\n"+key+" ")
}

// The whole life under a service manager: the socket is handed over, the manager
// is told of readiness, health and the drain, a call in flight at SIGTERM ends in
// its time, and the socket's path outlives the daemon.
func TestADaemonUnderAServiceManager(t *testing.T) {
	s := newService(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(s.dir, "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s.start(l)
	if got := s.hears("STATUS="); !strings.Contains(got, "dispatch on; 0 in flight") {
		t.Errorf("the status line is %q", got)
	}
	s.hears("WATCHDOG=1")
	s.says(0, "", "submit", "files", "put", "--key", "file:1:put:v1", "--wait=30s")
	s.settled(0, "submit", "files", "put", "--key", "file:2:put:v1", "--set", "note=slow")
	waitFor(t, "the slow call is in flight", func() bool { return strings.Contains(s.debug("/debug/inflight"), "file:2:put:v1") })
	if !strings.Contains(s.debug("/debug/pprof/goroutine?debug=1"), "goroutine profile") {
		t.Error("there is no profile on the socket")
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.hears("STOPPING=1")
	s.hears("EXTEND_TIMEOUT_USEC=20000000")
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("serve ended with %v", err)
	}
	if s.objects("file:1:put:v1") != 1 || s.objects("file:2:put:v1") != 1 {
		t.Error("a call in flight was not waited for, or was made twice")
	}
	if _, err := os.Stat(filepath.Join(s.dir, "s")); err != nil {
		t.Errorf("the manager's socket is gone: %v", err)
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// debug asks the debug pages over the socket, as curl would.
func (s *service) debug(path string) string {
	s.t.Helper()
	c, err := net.Dial("unix", filepath.Join(s.dir, "s"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET %s HTTP/1.0\r\n\r\n", path)
	var b bytes.Buffer
	if _, err := b.ReadFrom(c); err != nil {
		s.t.Fatal(err)
	}
	return b.String()
}

// A reload that is good holds at once, one with a fault changes nothing, and what
// needs a restart is named and stays as it was.
func TestAReloadIsCheckedBeforeItHolds(t *testing.T) {
	s := newService(t)
	s.start(nil)
	s.says(0, "nothing changed", "reload")
	conf := strings.Replace(serviceConf, `rate = "50/s"`, `rate = "7/s"`, 1)
	conf = strings.Replace(conf, `owner = "ops"`, `owner = "leads"`, 1)
	s.write("settled.toml", conf+"[schedules.look]\ndo = \"reconcile\"\ndestination = \"files\"\ncron = \"@hourly\"\n")
	out := s.settled(0, "reload")
	for _, w := range []string{"destinations.files.rate", "destinations.files.owner", "schedules.look"} {
		if !strings.Contains(out, w) {
			t.Errorf("reload does not name %s:\n%s", w, out)
		}
	}
	s.says(0, "rate 7/s", "destination", "show", "files")
	s.says(0, "look", "schedule", "list")
	s.settled(0, "submit", "files", "put", "--key", "file:1:put:v1", "--wait=30s")
	s.says(0, `"owner":"leads"`, "show", "file:1:put:v1", "--json")

	s.write("settled.toml", strings.Replace(conf, "rate =", "rat =", 1))
	out = s.settled(1, "reload")
	if !strings.Contains(out, "the one that runs is kept") || !strings.Contains(out, "rate") || !strings.Contains(out, "settled.toml") {
		t.Errorf("a bad reload says:\n%s", out)
	}
	s.says(0, "rate 7/s", "destination", "show", "files")
	if m := s.debug("/metrics"); !strings.Contains(m, "settled_config_reload_ok 0") {
		t.Error("/metrics does not tell of the failed reload")
	}

	s.write("settled.toml", strings.Replace(conf, `owner = "leads"`, "owner = \"ops\"\nconcurrency = 1", 1)+
		"[destinations.more]\nadapter = \"exec\"\nowner = \"ops\"\n[destinations.more.with]\ndispatch = [\"/bin/true\"]\n")
	out = s.settled(0, "reload")
	for _, w := range []string{"needs restart  destinations.files.concurrency", "needs restart  destinations.more", "changed        destinations.files.owner", "changed        schedules.look"} {
		if !strings.Contains(out, w) {
			t.Errorf("reload does not say %q:\n%s", w, out)
		}
	}
	s.says(2, "not configured", "submit", "more", "put", "--key", "file:3:put:v1")
	if m := s.debug("/metrics"); !strings.Contains(m, "settled_config_reload_ok 1") {
		t.Error("/metrics still tells of a failed reload")
	}
	s.stop()
}

// A daemon that starts with --hold takes effects and sends none until the hold is released.
func TestADaemonStartedWithHoldSendsNothing(t *testing.T) {
	s := newService(t)
	s.start(nil, "--hold=moving house")
	s.says(0, "moving house", "hold")
	s.says(5, "was not sent yet", "submit", "files", "put", "--key", "file:1:put:v1", "--wait=300ms")
	if s.objects("file:1:put:v1") != 0 {
		t.Fatal("it was sent")
	}
	s.settled(0, "release", "all")
	s.settled(0, "wait", "file:1:put:v1", "--timeout", "30s")
	s.stop()
}

// After a restore nothing is sent until a person says when the old daemon was
// dead; an effect that the backup does not know is read before it is written.
func TestAfterARestoreAPersonMustConfirm(t *testing.T) {
	s := newService(t)
	s.start(nil)
	s.settled(0, "submit", "files", "put", "--key", "file:1:put:v1", "--wait=30s")
	backup := filepath.Join(s.dir, "b.db")
	s.settled(0, "journal", "backup", backup)
	s.says(0, "are whole", "journal", "check")
	s.settled(0, "submit", "files", "put", "--key", "file:2:put:v1", "--wait=30s") // the backup forgets it
	s.says(1, "nothing was replaced", "journal", "restore", backup)
	s.stop()

	s.says(0, "are whole", "journal", "check")
	s.says(0, "sends nothing", "journal", "restore", backup)
	s.start(nil)
	s.says(0, "dispatch is OFF", "status")
	s.says(0, "succeeded", "submit", "files", "put", "--key", "file:2:put:v1", "--wait=30s") // a read finds it
	s.settled(0, "submit", "files", "put", "--key", "file:3:put:v1")
	time.Sleep(300 * time.Millisecond)
	if s.objects("file:3:put:v1") != 0 {
		t.Fatal("something was sent before a person confirmed")
	}
	s.says(2, "--because", "journal", "confirm-restore", "--old-daemon-dead-at", "1s")
	s.says(2, "not in the future", "journal", "confirm-restore", "--old-daemon-dead-at", "2099-01-01T00:00:00Z", "--because", "x")
	s.says(0, "dispatch is on", "journal", "confirm-restore", "--old-daemon-dead-at", "1s", "--because", "this test stopped it")
	// The read covers no more than the years since 2020, so it cannot prove that a
	// key which the backup may have forgotten was never sent.
	s.says(0, "does not cover all time", "show", "file:3:put:v1", "--json")
	if f, n := s.objects("file:2:put:v1"), s.objects("file:3:put:v1"); f != 1 || n != 0 {
		t.Errorf("%d objects of the effect that the backup forgot, %d of one it may have forgotten, want 1 and 0", f, n)
	}
	var row struct {
		Key   string
		Phase string
	}
	if err := json.Unmarshal([]byte(s.settled(0, "journal", "sql", "--json", "SELECT key, phase FROM effect WHERE key='file:2:put:v1'")), &row); err != nil || row.Phase != "succeeded" {
		t.Errorf("the shell gives %+v, %v", row, err)
	}
	s.says(1, "the query", "journal", "sql", "DELETE FROM effect")
	s.stop()
	s.says(0, "nothing to do", "journal", "migrate", "--dry-run")
}
